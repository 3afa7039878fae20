"""`granularity spaces`: the comparison, what it costs, and its checks - which must be able to fail."""

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from granularity.base.errors import GranularityError
from granularity.cli import app
from granularity.config.options import Config
from granularity.learning.networks.network import forward_flops
from granularity.learning.options import Model
from granularity.look import spaces as comparison
from granularity.stages.pixels.options import Pixels
from granularity.store import place
from granularity.store.artifact import Artifact
from support import data_sets, tasks, writing
from support.small_wordnet import SMALL

GRID = ["superclass-2", "superclass-4"]


@pytest.fixture(scope="module")
def condition(tmp_path_factory, make_samples, make_array) -> Path:
    """One condition of 80 images with a space of each kind that a check looks at."""
    folder = tmp_path_factory.mktemp("results") / "train-all"
    rng = np.random.default_rng(0)
    kind = rng.choice(list("ab"), 80)
    ranks = {
        "kind": kind.tolist(),
        "species": [name + str(i) for name, i in zip(kind, rng.integers(3, size=80), strict=True)],
    }
    samples = make_samples(folder / "samples", ["train"] * 80, ranks, "kind", source="folder")
    vectors = rng.normal(size=(80, 4)).astype(np.float32)
    embed = make_array(folder / "embed", "embed", samples, vectors)
    for name in ("whole-5", *GRID):
        tasks.run("cluster", folder / "cluster" / name, {"clustering": name}, samples=samples, embed=embed)
    for name, family, params in (
        ("target", "manual", {"rank": "kind"}),
        ("manual-species", "manual", {"rank": "species"}),
        ("random-20", "random", {"classes": 20}),
        ("random-superclass-3", "random_superclass", {"per_superclass": 3}),
        ("kmeans-5", "kmeans", {"clusterings": ["whole-5"]}),
        ("kmeans-superclass-2", "kmeans_superclass", {"clusterings": ["superclass-2"]}),
        ("rebalanced-6", "rebalanced", {"clusterings": GRID, "threshold": 6}),
        ("rebalanced-G5", "rebalanced", {"clusterings": GRID, "classes": 5}),
    ):
        clusters = [folder / "cluster" / one for one in params.get("clusterings", ())]
        options = {"space": name, "family": family, "params": params}
        tasks.run("hierarchy", folder / "hierarchy" / name, options, samples=samples, cluster=clusters)
    return folder


@pytest.fixture(scope="module")
def found(condition) -> dict:
    (one,) = comparison.compare(condition.parent, Config())
    return one


def test_cost_is_that_of_the_head(found):
    network, pixels = Model(), Pixels()
    backbone, width = forward_flops(network, pixels)
    assert width == 32 and found["spaces"][0]["space"] == "target"
    for row in found["spaces"]:
        assert row["head_parameters"] == 33 * row["granularity"]
        assert row["cost"] == pytest.approx((backbone + 64 * row["granularity"]) / (backbone + 64 * 2))


def test_flops_of_a_known_network():
    """ResNet-50 at 224 px is 4.09 billion multiply-adds (He et al., torchvision), its head 2.05 million of them."""
    model = Model(name="resnet50", args=None, stem="timm")
    flops, width = forward_flops(model, Pixels(size=224, mode="RGB"))
    assert width == 2048
    assert flops == pytest.approx(2 * (4.09e9 - 2.05e6), rel=0.005)


def test_the_text_is_a_table_with_its_legend(found):
    text = comparison.describe([found])
    lines = text.splitlines()
    assert "80 training images, target kind, finest rank species" in text.replace("\n    ", " ")
    for heading in ("label space", "G", "median", "starved", "refines", "NMI target", "head weights", "cost"):
        assert heading in text
    assert max(map(len, lines[1:])) <= 80
    assert "labels/image" not in text  # every image has one
    assert "Rebalanced from superclass-2, superclass-4, by threshold\n  from 0: G = 8" in text
    assert "FAILS" not in text


def test_what_is_said_of_predictions_is_what_the_evidence_says():
    root = Path(__file__).parents[2]
    record = runpy.run_path(str(root / "docs/findings/predicting_gains.py"))
    found = record["left_out"](record["correlations"](pd.read_csv(root / "docs/findings/evidence.csv")))
    assert found.index[0] == "nmi_finest"
    assert f"NMI finest has done best so far: rank correlation {found.iloc[0]:.2f}" in comparison.LEGEND


def test_a_folder_without_label_spaces_is_refused(tmp_path):
    with pytest.raises(GranularityError, match="contains no results of hierarchy; make them with: snakemake hierarchy"):
        comparison.compare(tmp_path, Config())


# ---------------------------------------------------------------- checks that fail


def verdicts(condition: Path, spaces: list[Artifact]) -> dict[str, str]:
    return {
        f"{check.id} {check.what.split(':')[0]}": check.verdict
        for check in comparison.checks(Artifact.open(condition / "samples"), spaces)
        if check.verdict != "note"
    }


