"""The whole chain at its very smallest, by the commands that the rules run, in this process: some seconds in all."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from granularity import cli
from granularity.config.options import Config
from granularity.plan import commands
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import place
from support.checkout import Checkout

WORLD = "label_granularity"

TINY = {
    "name": "tiny",
    "device": "cpu",
    "conditions": [{"train_size": 60}],
    "seeds": {"pretrain": 1, "finetune": 2},
    "samples": {"validation": 30},
    "encoder": {"model": str(Path(__file__).parents[2] / "config/encoders/digits-tiny.json")},
    "label_spaces": {"random": [5], "kmeans": [6], "rebalanced": {"clusters": [2, 3], "thresholds": [3]}},
    "model": {"args": {"layers": [1, 1, 0, 0], "channels": [8, 8, 8, 8], "stem_width": 4, "stem_type": "deep"}},
    "pretrain": {"batch_size": 20, "epochs": 1, "warmup_epochs": 0.5},
    "finetune": {"batch_size": 20, "epochs": 1, "warmup_epochs": 0.5},
    "jobs": {"pretrain": "condition", "finetune": "condition"},
    "duplicates": {"by": "pixels"},
    "probe": {"l2": [0.1]},
    "report": {"montage_clusters": 2},
}
TINY["encoder"] |= {"captions": {"epochs": 1, "batch_size": 20}}


class Step(NamedTuple):
    """One artifact: its kind, the folder it lies in, and the command that makes it."""

    kind: str
    folder: Path
    words: list[str]

    @property
    def given(self) -> list[str]:
        """The words but for those of the output."""
        return self.words[:-2]

    def run(self, output: Path | None = None) -> None:
        words = self.words if output is None else [*self.words[:-1], str(output)]
        cli.app(words, standalone_mode=False)


def steps(config: Config, *worlds: str) -> list[Step]:
    """Every step of a configuration's chain, in an order that can be run; with worlds of theory of the size `tiny`."""
    plan = Plan(config)
    found = []
    for stage in STAGES:
        for job in plan.jobs(stage):
            if {job.values.get("world"), job.values.get("study")} <= {None, *worlds}:
                words = commands.words(plan, job)[1:]
                if stage == "theory":
                    words = [word.replace('"size":"quick"', '"size":"tiny"') for word in words]
                found.append(Step(stage, plan.folder(job), words))
    return found


def configure(checkout: Checkout, **over) -> list[str]:
    """Write the configuration of a chain of one label space into a checkout; returns what tells Snakemake of it."""
    values = TINY | {"encoder": TINY["encoder"] | {"model": "config/encoders/digits-tiny.json"}}
    values["label_spaces"] = TINY["label_spaces"] | {"manual": [], "random": [], "rebalanced": {"thresholds": []}}
    checkout.path("tiny.yaml").write_text(json.dumps(values | over))
    return ["--configfile", "tiny.yaml"]


def snakemake(checkout: Checkout, *words: str, **more) -> str:
    return checkout.snakemake(*words, "--configfile", "tiny.yaml", **more)


@contextlib.contextmanager
def tiny_world() -> Iterator[None]:
    """A world of theory has a size `tiny`: the smallest settings that still have all that its figures show."""
    from granularity.stages.theory.worlds import label_granularity

    fine = {"eta": 0.8, "neurons": "five", "finetune_steps": 3}
    settings = []
    for scale, k in (("A", 4), ("B", 8)):
        size = {"d": 24, "k": k, "seeds": 1, "steps": 20}
        settings.append(label_granularity.Settings(**size, name=f"{scale} coarse", stop_loss=0.2))
        settings.append(label_granularity.Settings(**size, **fine, g=k, name=f"{scale} fine"))
    names = ("granularity", "random", "equal counts")
    quick = [one for one in label_granularity.SIZES["quick"] if one.name.startswith(names)]
    settings += [one.model_copy(update={"seeds": 1, "steps": 5}) for one in quick]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(label_granularity.SIZES, "tiny", settings)
        yield


@contextlib.contextmanager
def harmed(name: Path) -> Iterator[None]:
    """A result in whose folder one may do as one likes, and to its name and its stamp; afterwards it is as it was."""
    folder, stamp, link = name.resolve(), place.stamp_of(name), os.readlink(name)
    copy, stamped = folder.with_name(f".copy-{folder.name}"), stamp.read_bytes()
    shutil.copytree(folder, copy)
    for file in filter(Path.is_file, folder.rglob("*")):
        file.chmod(0o644)  # for who is not root
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        copy.rename(folder)
        name.unlink(missing_ok=True)
        name.symlink_to(link)
        stamp.write_bytes(stamped)
