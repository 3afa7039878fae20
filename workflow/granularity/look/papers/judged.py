"""Every claim with its verdict: of each folder of results, and of each experiment that was never run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from granularity.claims import preregistered
from granularity.claims.claim import CHANGED, FAILS, HOLDS, NOT_SIGNIFICANT, NOT_TESTED, ORDER, REPORTED
from granularity.look.inspection import is_current
from granularity.look.papers import blank
from granularity.look.papers.experiments import Cost, Experiment, Study, measured, paper_of, told, worlds
from granularity.store.artifacts import Artifact
from granularity.store.generations import STAMP

THEORY = "theory"
BOTH = "holds and fails"  # of one claim, in several experiments
BEYOND = ("not in the paper", "crossing")
VERDICTS = (HOLDS, FAILS, BOTH, NOT_SIGNIFICANT, CHANGED, NOT_TESTED, REPORTED)
UNKNOWN_FILE = "snakemake verdicts --configfile FILE  # your own file, with the name and the studies of these results"


@dataclass(frozen=True)
class Claim:
    """One claim in one experiment: its `checks` are the rows of its quantities, all cells as text."""

    id: str
    claim: str
    source: str
    kind: str
    verdict: str
    checks: list[dict[str, str]]

    @property
    def shown(self) -> dict[str, str]:
        """The quantity that decided it."""
        return next((row for row in self.checks if row["verdict"] == self.verdict), self.checks[0])

    @property
    def beyond(self) -> bool:
        """Whether it is a question of our own to the paper's model, as its source then says."""
        return any(words in self.source for words in BEYOND)

    @property
    def why(self) -> str:
        return "; ".join(dict.fromkeys(row["why"] for row in self.checks if row["why"]))


@dataclass(frozen=True)
class Group:
    """The claims of a study in one experiment.

    Attributes:
        paper: whose claims they are; empty where no paper's.
        study: the study or world.
        results: the name of the folder of results, below that of all results; `theory` for worlds.
        tested: whether there are verdicts.
        current: whether they were made by the code that is here.
        claims: in their order.
        cost: what the experiment cost or would cost; None where nobody knows.
        command: what makes the verdicts.
        missing: inputs that are not there.
        data: the images that it was judged on, in words; the size of a world.
    """

    paper: str
    study: str
    results: str
    tested: bool
    current: bool
    claims: list[Claim]
    cost: Cost | None
    command: str
    missing: tuple[str, ...] = ()
    data: str = ""

    @property
    def finding(self) -> bool:
        """Whether it is a question of our own, with a preregistration."""
        return self.results == THEORY and preregistered.file_of(self.study) is not None

    @property
    def anchor(self) -> str:
        return f"{self.results}-{self.study}"


def groups(root: Path, experiments: list[Experiment], wrong: list[str]) -> list[Group]:
    """Every study in every experiment: those of images first, then the worlds; what was tested before what was not.

    Args:
        root: the folder of all results; need not be there.
        wrong: takes what cannot be read, a line each.
    """
    files = {one.name: one for one in reversed(experiments)}  # of two of a name, the first
    costs: dict[str, Cost | None] = {}
    found = {}
    for folder in sorted(root.glob("*/verdicts/*")):
        if any(part.startswith(".") for part in folder.relative_to(root).parts) or folder.name.endswith(STAMP):
            continue
        with told(wrong):
            group = _tested(folder, files, costs)
            found[group.results, group.study] = group
    for one in experiments:
        for name, study in one.studies.items():
            if (one.name, name) not in found and files[one.name] is one:
                cost = costs.setdefault(one.name, measured(root / one.name)) or one.planned
                found[one.name, name] = _untested(one.name, name, study, cost, _command(one), one.missing)
    simulated = {study for results, study in found if results == THEORY}
    for world, (study, cost) in worlds(simulated, wrong).items():
        found[THEORY, world] = _untested(THEORY, world, study, cost, f"snakemake theory_{world}")
    return sorted(found.values(), key=lambda one: (one.results == THEORY, not one.tested))


def _tested(folder: Path, files: Mapping[str, Experiment], costs: dict[str, Cost | None]) -> Group:
    artifact = Artifact.open(folder, "verdicts")
    study, results = artifact.facts["study"], folder.parent.parent.name
    summary = {"claim": artifact.summary["verdicts"], "identity": artifact.summary["identities"]}
    rows = _rows(artifact) if any(summary.values()) else []  # or else the file has no columns
    if results == THEORY:
        root = folder.parent.parent
        cost, command = measured(root / study, folder), f"snakemake theory_{study}"
    else:
        if results not in costs:
            costs[results] = measured(folder.parent.parent)
        cost, command = costs[results], _command(files[results]) if results in files else UNKNOWN_FILE
    claims = list(_claims(rows, summary))
    current = is_current(artifact)
    return Group(paper_of(study), study, results, True, current, claims, cost, command, (), _data(artifact))


def _data(verdicts: Artifact) -> str:
    """The data sets behind some verdicts: source, target, images; of a world, its size."""
    if "size" in verdicts.facts:
        return f"size “{verdicts.facts['size']}”"
    found = []
    for one in verdicts.lineage().values():
        if one.kind == "samples":
            target, train = one.facts["target"], one.summary["images"]["train"]
            found.append(
                f"{one.facts['source']}: {train:,} training images, target “{target}” of "
                f"{one.summary['classes'][target]:,} classes"
            )
    return "; ".join(dict.fromkeys(found))


def _rows(artifact: Artifact) -> list[dict[str, str]]:
    import pandas as pd

    return blank.as_text(pd.read_csv(artifact.folder / "checks.csv", keep_default_na=False, dtype=str))


def _untested(results: str, name: str, study: Study, cost: Cost, command: str, missing: tuple[str, ...] = ()) -> Group:
    summary = {kind: {row["id"]: row["verdict"] for row in study.rows} for kind in ("claim", "identity")}
    claims = list(_claims(study.rows, summary))
    return Group(study.paper, name, results, False, True, claims, cost, command, missing)


def _claims(rows: list[dict[str, str]], summary: Mapping[str, Mapping[str, str]]) -> Iterator[Claim]:
    by: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        by.setdefault((row["kind"], row["id"]), []).append(row)
    for (kind, id), checks in by.items():
        yield Claim(id, checks[0]["claim"], checks[0]["source"], kind, summary[kind][id], checks)


def _command(experiment: Experiment) -> str:
    return f"snakemake verdicts{experiment.options}"


def folded(groups: Iterable[Group], kind: str = "claim", beyond: bool = False) -> dict[str, str]:
    """One verdict for each claim over several experiments, by its id: of the paper's own, or of those `beyond` it.

    What was tested counts: `holds` or `fails` where it does so in all that decide it, both where they differ.
    """
    found: dict[str, set[str]] = {}
    for group in groups:
        for one in group.claims:
            if one.kind == kind and one.beyond == beyond:
                found.setdefault(one.id, set()).add(one.verdict)
    return {id: _fold(verdicts) for id, verdicts in found.items()}


def _fold(verdicts: set[str]) -> str:
    if {HOLDS, FAILS} <= verdicts:
        return BOTH
    decided = verdicts - {NOT_SIGNIFICANT} if HOLDS in verdicts else verdicts
    return next(one for one in ORDER if one in decided)


def tally(verdicts: Iterable[str]) -> dict[str, int]:
    """How many there are of each verdict that there is, in the order of `VERDICTS`."""
    counts = Counter(verdicts)
    return {one: counts[one] for one in VERDICTS if counts[one]}
