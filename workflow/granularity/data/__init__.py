"""What stages share about data: reading the images of a sample table, archives, WordNet."""
