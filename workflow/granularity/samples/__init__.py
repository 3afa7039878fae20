"""Samples: which images there are, where their bytes lie, and what humans call them."""
