"""One page over all results: what the papers claim and what became of it (`snakemake papers`).

It belongs to no configuration and makes no result again, so it is no stage: like `granularity status` it looks at what
lies there. It reads the verdicts of every folder of results, and trains nothing.

* :mod:`.experiments`: the configurations that are here, what they cost or would cost, and what they lack.
* :mod:`.judged`: every claim with its verdict, whether it was tested or not.
* :mod:`.numbers`: every published row, and the experiment that is about it.
* :mod:`.answers`: our number of each row, or why there is none: of worlds in :mod:`.simulated`, of images in
  :mod:`.trained`.
* :mod:`.page`: the page, and the same as CSV.
"""
