"""One page over all results: what the papers claim and what became of it (`snakemake papers`).

It belongs to no configuration, reads the verdicts and reports of every folder of results, and trains nothing.
"""
