"""A run is made once: whatever is added to a finished configuration, only what is new is trained and measured."""

import pandas as pd
import pytest

from granularity.store import place
from granularity.store.artifact import Artifact
from support import tiny_chain

pytestmark = pytest.mark.workflow

SPACES = tiny_chain.TINY["label_spaces"] | {"manual": [], "rebalanced": {"thresholds": []}, "random": [5, 7]}


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
    """Label spaces, then a seed: each trains its own networks, and all other numbers stay as they are.

    Another configuration of the same arms, with other jobs and without some label spaces, trains nothing.
    """
    before, numbers = runs_of(checkout), errors(checkout)
    assert place.needless(checkout.path("results"), 0) == []
    tiny_chain.configure(checkout, label_spaces=SPACES)
    tiny_chain.snakemake(checkout)
    after, wider = runs_of(checkout), errors(checkout)
    assert before.keys() <= after.keys()
    new = [after[key] for key in after.keys() - before.keys()]
    assert stages(new) == {"pretrain": 2, "finetune": 4, "measured": 2}
    assert wider[numbers.index].equals(numbers) and len(wider) == len(numbers) + 4
    tiny_chain.configure(checkout, seeds={"pretrain": 2, "finetune": 2})
    tiny_chain.snakemake(checkout)
    third = runs_of(checkout)
    new = [third[key] for key in third.keys() - after.keys()]
    assert {one["pretrain_seed"] for one in new if "pretrain_seed" in one} <= {1, 2, 3}  # of the target, one pass
    assert errors(checkout)[numbers.index].equals(numbers)
    jobs = dict.fromkeys(["pretrain", "finetune", "measure"], "run")
    tiny_chain.configure(checkout, name="half", label_spaces=SPACES | {"kmeans": []}, jobs=jobs)
    tiny_chain.snakemake(checkout)
    assert runs_of(checkout) == third
    found = {path.name for path in checkout.path("results/half/train-60/pretrain/resnet18").iterdir()}
    assert len(found) > 4  # a job each
    shared = errors(checkout, "half")
    assert len(shared) == 6 and shared.equals(wider[shared.index])
