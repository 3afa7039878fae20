"""The results of each condition, as the report reads them: verified artifacts, and the tables of all their runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from granularity.base.errors import GranularityError
from granularity.learning.runs import Run
from granularity.stages.report.partitions import first_alike
from granularity.store.artifacts import Artifact
from granularity.store.task import Task

BASELINE = "target"  # the label space whose classes are the target's: the retraining baseline
OWN = ("samples", "pixels", "encoder", "embed", "cluster", "hierarchy", "pretrain", "finetune", "measure")

# What is read of the artifacts' files, see granularity.store.artifacts.KINDS
PRETRAINED = dict.fromkeys(["run_id", "network", "space", "family"], "text") | {"val_error": "number?"}
PRETRAINED |= {"granularity": "number?", "pretrain_seed": "number"}
FINETUNED = PRETRAINED | {"transfer": "text", "val_error": "number"}
MEASURED = dict.fromkeys(["run", "space", "family"], "text") | dict.fromkeys(["network", "transfer"], "text?")
MEASURED |= {"granularity": "number?", "pretrain_seed": "number?"}
VALUES = dict.fromkeys(["run", "split", "measure", "key"], "text") | {"epoch": "number?", "value": "number?"}
PROPERTIES = ["granularity", "images", "empty_classes", "refines_target", "class_size", "starved_share"]
PROPERTIES += ["straddling_share", "purity", "mutual_information_bits", "nmi"]


@dataclass(frozen=True)
class Space:
    """A label space, or what stands in its place where an objective has none."""

    name: str
    family: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ConditionResults:
    """The results of one condition. `label` says it in words, such as `300 training images`.

    Attributes:
        spaces: its label spaces, as planned.
        properties, classes: of every label space, by name.
        alike: label space -> the first that parts the training images as it does, which may be itself.
        pretrain, finetune: a row per run, as `runs.parquet` has them; finetunings with `other_data`, whether their
            images are of another data set than the pretraining's.
        values: a row per measured number: `measure` (the entry's name), `file` (the measure), `run`, `epoch`, `split`,
            `key`, `value`; of the run, `network`, `space`, `family`, `granularity`, `transfer`; and `state`: untrained,
            epoch N, pretrained, finetuned or embedding.
        models: network -> its architecture and recipe, as the pretraining's options have them.
        artifacts: everything read, by its path below the folder of the configuration's results.
    """

    name: str
    label: str
    samples: Artifact
    spaces: list[Space]
    properties: dict[str, dict[str, Any]]
    classes: dict[str, pd.DataFrame]
    alike: dict[str, str]
    pretrain: pd.DataFrame
    finetune: pd.DataFrame
    values: pd.DataFrame
    models: dict[str, dict[str, Any]]
    artifacts: dict[str, Artifact] = field(repr=False)

    @property
    def ranks(self) -> list[str]:
        return self.samples.facts["ranks"]

    @property
    def target(self) -> str:
        return self.samples.facts["target"]

    @property
    def shown_ranks(self) -> list[str]:
        """The target rank and the finest, once if they are the same."""
        return list(dict.fromkeys([self.target, self.ranks[-1]]))

    def images(self, split: str) -> int:
        return self.samples.summary["images"].get(split, 0)

    def of(self, stage: str) -> list[Artifact]:
        """The condition's artifacts of a stage."""
        return [artifact for artifact in self.artifacts.values() if artifact.kind == stage]


def read(task: Task) -> list[ConditionResults]:
    """Open all inputs of the report but the verdicts, and sort them by condition.

    Raises:
        GranularityError: an artifact is missing or corrupt, lacks runs that it was asked for, or was made from others
            than are given.
    """
    opened = {role: task.open_all(role) for role in OWN}
    _refuse_mixed([one for found in (*opened.values(), task.open_all("verdicts")) for one in found])
    folders = {samples.place.parent: samples for samples in opened["samples"]}
    held: dict[Path, list[Artifact]] = {folder: [] for folder in folders}
    for artifact in (one for found in opened.values() for one in found):
        folder = next((one for one in artifact.place.parents if one in folders), None)
        if folder is None:
            raise GranularityError(f"{artifact.path}: lies beside no sample table that the report is given")
        held[folder].append(artifact)
    return [_condition(folder, held[folder]) for folder in folders]


def _refuse_mixed(artifacts: Sequence[Artifact]) -> None:
    """Refuse what was made from another sample table, label space, ... than any of those that the report shows."""
    shown: dict[str, set[str]] = {}
    for artifact in artifacts:
        shown.setdefault(artifact.kind, set()).add(artifact.digest)
    for artifact in artifacts:
        for role, entry in artifact.manifest["inputs"].items():
            if role == "init":  # a backbone of any other configuration
                continue
            if entry["digest"] not in shown.get(entry["kind"], {entry["digest"]}):
                raise GranularityError(
                    f"{artifact.path}: was made from another '{role}' than the report is given; run snakemake, which "
                    "makes it again"
                )


def _condition(folder: Path, artifacts: list[Artifact]) -> ConditionResults:
    named = {artifact.place.relative_to(folder.parent).as_posix(): artifact for artifact in artifacts}

    def of(stage: str) -> list[Artifact]:
        return [artifact for artifact in artifacts if artifact.kind == stage]

    (samples,) = of("samples")
    made = {space.manifest["options"]["space"]: space for space in of("hierarchy")}
    classes = {name: space.table("classes.parquet") for name, space in made.items()}
    train = samples.summary["images"].get("train", 0)
    return ConditionResults(
        name=folder.name,
        label=f"{train:,} training image{'' if train == 1 else 's'}",
        samples=samples,
        spaces=[_space(space.manifest["options"]) for space in made.values()],
        properties={name: space.json("properties.json", *PROPERTIES) for name, space in made.items()},
        classes=classes,
        alike=first_alike(made, classes),
        pretrain=_runs(of("pretrain"), PRETRAINED),
        finetune=_runs(of("finetune"), FINETUNED),
        values=_values(of("measure"), of("pretrain")),
        models={one.manifest["options"]["network"]: _model(one.manifest["options"]) for one in of("pretrain")},
        artifacts=named,
    )


def _space(options: Mapping[str, Any]) -> Space:
    return Space(options["space"], options["family"], options["params"])


def _model(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: options[key] for key in ("model", "recipe")}


def _runs(jobs: Iterable[Artifact], columns: dict[str, str]) -> pd.DataFrame:
    """The runs of some jobs, each of which holds what it was asked for."""
    tables = []
    for job in jobs:
        job.table("runs.parquet", columns)
        table, options = job.table("runs.parquet"), job.manifest["options"]
        asked = {Run.parse(name).id for name in options["runs"]}
        if missing := asked - set(table["run_id"]):
            raise GranularityError(f"{job.path}: lacks runs that it was asked for: {sorted(missing)}; make it again")
        table["val_error"] = table["val_error"].astype(float)  # all null where an objective has no classes
        tables.append(table.assign(other_data=options.get("other_data", False)))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*columns, "other_data"])


