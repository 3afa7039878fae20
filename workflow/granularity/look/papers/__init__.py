"""One page over all results: the papers' claims and our verdicts (`snakemake papers`)."""
