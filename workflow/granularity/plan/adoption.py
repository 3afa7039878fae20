"""Accept results of other code after an edit that should not change any result: `granularity adopt`."""

import getpass
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.stage import Job
from granularity.plan import commands
from granularity.plan.fresh import Results
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import place, writer
from granularity.store.artifact import ORIGIN, PARTS, Artifact, key_of
from granularity.store.lock import host

TRIAL = ".trial"


@dataclass(frozen=True)
class Outdated:
    """A result that differs from the plan only by code or packages; `origin` has the present ones."""

    plan: Plan
    job: Job
    artifact: Artifact
    origin: dict[str, Any]

    @property
    def change(self) -> tuple:
        """The change, as a hashable tuple; one piece of evidence accepts all results with the same change."""
        old, new = self.artifact.manifest, self.origin
        both = [
            (name, old["packages"].get(name, "none"), new["packages"].get(name, "none"))
            for name in sorted({*old["packages"], *new["packages"]})
        ]
        versions = tuple(f"{name} {before} -> {now}" for name, before, now in both if before != now)
        return (self.job.stage, tuple(new["code"]["modules"]), old["code"]["digest"], new["code"]["digest"], versions)


def changes(plans: Sequence[Plan]) -> dict[tuple, list[Outdated]]:
    """Return the results that other code or packages made, by change, the cheapest to recompute first."""
    found: dict[tuple, list[Outdated]] = {}
    for one in (one for plan in plans for one in _outdated(plan)):
        found.setdefault(one.change, []).append(one)
    for same in found.values():
        same.sort(key=lambda one: one.artifact.manifest["cost"]["wall_seconds"])
    return found


def _outdated(plan: Plan) -> Iterator[Outdated]:
    results = Results(plan)
    for stage in STAGES.values():
        for job in () if stage.volatile else plan.jobs(stage.name):
            try:
                differing = {*results.differing(job)}
            except GranularityError:  # missing: Snakemake makes it
                continue
            if differing and differing <= {"code", "packages"}:
                artifact, task = results.open(job), results.task(job)
                now = {name: task.states(name) for name in ("code", "packages")}
                yield Outdated(plan, job, artifact, {name: artifact.manifest[name] for name in ORIGIN} | now)


def evidence(one: Outdated) -> Artifact:
    """Recompute a result by its job's command. Raise GranularityError if that fails, or the result differs."""
    plan, job, old = one.plan, one.job, one.artifact
    trial = place.store_of(old.place) / TRIAL / secrets.token_hex(8)
    trial.parent.mkdir(parents=True, exist_ok=True)
    # This program, not another that PATH may have first.
    _, *words = commands.words(plan, job, output=str(trial))
    words = [sys.executable, "-m", "granularity", *words, "--threads", str(commands.threads(plan, job))]
    try:
        ended = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            raise GranularityError(f"{old.path}: cannot be recomputed for comparison ({last})")
        new = Artifact.open(trial)
    finally:
        trial.unlink(missing_ok=True)
        place.stamp_of(trial).unlink(missing_ok=True)
    if (code := new.manifest["code"]["digest"]) != one.origin["code"]["digest"]:
        raise GranularityError(
            f"{old.path}: was recomputed by other code ({code}) than is to be adopted "
            f"({one.origin['code']['digest']}); nothing is adopted. Was a file edited meanwhile?"
        )
    if new.digest != old.digest:
        raise GranularityError(
            f"{old.path}: the recomputed result differs ({new.digest[:12]}, was {old.digest[:12]}); nothing of this "
            "change is adopted. Run snakemake, which recomputes the results"
        )
    return new


def adopt(one: Outdated, proof: Artifact) -> None:
    """Publish a result under the key of the present code, and record the evidence in its manifest."""
    old = one.artifact
    if key_of(one.origin) == proof.manifest["key"]:
        place.point(old.place, proof.folder, proof.kind, proof.digest)
        return
    for problem in old.corrupt():
        raise GranularityError(f"{problem}; {old.remedy}")
    by = {
        "evidence": {"name": proof.manifest["name"], "key": proof.manifest["key"], "digest": proof.digest},
        "by": f"{getpass.getuser()} on {host()}",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }

    def again(old: Artifact, origin: dict[str, Any], parts: dict[str, Artifact]) -> Artifact:
        before = {name: old.manifest[name] for name in ("key", "code", "packages")}
        return writer.again(old, origin, parts, adopted={"from": before, **by})

    now = {name: one.origin[name] for name in ("code", "packages")}
    parts = {role: again(part, now, {}) for role, part in old.lineage().items() if part.kind in PARTS}
    copy = again(old, one.origin, parts)
    place.point(old.place, copy.folder, copy.kind, copy.digest)


def run(plans: Sequence[Plan]) -> list[str]:
    """Adopt all results of some plans that can be adopted; return the refusals, one line each."""
    refused, by_change = [], changes(plans)
    if not by_change:
        say(f"{plans[-1].root}: nothing to adopt; no result is of other code or package versions")
    for change, same in by_change.items():
        stage, _, before, now, versions = change
        text = ", ".join([*([f"code {before} -> {now}"] if before != now else []), *versions])
        cheapest = same[0]
        seconds = cheapest.artifact.manifest["cost"]["wall_seconds"]
        say(f"{stage}: {text}: {len(same)} results; recomputing {cheapest.artifact.path} (it took {seconds:.1f} s)")
        try:
            proof = evidence(cheapest)
            for result in same:
                adopt(result, proof)
        except GranularityError as error:
            refused += error.args
        else:
            say(f"{stage}: equal ({proof.digest[:12]}); {len(same)} results adopted")
    return refused
