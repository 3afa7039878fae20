"""Measures, found by name: what stage `measure` computes for a network. Each is one file, here or of the user's own.

A user's own file contains `EXTENDS = "measure"` and is named under `extensions` in the configuration. A measure holds

- `Options`: its options, a :class:`granularity.base.section.Section`;
- `measure(view, options, seed)`: measures one network, as a pure function. `view` is a
  :class:`granularity.stages.measure.view.View`, `seed` the base seed. It yields triples (split, key, value), or returns
  a table with these columns. A value is a number, which becomes a row of `values.parquet`, or a NumPy array, which
  becomes `arrays/NETWORK/SPLIT/KEY.npy`. A key has parts if it is about one of several things: `digit/linear`;
- `LEAST_RANKS`, if it needs several ranks: their least number, which planning checks;
- `TAKES_EMBEDDINGS = False`, if it only measures networks: `view.network` is None for the embedding;
- `draw`, if the report shows a picture of it: see :mod:`granularity.stages.report.pictures`;
- `files(options)`, if options name the user's files: their paths. Changing one makes the result outdated.

A configuration imports every file here, so import torch, pandas and the like inside the functions that need them.
Options that also are a section of the configuration, such as `probe`, are declared there.
"""

ORDER = ("probe", "accuracy", "collapse", "cluster_probe", "transferability", "robustness", "features")
