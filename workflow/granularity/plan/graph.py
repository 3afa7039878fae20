"""The plan of a configuration: all jobs it needs, their inputs, and where their results lie."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.base.stage import Job, Stage
from granularity.config.cells import cells
from granularity.learning.cost import jobs_for
from granularity.learning.runs import Run
from granularity.plan import trainings
from granularity.plan.trainings import NetworkPlan, TransferPlan
from granularity.stages import STAGES
from granularity.stages.hierarchy.space import Space, clusterings, spaces
from granularity.stages.samples.options import expected_images, of_source
from granularity.store.artifact import Artifact
from granularity.store.place import stamp_of


@dataclass(frozen=True)
class ConditionPlan:
    """Images to train on: a data set and a training-set size."""

    name: str  # its folder below `results/NAME/`
    samples: Any  # the section that describes the data set
    train_size: int | str  # number of training images, or `all`
    seed: int  # the base seed, which determines the split
    encoder: Any = None  # sections that determine its embedding and clusters
    spaces: tuple[Space, ...] = ()  # its label spaces; none if it is only transferred to
    merged: tuple[str, ...] = ()  # label spaces on which networks are also trained for all epochs
    backbones: int = 0  # per label space

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """The identity of its images, in ids of runs."""
        return {"samples": of_source(self.samples), "train_size": self.train_size, "seed": self.seed}

    @property
    def images(self) -> int | None:
        """The approximate number of its training images; None if unknown before they are read. It determines how work
        is split into jobs, so it does not depend on existing results.
        """
        return expected_images(self.samples) if self.train_size == "all" else int(self.train_size)

    def made_by(self, space: Space, network: NetworkPlan) -> list:
        """Return the sections that determine a label space's clusters or embeddings, for ids of runs, or none."""
        needs_embedding = space.params.get("clusterings") or objective_needs(network) == "embed"
        return [self.encoder] if needs_embedding else []


def objective_needs(network: NetworkPlan) -> str:
    """Return the stage whose results a network's objective is trained on: hierarchy, embed or pixels."""
    return extensions.find("objective", network.objective.name).NEEDS


