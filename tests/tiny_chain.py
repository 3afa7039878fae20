"""The whole chain at its very smallest, by the commands that the rules run, in this process: some seconds in all."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from granularity import cli
from granularity.config.options import Config
from granularity.plan import jobs
from granularity.store import artifacts, manifests
from granularity.store.artifacts import MANIFEST

WORLD = "label_granularity"

TINY = {
    "name": "tiny",
    "device": "cpu",
    "conditions": [{"train_size": 60}],
    "seeds": {"pretrain": 1, "finetune": 2},
    "samples": {"validation": 30},
    "encoder": {"model": str(Path(__file__).parents[1] / "config/encoders/digits-tiny.json")},
    "label_spaces": {
        "random": [5],
        "random_instance": False,
        "random_superclass": [],
        "kmeans": [6],
        "kmeans_superclass": [],
        "rebalanced": {"clusters": [2, 3], "thresholds": [3]},
    },
    "model": {"args": {"layers": [1, 1, 0, 0], "channels": [4, 8, 8, 8], "stem_width": 2, "stem_type": "deep"}},
    "pretrain": {"batch_size": 20, "epochs": 1, "warmup_epochs": 0.5},
    "finetune": {"batch_size": 20, "epochs": 1, "warmup_epochs": 0.5},
    "jobs": {"pretrain": "condition", "finetune": "condition"},
    "probe": {"l2": [0.1]},
    "report": {"montage_clusters": 2},
}
TINY["encoder"] |= {"captions": {"epochs": 1, "batch_size": 20}}


@dataclass(frozen=True)
class Step:
    """One artifact: its kind, the folder it lies in, and the command that makes it."""

    kind: str
    folder: Path
    words: list[str]

    def run(self, output: Path | None = None) -> None:
        words = [*self.words, "--output", str(output or self.folder)]
        cli.app(words, standalone_mode=False)


def steps(config: Config, *worlds: str) -> list[Step]:
    """Every step of a configuration's chain, in an order that can be run; with worlds of theory of the size `tiny`."""
    found = []
    for condition in config.conditions:
        found += _Chain(config, condition).steps()
    page = ["--params", _json(config), "--page", jobs.page(config)]
    for world in worlds:
        part = Path(jobs.PATHS["theory_runs"].format(world=world, part=0))
        words = [world, "--size", "tiny"]
        found.append(Step("theory_runs", part, ["theory-runs", *words, "--device", "cpu"]))
        found.append(
            Step("theory", Path(jobs.PATHS["theory"].format(world=world)), ["theory", *words, "--runs", str(part)])
        )
        page += ["--theory", str(found[-1].folder)]
    return [*found, Step("report", Path(jobs.PATHS["report"].format(root=jobs.root(config))), ["report", *page])]


@contextlib.contextmanager
def tiny_world() -> Iterator[None]:
    """A world of theory has a size `tiny`: the smallest settings that still have all that its figures show."""
    from granularity.stages.theory.worlds import label_granularity

    small = {"d": 24, "k": 4, "seeds": 1}
    fine = {"eta": 0.8, "neurons": "five", "steps": 20, "finetune_steps": 3}
    settings = []
    for scale, k in (("A", 4), ("B", 8)):
        size = small | {"k": k}
        settings.append(label_granularity.Settings(**size, name=f"{scale} coarse", steps=20, stop_loss=0.2))
        settings.append(label_granularity.Settings(**size, **fine, g=k, name=f"{scale} fine"))
    names = ("granularity", "random", "equal counts")
    quick = [one for one in label_granularity.SIZES["quick"] if one.name.startswith(names)]
    settings += [one.model_copy(update={"seeds": 1, "steps": 5}) for one in quick]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(label_granularity.SIZES, "tiny", settings)
        yield


