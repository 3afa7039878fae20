"""Every claim with its verdict, for each folder of results and for each experiment that was never run."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from granularity.claims import preregistered
from granularity.claims.claim import FAILS, HOLDS, NOT_SIGNIFICANT, NOT_TESTED, ORDER, REPORTED
from granularity.look.inspection import is_current
from granularity.look.papers.experiments import Cost, Experiment, Rows, data_of, measured, noted, paper_of, worlds
from granularity.stages.report.sections.claims import checks_of
from granularity.store.artifact import Artifact
from granularity.store.place import STAMP, inside

COMMITTED = preregistered.TABLES.parent / "committed/papers.csv"  # the tested rows of the project's own `papers.csv`
THEORY = "theory"
BOTH = "holds and fails"  # a claim whose verdicts differ between experiments
NO_BAND = "reported, no band"
BEYOND = ("not in the paper", "crossing")
VERDICTS = (HOLDS, FAILS, BOTH, NOT_SIGNIFICANT, NOT_TESTED, REPORTED)
UNKNOWN_FILE = "snakemake verdicts --configfile FILE  # your own file, with the name and the studies of these results"
COPIED = ("quantity", "measured", "sd", "minimum", "maximum", "interval_low", "interval_high", "seeds", "band")
COPIED += ("published", "arms", "conditions")


@dataclass(frozen=True)
class JudgedClaim:
    """One claim in one experiment; `checks` has a row per quantity, all cells as text."""

    id: str
    claim: str
    source: str
    kind: str
    verdict: str
    checks: Rows

    @property
    def shown(self) -> dict[str, str]:
        """The quantity that decided the verdict."""
        return next((row for row in self.checks if row["verdict"] == self.verdict), self.checks[0])

    @property
    def in_part(self) -> str:
        """Text such as "2 of 5 quantities tested", those with a band, if the claim holds by them only; else empty."""
        banded = [row["verdict"] for row in self.checks if row["band"] != NO_BAND]
        untested = banded.count(NOT_TESTED) if self.verdict == HOLDS else 0
        return f"{len(banded) - untested} of {len(banded)} quantities tested" if untested else ""

    @property
    def beyond(self) -> bool:
        """Whether the claim is our own question about the paper's model; its source then says so."""
        return any(words in self.source for words in BEYOND)

    @property
    def why(self) -> str:
        """The distinct reasons of all its quantities."""
        return "; ".join(dict.fromkeys(why for row in self.checks for why in row["why"].split("; ") if why))


@dataclass(frozen=True)
class Group:
    """The claims of a study in one experiment. `paper`: empty if they belong to none; `results`: name of the folder,
    `theory` for worlds; `tested`: whether there are verdicts; `current`: whether made by the present code; `cost`: None
    if not known; `command`: the command that makes the verdicts; `data`: the images judged, in words, or the size of a
    world; `committed`: whether taken from the project's own runs because these results have none; `architectures`:
    those of the networks.
    """

    paper: str
    study: str
    results: str
    tested: bool
    current: bool
    claims: list[JudgedClaim]
    cost: Cost | None
    command: str
    missing: tuple[str, ...] = ()
    data: str = ""
    committed: bool = False
    architectures: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        return f"{self.results}-{self.study}"

    def rows(self) -> Iterator[dict[str, str]]:
        """Yield the rows of `papers.csv`, one per quantity."""
        cpu, gpu, how = ("", "", "") if self.cost is None else (*(f"{one:.4g}" for one in self.cost[:2]), self.cost.how)
        cost = {"cpu_hours": cpu, "gpu_hours": gpu, "cost_is": how}
        about = cost | {"data": self.data, "missing": "; ".join(self.missing)}
        for one, check in ((claim, check) for claim in self.claims for check in claim.checks):
            row = {key: getattr(self, key) for key in ("paper", "study", "results")}
            row |= {key: getattr(one, key) for key in ("id", "kind", "claim", "source", "verdict")}
            row |= {name: check[name] for name in COPIED} | {"of_quantity": check["verdict"], "why": check["why"]}
            yield row | about | {"command": check["command"] or self.command}


