"""Several networks, objectives, transfers and measures in one configuration, through Snakemake to one report."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from granularity.store.artifact import Artifact

pytestmark = pytest.mark.workflow

SMALL = {"batch_size": 20, "epochs": 2, "warmup_epochs": 0.5}
ELSEWHERE = {"samples": {"validation": 1500}, "train_size": 100}
STUDIES = ["neural_collapse_images", "granularity_one_pass", "granularity_t3", "granularity_t6"]
CONFIG = {
    "name": "lists",
    "conditions": [{"train_size": 60}],
    "encoder": {"captions": {"epochs": 1, "batch_size": 20}},
    "model": {"args": {"channels": [8, 8, 8, 8], "stem_width": 4}},
    "pixels": {"format": "jpeg"},
    "pretrain": SMALL | {"precision": "bfloat16", "micro_batch": 10},
    "finetune": SMALL,
    "networks": [
        {"name": "plain", "keep": [0, 1]},
        {"name": "student", "objective": {"name": "distil", "options": {"loss": "mse"}}, "recipe": {"lr": 0.05}},
    ],
    "transfers": [
        {"name": "same", "keep": True},
        {"name": "early", "from_epoch": 1, "of": ["plain"]},
        {"name": "elsewhere", "data": ELSEWHERE, "of": ["plain"]},
        {"name": "probed", "data": ELSEWHERE, "of": ["plain"], "recipe": {"freeze_backbone": True}},
    ],
    "measures": [
        {"name": "probe", "of": ["backbones"]},
        {
            "name": "scores",
            "measure": "accuracy",
            "of": ["checkpoints", "untrained", "finetuned"],
            "splits": ["train", "val"],
        },
        {"name": "collapse", "of": ["checkpoints", "backbones"], "splits": ["train", "val"]},
        {"name": "cluster_probe", "of": ["backbones"]},
        {"name": "transferability", "of": ["backbones"], "ranks": ["digit"]},
        {"name": "features", "of": ["untrained", "backbones"]},
    ],
    "studies": STUDIES,
    "seeds": {"pretrain": 1, "finetune": 2},
    "jobs": dict.fromkeys(("pretrain", "finetune", "measure"), "condition"),
}
CHAIN = "results/lists/train-60"


def configure(checkout):
    checkout.path("lists.yaml").write_text(json.dumps(CONFIG))
    return ["--configfile", "lists.yaml"]


@pytest.fixture(scope="module")
def finished(finished_run):
    return finished_run("lists", configure)


def table(checkout, name):
    return pd.read_parquet(checkout.path(name))


def test_everything_is_made_and_sound(finished):
    assert "all sound" in finished.run("granularity", "verify", "results")
    assert "Nothing to be done" in finished.snakemake("-n", "--configfile", "lists.yaml")
    page = finished.path("results/lists/report/report.html").read_text()
    for word in ("plain", "student", "same", "elsewhere"):
        assert word in page


def test_the_atlas_has_every_measure_of_each_network(finished):
    finished.snakemake("atlas", "--configfile", "lists.yaml")
    made = pd.read_csv(finished.path("results/lists/shown/atlas/atlas.csv"))
    measured = table(finished, f"{CHAIN}/measure/probe/plain/all/values.parquet").groupby("key")["value"].mean()
    arms = made[made["key"] == "probe/digit/linear"].set_index("arm")["value"]
    arms = arms.drop(["distil", "untrained"], errors="ignore")
    assert arms.mean() == pytest.approx(measured["digit/linear"], rel=1e-4)
    assert {"untrained", "target"} <= set(made["arm"]) and {"G", "learnt", "meaning"} <= set(made["key"])
    assert "probe/digit/linear" in finished.path("results/lists/shown/atlas/index.html").read_text()
    said = finished.run("granularity", "atlas", "results/lists", "--key", "colour", code=1)
    assert "'colour' was not measured; there are" in said


def test_an_atlas_of_two_folders_says_how_alike_their_networks_are(finished):
    shutil.copytree(finished.path("results/lists"), finished.path("results/again"), symlinks=True)
    finished.run("granularity", "atlas", "results/lists", "results/again", "--to", "both")
    made = pd.read_csv(finished.path("both/atlas.csv")).groupby("key")["value"]
    for key in ("agreement/cka", "agreement/knn", "agreement/procrustes"):
        assert made.get_group(key).between(1 - 1e-6, 1 + 1e-6).all()  # the same networks
    hard, other = (made.get_group(f"error/{part} (same)").mean() for part in ("hardest tenth", "other images"))
    assert hard > other


def test_an_objective_without_labels_has_no_granularity(finished):
    (row,) = table(finished, f"{CHAIN}/pretrain/student/all/runs.parquet").to_dict("records")
    assert row["space"] == row["family"] == "distil" and pd.isna(row["granularity"]) and pd.isna(row["val_error"])
    assert not finished.path(f"{CHAIN}/finetune/elsewhere/student").exists()


def test_epochs_are_kept_and_measured_and_so_is_the_untrained_network(finished):
    kept = table(finished, f"{CHAIN}/pretrain/plain/all/checkpoints.parquet")
    assert set(kept["epoch"]) == {0, 1, 2}
    values = table(finished, f"{CHAIN}/measure/scores/plain/all/values.parquet")
    assert {0, 1} <= set(values["epoch"]) and set(values["split"]) == {"train", "val"}
    runs = table(finished, f"{CHAIN}/measure/scores/plain/all/runs.parquet")
    assert "same" in set(runs["transfer"].dropna())


def test_collapse_and_clusters_are_measured_of_each_epoch_that_was_kept(finished):
    values = table(finished, f"{CHAIN}/measure/collapse/plain/all/values.parquet")
    found = values[values["key"] == "loops/digit/r1"]
    assert set(found["epoch"]) == {1, 2} and (found["value"] >= 1).all()
    (file,) = finished.path(f"{CHAIN}/measure/collapse/plain/all/arrays").glob("target-*@2/train/digit/distances.npy")
    assert np.load(file).shape == (10, 10)
    values = table(finished, f"{CHAIN}/measure/cluster_probe/plain/all/values.parquet")
    assert {"purity", "error", "error_of_labels"} <= set(values["key"])
    values = table(finished, f"{CHAIN}/measure/transferability/plain/all/values.parquet")
    assert {f"digit/{score}" for score in ("logme", "h_score", "leep", "nce")} == set(values["key"])


def test_a_transfer_is_scored_on_the_other_data(finished):
    here = table(finished, f"{CHAIN}/finetune/same/plain/all/predictions.parquet")
    there = table(finished, f"{CHAIN}/finetune/elsewhere/plain/all/predictions.parquet")
    assert (len(here), len(there)) == (897, 1500)
    inputs = Artifact.peek(finished.path(f"{CHAIN}/finetune/elsewhere/plain/all")).manifest["inputs"]
    assert inputs["samples"]["name"].endswith("data-elsewhere/samples")


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_gives_verdicts_or_says_why_not(finished, study):
    checks = pd.read_csv(finished.path(f"results/lists/verdicts/{study}/checks.csv"))
    assert len(checks) and checks["verdict"].str.match("holds|fails|not tested|reported").all()
    assert checks.loc[checks["verdict"] == "not tested", "why"].notna().all()


def test_two_transfers_to_the_same_images_are_judged_together(finished):
    checks = pd.read_csv(finished.path("results/lists/verdicts/granularity_t3/checks.csv"))
    assert len(checks) == 5 and checks["why"].str.contains("1 WordNet levels or human ranks", regex=False).all()


def test_a_transfer_starts_from_the_epoch_that_it_names(finished):
    """Epochs 1 and 2 end in different networks; and the study of checkpoints finds the former."""
    early, late = (table(finished, f"{CHAIN}/finetune/{name}/plain/all/runs.parquet") for name in ("early", "same"))
    assert not set(early["run_id"]) & set(late["run_id"]) and not early["train_loss"].equals(late["train_loss"])
    checks = pd.read_csv(finished.path("results/lists/verdicts/granularity_t6/checks.csv"))
    assert checks["measured"].notna().tolist() == [True, False] and "no interval" in checks["why"][0]


def test_another_configuration_goes_on_from_a_backbone_of_this_one(finished):
    runs = table(finished, f"{CHAIN}/pretrain/plain/all/runs.parquet")
    row = runs[runs["space"] == "manual-digit"].iloc[0]
    more = CONFIG | {"name": "more", "transfers": [], "measures": [], "studies": []}
    more["networks"] = [{"name": "on", "init": {"results": "results/lists", "run": row["run_id"]}}]
    finished.path("more.yaml").write_text(json.dumps(more))
    finished.snakemake("pretrain", "--configfile", "more.yaml")
    folder = finished.path("results/more/train-60/pretrain/on/all")
    assert Artifact.open(folder).manifest["inputs"]["init"]["digest"]


def test_all_of_it_was_made_from_images_kept_as_jpeg(finished):
    """In micro-batches, of bfloat16."""
    pixels = Artifact.open(finished.path(f"{CHAIN}/pixels"))
    assert pixels.facts["format"] == "jpeg" and "shards/00000.jpegs" in pixels.manifest["files"]
    recipe = Artifact.open(finished.path(f"{CHAIN}/pretrain/plain/all")).params["recipe"]
    assert (recipe["precision"], recipe["micro_batch"]) == ("bfloat16", 10)
    status = finished.run("granularity", "status", "--json", "-f", "lists.yaml")
    assert {job["state"] for job in json.loads(status)["jobs"]} == {"done"}
