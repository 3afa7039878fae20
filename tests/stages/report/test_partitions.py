"""Label spaces that are one partition, found by their labels: made by the stage itself."""

import numpy as np
import pandas as pd

from granularity.stages.report.conditions import first_alike
from support import tasks


def test_the_same_partition_is_found_under_any_name_and_numbering(tmp_path, make_samples, make_array):
    rng = np.random.default_rng(0)
    kinds, thirds = rng.choice(["a", "b", "c"], size=60), np.arange(60) % 3
    ranks = {"kind": kinds.tolist(), "renamed": [{"a": "z", "b": "y", "c": "x"}[kind] for kind in kinds]}
    samples = make_samples(tmp_path / "samples", ["train"] * 60, ranks | {"third": [f"{n}" for n in thirds]}, "kind")
    embed = make_array(tmp_path / "embed", "embed", samples, rng.normal(size=(60, 4)).astype(np.float32))
    cluster = tasks.run("cluster", tmp_path / "whole-5", {"clustering": "whole-5"}, samples=samples, embed=embed).path

    def made(name: str, family: str, **params):
        inputs = {"cluster": cluster, "embed": embed} if "clusterings" in params else {}
        options = {"space": name, "family": family, "params": params}
        return tasks.run("hierarchy", tmp_path / name, options, samples=samples, **inputs)

    merged = {"direction": "bottomup", "clusterings": ["whole-5"]}
    spaces = {
        "target": made("target", "manual", rank="kind"),
        "renamed": made("renamed", "manual", rank="renamed"),  # the same classes, numbered the other way round
        "third": made("third", "manual", rank="third"),
        "kmeans-5": made("kmeans-5", "kmeans", clusterings=["whole-5"]),
        "bottomup-5": made("bottomup-5", "nested", classes=5, **merged),
        "bottomup-3": made("bottomup-3", "nested", classes=3, **merged),
        "each": made("each", "random_instance"),
    }
    classes = {name: space.table("classes.parquet") for name, space in spaces.items()}
    found = first_alike(spaces, classes)
    own = {name: name for name in spaces}
    assert found == own | {"renamed": "target", "bottomup-5": "kmeans-5"}
    # Equal sizes alone are not enough: the labels decide.
    even = pd.DataFrame({"size": [20, 20, 20]})
    assert first_alike(spaces, dict.fromkeys(spaces, even)) == found