def groups(root: Path, experiments: list[Experiment], wrong: list[str]) -> list[Group]:
    """Return every study in every experiment: images first, then tested ones; `wrong` collects what cannot be read."""
    files = {entry.name: entry for entry in reversed(experiments)}  # the first of two with one name
    by_study = {}
    for folder in sorted(root.glob("[!.]*/verdicts/[!.]*")):
        if not folder.name.endswith(STAMP):
            with noted(wrong):
                group = _tested(folder, files)
                by_study[group.results, group.study] = group
    with noted(wrong):
        by_study = {(entry.results, entry.study): entry for entry in committed()} | by_study
    for entry in (entry for entry in experiments if files[entry.name] is entry):
        for name, rows in entry.studies.items():
            if (entry.name, name) not in by_study:
                cost, command = measured(root / entry.name) or entry.planned, f"snakemake verdicts{entry.options}"
                by_study[entry.name, name] = _untested(entry.name, name, rows, cost, command, entry.missing)
    simulated = {study for results, study in by_study if results == THEORY}
    for world, (rows, cost) in worlds(simulated, wrong).items():
        by_study[THEORY, world] = _untested(THEORY, world, rows, cost, f"snakemake theory_{world}")
    return sorted(by_study.values(), key=lambda entry: (entry.results == THEORY, not entry.tested))


def _tested(folder: Path, files: Mapping[str, Experiment]) -> Group:
    artifact, root = Artifact.open(folder, "verdicts"), folder.parent.parent
    study, results = artifact.facts["study"], root.name
    command = _command(study, results, files)
    images, architectures = data_of(artifact)
    words = f"size “{artifact.facts['size']}”" if "size" in artifact.facts else images
    summary = {"claim": artifact.summary["verdicts"], "identity": artifact.summary["identities"]}
    claims = _claims(checks_of(artifact), summary)
    cost = measured(inside(root, study, folder), folder) if results == THEORY else measured(root)
    about = (claims, cost, command, (), words, False, architectures)
    return Group(paper_of(study), study, results, True, is_current(artifact), *about)


def committed() -> Iterator[Group]:
    """Yield the verdicts of the project's own runs."""
    if not COMMITTED.is_file():
        return
    table = pd.read_csv(COMMITTED, keep_default_na=False, dtype=str)
    for (results, study), part in table.groupby(["results", "study"], sort=False):
        first = part.iloc[0]
        command = f"snakemake theory_{study}" if results == THEORY else first["command"]
        commands = part["command"].mask(part["command"] == command, "")
        rows = part.assign(verdict=part["of_quantity"], command=commands).to_dict("records")
        by_kind = {kind: part[part["kind"] == kind] for kind in ("claim", "identity")}
        summary = {kind: own.set_index("id")["verdict"].to_dict() for kind, own in by_kind.items()}
        claims = _claims(rows, summary)
        cost = Cost(*(float(first[key] or 0) for key in ("cpu_hours", "gpu_hours")), "measured")
        about = (claims, cost, command, (), first["data"])
        yield Group(first["paper"], study, results, True, True, *about, committed=True)


def _command(study: str, results: str, files: Mapping[str, Experiment]) -> str:
    if results == THEORY:
        return f"snakemake theory_{study}"
    return f"snakemake verdicts{files[results].options}" if results in files else UNKNOWN_FILE


def _untested(results: str, name: str, rows: Rows, cost: Cost, command: str, missing: tuple[str, ...] = ()) -> Group:
    summary = {kind: {row["id"]: row["verdict"] for row in rows} for kind in ("claim", "identity")}
    return Group(paper_of(name), name, results, False, True, _claims(rows, summary), cost, command, missing)


def _claims(rows: Rows, summary: Mapping[str, Mapping[str, str]]) -> list[JudgedClaim]:
    by: dict[tuple[str, str], Rows] = {}
    for row in rows:
        by.setdefault((row["kind"], row["id"]), []).append(row)
    texts = {key: (checks[0]["claim"], checks[0]["source"]) for key, checks in by.items()}
    return [JudgedClaim(id, *texts[kind, id], kind, summary[kind][id], checks) for (kind, id), checks in by.items()]


def folded(groups: Iterable[Group], kind: str = "claim", beyond: bool = False) -> dict[str, str]:
    """Return one verdict for each claim id over several experiments: the paper's own claims, or those `beyond` it."""
    found: dict[str, set[str]] = {}
    for one in (one for group in groups for one in group.claims if one.kind == kind and one.beyond == beyond):
        found.setdefault(one.id, set()).add(one.verdict)
    order = (FAILS, HOLDS, *ORDER)  # "not significant" in one experiment does not override others
    return {id: BOTH if {HOLDS, FAILS} <= of else next(one for one in order if one in of) for id, of in found.items()}


def tally(verdicts: Iterable[str]) -> dict[str, int]:
    """Count the verdicts, in the order of `VERDICTS`, without zeros."""
    counts = Counter(verdicts)
    return {one: counts[one] for one in VERDICTS if counts[one]}