def rewrite(folder: Path, change: Callable[[dict], object], whole: bool = False) -> None:
    """Edit a manifest and make its seal anew; `whole`: its digest and its key as well, as a forger would."""
    file = folder / MANIFEST
    manifest = json.loads(file.read_text())
    del manifest["seal"]
    change(manifest)
    if whole:
        manifest["digest"] = artifacts._content_digest(manifest["kind"], manifest["files"])
        inputs = {role: entry["digest"] for role, entry in manifest["inputs"].items()}
        manifest["key"] = artifacts._key(manifest["kind"], manifest["params"], manifest["code"]["digest"], inputs)
    file.write_text(manifests.as_text(manifest | {"seal": manifests.seal(manifest)}))


@contextlib.contextmanager
def harmed(folder: Path) -> Iterator[None]:
    """A folder in which one may do as one likes; afterwards it is as it was."""
    copy = folder.parent / f".copy-{folder.name}"
    shutil.copytree(folder, copy)
    try:
        yield
    finally:
        shutil.rmtree(folder)
        copy.rename(folder)


def _json(section) -> str:
    return json.dumps(section.model_dump(mode="json"))


class _Chain:
    def __init__(self, config, condition):
        self.config, self.condition = config, condition
        self.place = {"root": jobs.root(config), "condition": jobs.condition_name(condition)}

    def path(self, kind: str, **wildcards: str) -> Path:
        return Path(jobs.PATHS[kind].format(**self.place, **wildcards))

    def step(self, kind: str, command: str, *words: str, **wildcards: str) -> Step:
        return Step(kind, self.path(kind, **wildcards), [command, *map(str, words)])

    def steps(self) -> list[Step]:
        config = self.config
        spaces = jobs.spaces(config, self.condition)
        samples = ("--samples", self.path("samples"))
        pixels = ("--pixels", self.path("pixels"))
        embedding = ("--embedding", self.path("embedding"))
        encoder = ("--encoder", self.path("encoder")) if config.encoder.trained_here else ()
        options = _json(config.encoder)
        sized = ("--train-size", self.condition.train_size)
        found = [self.step("samples", "samples", *sized, "--params", _json(config.samples))]
        found.append(self.step("pixels", "pixels", *samples, "--params", _json(config.pixels)))
        if encoder:
            found.append(self.step("encoder", "encoder", *samples, "--params", options, "--device", "cpu"))
        words = (*samples, *encoder, "--params", options, "--device", "cpu")
        found.append(self.step("embedding", "embed", *words))
        for name in jobs.clusterings(spaces):
            words = (*samples, *embedding, "--clustering", name, "--params", _json(config.cluster), "--device", "cpu")
            found.append(self.step("clusters", "cluster", *words, clustering=name))
        for space in spaces:
            words = [*samples, "--space", space.name, "--family", space.family, "--params", json.dumps(space.params)]
            for name in jobs.clusterings([space]):
                words += ["--clusters", self.path("clusters", clustering=name)]
            found.append(self.step("label_space", "hierarchy", *words, space=space.name))
        recipe = ("--recipe", _json(config.pretrain), "--model", _json(config.model))
        for unit, runs in jobs.units(config, self.condition, "pretrain").items():
            words = [*samples, *pixels, *self._runs(runs), *recipe]
            for name in dict.fromkeys(run.space for run in runs):
                words += ["--label-space", self.path("label_space", space=name)]
            found.append(self.step("pretrain", "pretrain", *words, "--device", "cpu", unit=unit))
        pretrained = []
        for unit in jobs.units(config, self.condition, "pretrain"):
            pretrained += ["--pretrain", self.path("pretrain", unit=unit)]
        for unit, runs in jobs.units(config, self.condition, "finetune").items():
            words = (*samples, *pixels, *pretrained, *self._runs(runs), "--recipe", _json(config.finetune))
            found.append(self.step("finetune", "finetune", *words, "--device", "cpu", unit=unit))
        for unit, runs in jobs.units(config, self.condition, "probe").items():
            words = (*samples, *pixels, *embedding, *pretrained, *self._runs(runs), "--params", _json(config.probe))
            found.append(self.step("probe", "probe", *words, "--device", "cpu", unit=unit))
        return found

    def _runs(self, runs) -> tuple[str, str]:
        return "--runs", ",".join(run.name for run in runs)
