"""Data access shared by stages: images of a sample table, archives, WordNet."""
