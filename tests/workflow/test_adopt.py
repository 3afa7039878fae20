"""Results of other code are accepted on evidence: an edit that changes nothing, and one that does."""

import json
import os
import sys

import pytest

from granularity.store.artifact import Artifact
from support.checkout import Checkout, wait

pytestmark = pytest.mark.workflow

CONFIG = {
    "name": "small",
    "conditions": [{"train_size": 200}],
    "label_spaces": {"random": [5]},
    "seeds": {"draws": 2},
}
SPACES = "results/small/draw-{}/train-200/hierarchy/{}"
GIVEN = ("--configfile", "small.yaml")
FILES = ("-f", "small.yaml")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    checkout = Checkout(tmp_path_factory.mktemp("made"))
    checkout.path("small.yaml").write_text(json.dumps(CONFIG))
    checkout.snakemake("hierarchy", *GIVEN)
    return checkout


def edit(checkout, old, new):
    path = checkout.path("workflow/granularity/stages/hierarchy/families/random.py")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def results(checkout):
    both = [(draw, space) for draw in (0, 1) for space in ("random-5", "target")]
    return {one: Artifact.open(checkout.path(SPACES.format(*one))) for one in both}


def generations(checkout):
    return {path.name for path in checkout.path("results/.store/hierarchy").iterdir()}


def adopt(checkout, code=0):
    """By the checkout's own program: another that PATH has first must not be asked for the evidence."""
    other = checkout.path("other/granularity")
    other.parent.mkdir(exist_ok=True)
    other.write_text("#!/bin/sh\nexit 9\n")
    other.chmod(0o755)
    path = f"{other.parent}{os.pathsep}{checkout.environment['PATH']}"
    process = checkout.start(sys.executable, "-m", "granularity", "adopt", *FILES, PATH=path)
    output, _ = wait(process, 300)
    assert process.returncode == code, output
    return output


def status(checkout):
    jobs = json.loads(checkout.run("granularity", "status", *FILES, "--json"))["jobs"]
    return {(job["folder"].split("/")[2], job["space"]): job["state"] for job in jobs if job["stage"] == "hierarchy"}


def test_an_edit_that_changes_nothing_is_adopted_on_evidence(made):
    before = results(made)
    assert "nothing to adopt" in adopt(made)
    edit(made, "rng = ", "draws = ")  # another name, the same labels
    edit(made, "rng.", "draws.")
    states = {"random-5": "outdated", "target": "done", "manual-digit": "done"}
    assert status(made) == {(f"draw-{draw}", space): state for draw in (0, 1) for space, state in states.items()}
    said = adopt(made)  # of both draws, on one piece of evidence
    assert "2 results; recomputing" in said and "2 results adopted" in said
    after = results(made)
    assert after[0, "target"].folder == before[0, "target"].folder
    assert {after[name].digest == before[name].digest != after[name].folder for name in before} == {True}
    (name,) = {name for name, one in after.items() if "adopted" in one.manifest}
    assert name[1] != "target"  # and of the two others one is the evidence, made by the new code
    old, new = before[name].manifest, after[name].manifest
    assert new["adopted"]["from"] == {key: old[key] for key in ("key", "code", "packages")}
    assert new["adopted"]["evidence"]["key"] in generations(made) and new["adopted"]["by"] and new["adopted"]["at"]
    assert (after[name].folder / "labels.parquet").samefile(before[name].folder / "labels.parquet")
    assert f"adopted   by {new['adopted']['by']}" in made.run("granularity", "inspect", SPACES.format(*name))
    assert "all sound" in made.run("granularity", "verify", "results")
    assert set(status(made).values()) == {"done"}

    # Snakemake runs the jobs that it planned, and each finds its result.
    there = generations(made)
    made.snakemake("hierarchy", *GIVEN)
    assert generations(made) == there
    assert "Nothing to be done" in made.snakemake("-n", "hierarchy", *GIVEN)


def test_an_edit_that_changes_a_result_is_refused_even_where_it_was_touched(made):
    made.snakemake("hierarchy", *GIVEN)
    before = results(made)
    edit(made, '"random", classes', '"random", classes + 1')
    made.snakemake("hierarchy", "--touch", *GIVEN)
    assert "make_hierarchy" in made.snakemake("-n", "hierarchy", *GIVEN)  # manifests decide, not who touched what
    assert status(made)["draw-0", "random-5"] == "outdated"
    said = adopt(made, code=1)
    assert "the recomputed result differs" in said and "nothing of this change is adopted" in said
    assert {name: one.folder for name, one in results(made).items()} == {n: one.folder for n, one in before.items()}
    assert status(made)["draw-0", "random-5"] == "outdated"
