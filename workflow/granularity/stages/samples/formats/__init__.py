"""Formats and layouts that sources read: one module each."""
