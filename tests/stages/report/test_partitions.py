"""Label spaces that are one partition, found by their labels: made by the stage itself."""

import numpy as np
import pandas as pd

from granularity.stages.report.conditions import first_alike
from support import tasks


def test_the_same_partition_is_found_under_any_name_and_numbering(tmp_path, make_samples):
    kinds, thirds = np.random.default_rng(0).choice(["a", "b", "c"], size=60).tolist(), [f"{i % 3}" for i in range(60)]
    ranks = {"kind": kinds, "renamed": [{"a": "z", "b": "y", "c": "x"}[kind] for kind in kinds], "third": thirds}
    samples = make_samples(tmp_path / "samples", ["train"] * 60, ranks, "kind")
    spaces = {}
    for name in ranks:  # the second has the classes of the first, numbered the other way round
        options = {"space": name, "family": "manual", "params": {"rank": name}}
        spaces[name] = tasks.run("hierarchy", tmp_path / name, options, samples=samples)
    found = first_alike(spaces, {name: space.table("classes.parquet") for name, space in spaces.items()})
    assert found == {"kind": "kind", "renamed": "kind", "third": "third"}
    # Equal sizes alone are not enough: the labels decide.
    assert first_alike(spaces, dict.fromkeys(spaces, pd.DataFrame({"size": [20, 20, 20]}))) == found
