"""Everything that the report shows: what was read, and the tables made of it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.stages.report import between, comparisons, conditions, encoder, tables, verdicts
from granularity.stages.report.conditions import ConditionResults
from granularity.stages.report.encoder import Encoder
from granularity.stages.report.options import Report
from granularity.stages.report.panels import panels
from granularity.stages.report.verdicts import StudyResult
from granularity.store.artifacts import Artifact
from granularity.store.task import Task


@dataclass(frozen=True)
class Loaded:
    """Everything that sections of the page take.

    Attributes:
        name: the configuration's name.
        options: the section `report`.
        configuration: the whole configuration.
        conditions: those with trainings; another data set that is only transferred to is not among them.
        comparisons: see :func:`granularity.stages.report.comparisons.compare`.
        between: gains between sizes and between transfers, see :func:`granularity.stages.report.between.between`.
        results, probe, measures, properties, cost: see :mod:`granularity.stages.report.tables`.
        encoder: None where nothing was embedded.
        studies, worlds: claims about images and about simulated worlds, with their verdicts.
        artifacts: everything read, by role.
        command: the command that made the results.
    """

    name: str
    options: Report
    configuration: dict[str, Any]
    conditions: list[ConditionResults]
    comparisons: pd.DataFrame
    between: pd.DataFrame
    results: pd.DataFrame
    probe: pd.DataFrame
    measures: pd.DataFrame
    properties: pd.DataFrame
    cost: pd.DataFrame
    encoder: Encoder | None
    studies: list[StudyResult]
    worlds: list[StudyResult]
    artifacts: dict[str, Artifact] = field(repr=False)
    command: str = "snakemake"

    @property
    def architectures(self) -> list[str]:
        """The networks' architectures, each once."""
        models = (model for condition in self.conditions for model in condition.models.values())
        return list(dict.fromkeys(model["model"]["name"] for model in models))


def load(task: Task) -> Loaded:
    """Open everything that a report is given, and make its tables.

    Raises:
        GranularityError: an artifact is missing or corrupt, or lacks runs that it was asked for.
    """
    configuration = task.options.configuration
    every = conditions.read(task)
    shown = [condition for condition in every if len(condition.pretrain)]
    if not shown:
        raise GranularityError("report: there are no pretrained networks to report on; give it artifacts of pretrain")
    artifacts = {role: artifact for condition in every for role, artifact in condition.artifacts.items()}
    studies = {artifact.manifest["options"]["study"]: artifact for artifact in task.open_all("verdicts")}
    worlds = _worlds(task.options.theory)
    artifacts |= {f"verdicts/{name}": artifact for name, artifact in studies.items()}
    artifacts |= {f"theory/{name}": artifact for name, artifact in worlds.items()}
    held = panels(shown)
    compared = comparisons.compare(held)
    return Loaded(
        name=configuration.get("name", ""),
        options=Report.model_validate(configuration.get("report", {})),
        configuration=configuration,
        conditions=shown,
        comparisons=compared,
        between=between.between(held),
        results=tables.results(held, compared),
        probe=tables.probe(shown),
        measures=tables.measures(shown),
        properties=tables.properties(shown),
        cost=tables.cost(artifacts.values()),
        encoder=encoder.found(shown),
        studies=verdicts.read(studies.values()),
        worlds=verdicts.read(worlds.values()),
        artifacts=artifacts,
        command=os.environ.get("GRANULARITY_COMMAND", "snakemake"),
    )


def _worlds(theory: dict[str, str]) -> dict[str, Artifact]:
    """Verdicts on simulated worlds; what is damaged, or another by now, is left out: no report waits for theory."""
    found = {}
    for folder, digest in theory.items():
        try:
            artifact = Artifact.open(Path(folder), "verdicts")
        except GranularityError as error:
            say(f"report: without the theory: {error}")
            continue
        if artifact.digest.startswith(digest):
            found[artifact.manifest["options"]["study"]] = artifact
        else:
            say(f"report: without the theory in {folder}, which is another by now; make the report again")
    return found
