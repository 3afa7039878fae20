"""A run is made once: whatever is added to a finished configuration, only what is new is trained and measured."""

import json

import pandas as pd
import pytest

from granularity.store.artifact import Artifact
from support.tiny_chain import TINY


@pytest.fixture
def checkout(finished_run):
    return finished_run("runs-once", lambda checkout: configured(checkout, "base"))


def configured(checkout, file: str, **over) -> tuple[str, ...]:
    place = checkout.path(f"{file}.yaml")
    place.write_text(json.dumps(TINY | over))
    return "--configfile", place.name


def runs_of(checkout) -> dict[str, dict]:
    """The single runs in the store, by their key: what decides each."""
    made = (
        Artifact.peek(folder)
        for kind in ("run", "measured")
        for folder in checkout.path(f"results/.store/{kind}").iterdir()
    )
    return {one.manifest["key"]: {"kind": one.kind, **one.manifest["options"]} for one in made}


def stages(runs: list[dict]) -> dict[str, int]:
    return pd.Series([one.get("stage", one["kind"]) for one in runs], dtype=str).value_counts().to_dict()


def errors(checkout, name: str = "tiny") -> pd.Series:
    jobs = checkout.path(f"results/{name}/train-60/finetune/target/resnet18").glob("*.stamp")
    tables = [Artifact.open(stamp).table("runs.parquet") for stamp in sorted(jobs)]
    return pd.concat(tables).set_index("run_id")["val_error"]


def test_what_is_added_alone_is_trained(checkout):
    """A label space, then a seed: each trains its own networks, and all other numbers stay as they are."""
    before, numbers = runs_of(checkout), errors(checkout)
    checkout.snakemake(*configured(checkout, "wider", label_spaces=TINY["label_spaces"] | {"random": [5, 7]}))
    after = runs_of(checkout)
    assert before.keys() <= after.keys()
    new = [after[key] for key in after.keys() - before.keys()]
    assert stages(new) == {"pretrain": 1, "finetune": 2, "measured": 1}
    assert errors(checkout)[numbers.index].equals(numbers) and len(errors(checkout)) == len(numbers) + 2
    seeds = {"pretrain": 2, "finetune": 2}
    checkout.snakemake(*configured(checkout, "seeds", seeds=seeds))
    third = runs_of(checkout)
    new = [third[key] for key in third.keys() - after.keys()]
    assert {one["pretrain_seed"] for one in new if "pretrain_seed" in one} <= {1, 2, 3}  # of the target, one pass
    assert errors(checkout)[numbers.index].equals(numbers)


def test_another_configuration_with_the_same_arms_trains_nothing(checkout):
    """Of another name, with other jobs, and half of the label spaces."""
    before, numbers = runs_of(checkout), errors(checkout)
    jobs = dict.fromkeys(["pretrain", "finetune", "measure"], "run")
    half = {"name": "half", "label_spaces": TINY["label_spaces"] | {"kmeans": []}, "jobs": jobs}
    checkout.snakemake(*configured(checkout, "half", **half))
    assert runs_of(checkout) == before
    found = {path.name for path in checkout.path("results/half/train-60/pretrain/resnet18").iterdir()}
    assert len(found) > 4  # a job each
    shared = errors(checkout, "half")
    assert len(shared) and shared.equals(numbers[shared.index])


def test_a_damaged_run_is_put_aside_and_trained_again_and_gc_keeps_what_results_hold(checkout):
    numbers = errors(checkout)
    assert "results/.store/run" not in checkout.run("granularity", "gc")
    key, about = next((key, one) for key, one in runs_of(checkout).items() if one.get("stage") == "finetune")
    file = checkout.path(f"results/.store/run/{key}/run.json")
    file.chmod(0o644)
    file.write_text("{}")
    wider = TINY["label_spaces"] | {"random": [5, 7]}
    output = checkout.snakemake(*configured(checkout, "wider", label_spaces=wider))
    assert runs_of(checkout)[key] == about and errors(checkout)[numbers.index].equals(numbers), output
