"""One page over all results: what the papers claim and what became of it (`snakemake papers`)."""
