"""Measures, found by name: what stage `measure` finds of a network; each is one file, here or of the user's own.

A file of the user's own says `EXTENDS = "measure"`, and the configuration names it under `extensions`. A measure holds

- `Options`: its options, a :class:`granularity.base.section.Section`;
- `measure(view, options, seed)`: what it finds of one network, a function of its arguments alone. `view` is a
  :class:`granularity.stages.measure.view.View`, `seed` the base seed. It gives triples (split, key, value), one by one
  or as a table of these columns. A value is a number, a row of `values.parquet`; or a NumPy array, which becomes
  `arrays/NETWORK/SPLIT/KEY.npy`. A key has parts where it is about one of several things: `digit/linear`;
- `LEAST_RANKS`, where it needs several ranks: how many, which planning asks for;
- `files(options)`, where options name the user's files: their paths. A change to one makes the result again.

A configuration imports every file here: so import torch, pandas and the like in the functions that need them. Options
that take a whole section of the configuration, such as `probe`, are named there.
"""

ORDER = ("probe", "accuracy", "collapse", "cluster_probe", "transferability", "robustness", "features")
