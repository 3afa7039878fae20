"""The science, in the order the data flows."""
