"""Claims: what papers state, and the verdicts that our numbers give."""
