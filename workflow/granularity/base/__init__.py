"""Foundations used everywhere: errors, progress, seeds, signals."""