class Plan:
    """All jobs of a configuration, by stage.

    Attributes:
        root: the folder of its results.
        conditions: those of the configuration, then those that are only transferred to.
        networks, transfers: those of the configuration, with defaults filled in.
        cells, axes: for a study, the plans of its cells, and each cell's values of the axes, by the cell's folder.
    """

    def __init__(self, config: Any, cells: Mapping[str, tuple[Plan, Mapping[str, Any]]] | None = None):
        self.config, self.root = config, f"results/{config.name}"
        self.cells = [plan for plan, _ in (cells or {}).values()]
        self.axes = {name: dict(values) for name, (_, values) in (cells or {}).items()}
        self.networks, self.transfers = trainings.networks(config), trainings.transfers(config)
        self.conditions = [] if cells else self._conditions()
        self._pretrainings: dict[tuple[str, str], list[Run]] = {}
        self._options: dict[int, tuple[Job, Section]] = {}
        self._jobs: dict[str, dict[tuple, Job]] = {}
        self._chosen: dict[tuple, dict[tuple, list[Job]]] = {}
        self._held: dict[tuple, tuple[Sequence[Job], dict[tuple[str, int], list[int]]]] = {}
        for stage in (candidate for candidate in STAGES.values() if candidate.of_study in (None, bool(cells))):
            self._jobs[stage.name] = {_key(job.values): job for job in stage.plan(self)}
            self._chosen.clear()

    def jobs(self, stage: str, **values: str) -> Sequence[Job]:
        """Return the jobs of a stage: all, or those with given wildcards. Indexed, because it is called very often."""
        names = tuple(sorted(values))
        if (stage, names) not in self._chosen:
            chosen = self._chosen[stage, names] = {}
            for job in self._jobs.get(stage, {}).values():
                if values.keys() <= job.values.keys():
                    chosen.setdefault(tuple(job.values[name] for name in names), []).append(job)
        return self._chosen[stage, names].get(tuple(values[name] for name in names), [])

    def job(self, stage: str, values: Mapping[str, str]) -> Job:
        """Return a job of a stage, by all its wildcards."""
        return self._jobs[stage][_key(values)]

    def code(self, job: Job) -> tuple[str, ...]:
        """Return the code that computes a job's result: dotted modules, and paths of the user's files."""
        return STAGES[job.stage].code(self.options(job))

    def options(self, job: Job) -> Section:
        """Return the options of a job, validated."""
        if id(job) not in self._options:
            self._options[id(job)] = job, STAGES[job.stage].model.model_validate(job.options)
        return self._options[id(job)][1]

    def folder(self, job: Job) -> Path:
        """Return the name of a job's result: a path that leads to its folder."""
        return Path(job.at or pattern(STAGES[job.stage], self.root).format(**job.values))

    def stamp(self, job: Job) -> str:
        """Return the file that represents a job's result for Snakemake."""
        return str(stamp_of(self.folder(job)))

    @property
    def page(self) -> str:
        """The final page: the report, or the page of a study."""
        return f"{self.root}/gather/study.html" if self.cells else f"{self.root}/report/report.html"

    def condition(self, name: str) -> ConditionPlan:
        return next(condition for condition in self.conditions if condition.name == name)

    def clusterings(self, condition: ConditionPlan) -> list[str]:
        """Return the clusterings that the label spaces of a condition use."""
        return clusterings(condition.spaces)

    def embeds(self, condition: ConditionPlan) -> bool:
        """Return whether anything needs the embedding of a condition's images."""
        if not condition.spaces:
            return False
        objectives = any(objective_needs(network) == "embed" for network in self.networks)
        asked = any("embedding" in (measure.of or ()) for measure in self.config.measures)
        return bool(self.clusterings(condition)) or objectives or asked or self.config.duplicates.embedded

    def spaces_of(self, network: NetworkPlan, condition: ConditionPlan) -> list[Space]:
        """Return the label spaces that a network is pretrained on, or a stand-in for an objective that needs none."""
        if objective_needs(network) != "hierarchy":
            name = network.objective.name
            return [Space(name, name, dict(network.objective.options))] if condition.spaces else []
        names = condition.merged if network.merged else network.spaces
        return [one for one in condition.spaces if names is None or one.name in names]

    def pretrainings(self, network: NetworkPlan, condition: ConditionPlan) -> list[Run]:
        found = self._pretrainings.get((network.name, condition.name))
        if found is None:
            found = trainings.pretrainings(self.config, network, condition, self.spaces_of(network, condition))
            self._pretrainings[network.name, condition.name] = found
        return found

    def backbones(self, network: NetworkPlan, condition: ConditionPlan) -> list[Run]:
        """Return the pretrainings that are finetuned and measured, without the extra seeds of the one-pass baseline."""
        return [run for run in self.pretrainings(network, condition) if run.pretrain_seed < condition.backbones]

    def finetunings(self, transfer: TransferPlan, network: NetworkPlan, condition: ConditionPlan) -> list[Run]:
        parents = self.backbones(network, condition)
        return trainings.finetunings(self.config, transfer, parents, self.data_of(transfer, condition))

    def data_of(self, transfer: TransferPlan, condition: ConditionPlan) -> ConditionPlan:
        """Return the images that a transfer of a condition's networks trains on."""
        return condition if transfer.data is None else self.condition(transfer.data.name)

    def asks(self, condition: ConditionPlan) -> dict[str, int]:
        """Return the least number of training images that each key of the configuration needs."""
        clusters = [int(name.split("-")[1]) for name in self.clusterings(condition) if name.startswith("whole-")]
        found = {"label_spaces: clusters": max(clusters)} if clusters else {}
        recipes = [(one.where, one.recipe) for one in self.networks if condition.spaces]
        recipes += [(one.where, one.recipe) for one in self.transfers if self.data_of(one, condition) == condition]
        return found | {f"{where}.batch_size": recipe.batch_size for where, recipe in recipes}

    def classes(self, condition: ConditionPlan, ranks: Iterable[str]) -> list[int]:
        """Return the numbers of classes of some ranks; 0 before the sample table exists."""
        counts = self.summary(condition).get("classes", {})
        return [counts.get(rank, 0) for rank in ranks]

    def summary(self, condition: ConditionPlan) -> dict[str, Any]:
        """Return the summary of a condition's sample table; empty before it exists."""
        with contextlib.suppress(GranularityError):
            (job,) = self.jobs("samples", condition=condition.name)
            return _summary_of(os.path.realpath(self.folder(job)))
        return {}

    def networks_of(self, transfer: TransferPlan) -> list[NetworkPlan]:
        """Return the networks that a transfer finetunes."""
        return [one for one in self.networks if transfer.finetunes(one)]

    def holding(self, jobs: Sequence[Job], runs: Iterable[Run]) -> list[Job]:
        """Return the jobs, of pretraining or later stages, that hold the backbones of some runs."""
        if not jobs:
            return []
        # Called for thousands of jobs with few different lists, so each list is indexed once.
        known_by = (id(jobs[0]), id(jobs[-1]), len(jobs))
        same, places = self._held.get(known_by, (None, {}))
        if same != jobs:
            places = {}
            for place, job in enumerate(jobs):
                for run in map(Run.parse, job.options["runs"]):
                    places.setdefault((run.space, run.pretrain_seed), []).append(place)
            self._held[known_by] = jobs, places
        chosen = {place for run in runs for place in places.get((run.space, run.pretrain_seed), ())}
        return [jobs[place] for place in sorted(chosen)]

    def units(
        self,
        stage: str,
        runs: Sequence[Run],
        network: NetworkPlan,
        condition: ConditionPlan,
        epochs: int = 1,
        data: Any = None,
    ) -> dict[str, list[Run]]:
        """Group a stage's runs, of `epochs` epochs on the images of `data` or the condition, into jobs."""
        level = getattr(self.config.jobs, stage)
        if level == "auto":
            count = jobs_for(len(runs), epochs, (data or condition).images, self.config.pixels)
            if count > 1:
                cuts = [len(runs) * number // count for number in range(count + 1)]
                return {f"part-{i}": list(runs[cuts[i - 1] : cuts[i]]) for i in range(1, count + 1)}
            level = "condition"
        family = {space.name: space.family for space in self.spaces_of(network, condition)}
        grouped: dict[str, list[Run]] = {}
        for run in runs:
            unit = {"condition": "all", "family": family[run.space], "space": run.space, "run": run.name}[level]
            grouped.setdefault(unit, []).append(run)
        return grouped

    def _conditions(self) -> list[ConditionPlan]:
        config, seed = self.config, self.config.seeds.base
        encoder = {"encoder": config.encoder, "cluster": config.cluster}
        label_spaces = tuple(spaces(config.label_spaces, config.samples))
        conditions = []
        for entry in config.conditions:
            chosen = (
                label_spaces
                if entry.spaces is None
                else tuple(s for s in label_spaces if s.name in {label_spaces[0].name, *entry.spaces})
            )
            images = f"train-{entry.train_size}", config.samples, entry.train_size
            backbones = entry.backbones or config.seeds.pretrain
            conditions.append(ConditionPlan(*images, seed, encoder, chosen, tuple(entry.merged), backbones))
        by_name = {entry.data.name: entry.data for entry in self.transfers if entry.data is not None}
        return conditions + [ConditionPlan(name, data.samples, data.train_size, seed) for name, data in by_name.items()]


def plans(config: Any) -> list[Plan]:
    """Return the plan of a configuration; for a study, those of its cells, then its own."""
    found = cells(config)
    if len(found) == 1 and not found[0].values:
        return [Plan(config)]
    made = {one.name: (Plan(one.config), one.values) for one in found}
    return [*(plan for plan, _ in made.values()), Plan(config, made)]


@functools.cache
def _summary_of(generation: str) -> dict[str, Any]:
    return Artifact.peek(generation).summary


def pattern(stage: Stage, root: str) -> str:
    """Return the folder of a stage's results, with wildcards in braces."""
    return stage.place.replace("{root}", root)


def beside(stage: Stage, root: str, folder: str) -> str:
    """Return the pattern of a job's log (`logs`) or Snakemake's measurements (`benchmarks`), named like the result."""
    own = stage.place.startswith("{root}/")
    *above, rest = stage.place.split("/", 1 if own else 2)
    return f"{root if own else '/'.join(above)}/{folder}/{rest}.{ {'logs': 'log', 'benchmarks': 'tsv'}[folder] }"


def _key(values: Mapping[str, str]) -> tuple:
    return tuple(sorted(values.items()))