def spoilt(condition: Path, tmp_path: Path, name: str, labels: np.ndarray, **properties) -> Artifact:
    """A label space with other labels than it was made with."""
    good = Artifact.open(condition / "hierarchy" / name)
    place = tmp_path / "hierarchy" / name
    inputs, own = good.lineage(), writing.unlike_any()
    with writing.create(place, "hierarchy", ("granularity.base.seeds",), inputs, good.params, **own) as out:
        ids = good.table("labels.parquet")["sample_id"]
        out.table("labels.parquet", pd.DataFrame({"sample_id": ids, "label": labels}))
        out.json("properties.json", {**good.json("properties.json"), **properties})
        out.table(
            "threshold_sweep.parquet",
            pd.DataFrame({"threshold_from": [0, 7], "threshold_to": [6, None], "granularity": [8, 4]}),
        )
    return Artifact.open(place)


def test_all_hold_on_what_the_stage_made(condition):
    spaces = [Artifact.open(folder) for folder in place.find(condition / "hierarchy")]
    found = verdicts(condition, spaces)
    assert set(found.values()) == {"holds"}
    assert {name.split()[0] for name in found} == {"L5", "L6", "L7"}


@pytest.mark.parametrize(
    ("space", "properties"),
    [
        ("kmeans-superclass-2", {"straddling_share": 1.0, "straddling_classes": 1.0}),
        ("kmeans-superclass-2", {"empty_classes": 1}),
        ("kmeans-5", {}),
    ],
)
def test_l5_and_l6_fail_where_they_should(condition, tmp_path, space, properties):
    bad = spoilt(condition, tmp_path, space, np.zeros(80, dtype=np.int32), **properties)
    assert verdicts(condition, [bad])[f"{'L6' if space == 'kmeans-5' else 'L5'} {space}"] == "FAILS"


def test_clusters_that_straddle_no_superclass_are_a_note_and_no_failure(condition, tmp_path):
    """An embedding may tell the superclasses apart, as that of the default run does: captions name the digits."""
    good = Artifact.open(condition / "hierarchy" / "kmeans-5")
    pure = spoilt(condition, tmp_path, "kmeans-5", good.table("labels.parquet")["label"], straddling_classes=0.0)
    found = comparison.checks(Artifact.open(condition / "samples"), [pure])
    assert [(check.id, check.verdict) for check in found] == [("L6", "holds"), ("L6", "note")]
    assert found[1].found == "0.0%"


@pytest.mark.parametrize("grid", [1, 2, 4])
def test_l7_fails_for_any_other_choice(condition, tmp_path, grid):
    good = Artifact.open(condition / "hierarchy" / "rebalanced-6")
    chosen = set(good.summary["clusters_of_superclass"].values())
    kinds = pd.read_parquet(condition / "samples" / "samples.parquet")["kind"].cat.codes.to_numpy()
    cluster = condition / "cluster" / f"superclass-{grid}"
    labels = kinds if grid == 1 else Artifact.open(cluster).table("assignment.parquet")["cluster"].to_numpy()
    verdict = verdicts(condition, [spoilt(condition, tmp_path, "rebalanced-6", labels.astype(np.int32))])
    assert verdict["L7 rebalanced-6"] == ("holds" if chosen == {grid} else "FAILS")


def test_a_failing_check_is_the_commands_exit_status(condition, tmp_path, monkeypatch):
    words = ["spaces", str(condition.parent), "-f", str(Path(__file__).parents[2] / "config/config.yaml")]
    assert CliRunner().invoke(app, words).exit_code == 0
    bad = comparison.check("L9", "made up", 1, 2)
    monkeypatch.setattr(comparison, "checks", lambda samples, spaces: [bad])
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "L9 FAILS made up: 2 (expected 1)" in result.output


# ---------------------------------------------------------------- L3 on a stand-in


@pytest.fixture
def small21k(tmp_path) -> Path:
    """Three synsets of a small WordNet as archives: an animal, a working dog, an artifact."""
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "data.noun").write_text(SMALL)
    data_sets.packed(tmp_path / "tars", ("n00000010", "n00000030", "n00000020"))
    options = {"source": "imagenet21k", "root": str(tmp_path / "tars"), "wordnet": str(tmp_path / "dict")}
    options |= {"ranks": ["living_thing", "synset"], "target": "living_thing", "validation": 3}
    folder = tmp_path / "train-all"
    tasks.run("samples", folder / "samples", options)
    space = {"space": "wordnet-1", "family": "wordnet", "params": {"level": 1}}
    tasks.run("hierarchy", folder / "hierarchy" / "wordnet-1", space, samples=folder / "samples")
    return folder


def test_l3_reports_the_difference(small21k):
    """Nine images are not 12.7 million: the check must say how many there are, and fail."""
    samples = Artifact.open(small21k / "samples")
    found = comparison.checks(samples, [Artifact.open(small21k / "hierarchy" / "wordnet-1")])
    assert [check.id for check in found] == ["L3"] * 4  # and no L1: this is not the list of 21,843
    table = samples.table("samples.parquet")
    for check, kind, split in zip(found, ["living thing", "other"] * 2, ["train", "train", "val", "val"], strict=True):
        mine = ((table["living_thing"] == kind) & (table["split"] == split)).sum()
        assert (check.found, check.verdict) == (str(mine), "FAILS")
    assert [check.expected for check in found] == ["5448549", "7294772", "43745", "58655"]


def test_several_labels_an_image_are_shown(small21k):
    (one,) = comparison.compare(small21k.parent, Config())
    assert one["spaces"][0]["labels_per_image"] > 1
    assert "labels/image" in comparison.describe([one])
    assert one["spaces"][0]["cost"] is None  # there is no target to compare with
