"""Label spaces: human ranks, random IDs and clusters, each with its class table and measured properties."""
