"""Adapters: each reads one family of data sets in its publisher's own layout."""
