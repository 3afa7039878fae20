"""The results of each condition, as the report reads them: verified artifacts, and tables of all their runs."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.learning.runs import Run
from granularity.stages.report import READS
from granularity.stages.report.options import MERGED
from granularity.store.artifact import Artifact
from granularity.store.task import Task

BASELINE = "target"  # the label space whose classes are the target's: the retraining baseline

# Columns read from tables of runs and of measured numbers
PRETRAINED = ["run_id", "network", "space", "family", "granularity", "pretrain_seed", "val_error", "other_data"]
MEASURED = ["run", "network", "space", "family", "granularity", "pretrain_seed", "transfer"]
VALUES = ["run", "epoch", "split", "measure", "key", "value"]


class ShownSpace(NamedTuple):
    """A label space, or its substitute for an objective without label spaces."""

    name: str
    family: str
    params: Mapping[str, Any]


class ConditionResults:
    """The results of one condition. `label` describes it, as in `300 training images`.

    Attributes:
        ranks, target: the human ranks from coarse to fine, and the one that is the target.
        properties, classes: of every label space, by name.
        alike: label space -> the first that divides the training images identically (possibly itself).
        pretrain, finetune: a row per run, as in `runs.parquet`, plus `other_data`, whether its images are of another
            data set than the pretraining's, and `artifact`, the path (as below) of the job that holds it.
        values: a row per measured number: `measure` (the entry's name), `file` (the measure), `run`, `epoch`,
            `split`, `key`, `value`; the run's `network`, `space`, `family`, `granularity`, `transfer`; `state`:
            untrained, epoch N, pretrained, finetuned or embedding; and `artifact`, as above.
        models: network -> its architecture and recipe, from the pretraining's options; not for networks that are
            trained for all epochs.
        artifacts: everything read, by its path below the folder of the configuration's results.
    """

    def __init__(self, folder: Path, artifacts: list[Artifact]):
        self.name = folder.name
        self.artifacts = {artifact.place.relative_to(folder.parent).as_posix(): artifact for artifact in artifacts}
        (self.samples,) = self.of("samples")
        self.ranks, self.target = self.samples.facts["ranks"], self.samples.facts["target"]
        # As asked for, not as counted: draws can differ in how many images are left out.
        size = self.samples.manifest["options"]["train_size"]
        self.label = f"{size if size == 'all' else f'{size:,}'} training image{'' if size == 1 else 's'}"
        planned = [options.manifest["options"] for options in self.of("hierarchy")]
        hierarchies = dict(zip((options["space"] for options in planned), self.of("hierarchy"), strict=True))
        self.spaces = [ShownSpace(options["space"], options["family"], options["params"]) for options in planned]
        self.properties = {name: space.json("properties.json") for name, space in hierarchies.items()}
        self.classes = {name: space.table("classes.parquet") for name, space in hierarchies.items()}
        self.alike = first_alike(hierarchies, self.classes)
        pretrainings = [options.manifest["options"] for options in self.of("pretrain")]
        named = [options for options in pretrainings if not options["network"].endswith(MERGED)]
        self.models = {options["network"]: {key: options[key] for key in ("model", "recipe")} for options in named}
        self.pretrain, self.finetune = (_runs(self.roles(stage)) for stage in ("pretrain", "finetune"))
        self.values = _values(self.roles("measure"), pretrainings)

    def images(self, split: str) -> int:
        return self.samples.summary["images"].get(split, 0)

    def roles(self, stage: str) -> dict[str, Artifact]:
        return {role: artifact for role, artifact in self.artifacts.items() if artifact.kind == stage}

    def of(self, stage: str) -> list[Artifact]:
        return list(self.roles(stage).values())


def read(task: Task) -> list[ConditionResults]:
    """Open all inputs of the report except the verdicts, by condition; GranularityError: corrupt or inconsistent."""
    opened = [artifact for role in READS for artifact in task.open_all(role)]
    inputs = [*opened, *task.open_all("verdicts")]
    shown = {(artifact.kind, artifact.digest) for artifact in inputs}
    kinds = {kind for kind, _ in shown}
    for artifact, (role, entry) in ((item, held) for item in inputs for held in item.manifest["inputs"].items()):
        consistent = entry["kind"] not in kinds or (entry["kind"], entry["digest"]) in shown
        if role != "init" and not consistent:  # initial weights may come from any configuration
            problem = f"was made from another '{role}' than the report is given; run snakemake, which recomputes it"
            raise GranularityError(f"{artifact.path}: {problem}")
    held: dict[Path, list[Artifact]] = {item.place.parent: [] for item in opened if item.kind == "samples"}
    for artifact in opened:
        held[next(folder for folder in artifact.place.parents if folder in held)].append(artifact)
    return [ConditionResults(folder, artifacts) for folder, artifacts in held.items()]


def _runs(jobs: Mapping[str, Artifact]) -> pd.DataFrame:
    tables = [pd.DataFrame(columns=[*PRETRAINED, "transfer", "artifact"])]
    for role, job in jobs.items():
        table = job.table("runs.parquet").astype({"val_error": float})  # all null if an objective has no classes
        _refuse_missing(job, table["run_id"])
        tables.append(table.assign(other_data=job.manifest["options"].get("other_data", False), artifact=role))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def _refuse_missing(job: Artifact, runs: Iterable[str]) -> None:
    if missing := {Run.parse(name).id for name in job.manifest["options"]["runs"]} - set(runs):
        raise GranularityError(f"{job.path}: lacks requested runs: {sorted(missing)}; recompute it")


def _values(measured: Mapping[str, Artifact], pretrainings: list[Mapping[str, Any]]) -> pd.DataFrame:
    last = {Run.parse(name).id: options["recipe"]["epochs"] for options in pretrainings for name in options["runs"]}

    def state(run: str, epoch: Any, transfer: Any) -> str:
        if not pd.isna(transfer):
            return f"finetuned ({transfer})"
        if pd.isna(epoch):
            return "embedding"
        return "pretrained" if epoch == last.get(run) else "untrained" if epoch == 0 else f"epoch {int(epoch)}"

    tables = [pd.DataFrame(columns=[*VALUES, *MEASURED, "file", "state", "artifact"])]
    for role, job in measured.items():
        values, runs = job.table("values.parquet", VALUES), job.table("runs.parquet", MEASURED)
        if {"backbones", "checkpoints", "untrained"} & set(job.manifest["options"]["of"]):
            _refuse_missing(job, runs["run"])  # a measure may yield nothing for a run that it holds
        table = values.merge(runs, on="run", how="left", validate="many_to_one")
        states = [state(*row) for row in zip(table["run"], table["epoch"], table["transfer"], strict=True)]
        tables.append(table.assign(file=job.facts["measure"], state=states, artifact=role))
    return pd.concat(tables[1:] or tables, ignore_index=True)


# ---------------------------------------------------------------- label spaces that part the images alike


def first_alike(spaces: Mapping[str, Artifact], classes: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return for each label space the first that divides the images identically; labels are read if sizes agree."""
    sizes = {name: np.sort(classes[name].query("size > 0")["size"].to_numpy()).tobytes() for name in spaces}
    alike, first = Counter(sizes.values()), {}
    parted = {name: _partition(space) if alike[sizes[name]] > 1 else None for name, space in spaces.items()}
    return {name: first.setdefault((sizes[name], parted[name]), name) for name in spaces}


def _partition(space: Artifact) -> bytes:
    """Return the set of classes, each as the sum of its images' hashes (64 bits): independent of label numbers."""
    table = space.table("labels.parquet", ["sample_id", "label"]).explode("label")  # images may have several labels
    label = table["label"].to_numpy(dtype=np.int64)
    order = np.argsort(label, kind="stable")
    starts = np.flatnonzero(np.diff(label[order], prepend=-1))
    images = pd.util.hash_pandas_object(table["sample_id"], index=False).to_numpy()
    return np.sort(np.add.reduceat(images[order], starts)).tobytes()
