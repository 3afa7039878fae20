"""Claims: what papers state, and what becomes of it in our numbers."""