def _values(measured: Iterable[Artifact], pretrained: Iterable[Artifact]) -> pd.DataFrame:
    last = dict(_last_epochs(pretrained))
    tables = []
    for job in measured:
        values, runs = job.table("values.parquet", VALUES), job.table("runs.parquet", MEASURED)
        _check_measured(job, values["run"], runs["run"])
        table = values.merge(runs, on="run", how="left", validate="many_to_one")
        states = [_state(*row, last) for row in zip(table["run"], table["epoch"], table["transfer"], strict=True)]
        tables.append(table.assign(file=job.facts["measure"], state=states))
    if not tables:
        return pd.DataFrame(columns=[*VALUES, *MEASURED, "file", "state"])
    return pd.concat(tables, ignore_index=True)


def _check_measured(job: Artifact, values: pd.Series, runs: pd.Series) -> None:
    """Each run once, and every one that was asked for; a measure may have nothing to say of a run."""
    if runs.duplicated().any() or not set(values) <= set(runs):
        raise GranularityError(f"{job.path}: its values.parquet and its runs.parquet are not of the same runs")
    options = job.manifest["options"]
    pretrained = {"backbones", "checkpoints", "untrained"} & set(options["of"])
    missing = {Run.parse(name).id for name in options["runs"] if pretrained} - set(runs)
    if missing:
        raise GranularityError(f"{job.path}: lacks runs that it was asked for: {sorted(missing)}; make it again")


def _last_epochs(pretrained: Iterable[Artifact]) -> Iterator[tuple[str, int]]:
    for job in pretrained:
        for name in job.manifest["options"]["runs"]:
            yield Run.parse(name).id, job.manifest["options"]["recipe"]["epochs"]


def _state(run: str, epoch: Any, transfer: Any, last: Mapping[str, int]) -> str:
    if not pd.isna(transfer):
        return f"finetuned ({transfer})"
    if pd.isna(epoch):
        return "embedding"
    if epoch == last.get(run):
        return "pretrained"
    return "untrained" if epoch == 0 else f"epoch {int(epoch)}"
