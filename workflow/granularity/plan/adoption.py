"""Accepting results of other code: `granularity adopt`.

After an edit that is meant to change nothing, or an upgrade of a package, Snakemake would make results again. Instead
the cheapest job of each kind of code is made again, and compared. Where the bytes are equal, all results of that code
are published once more under the key of the present code, their files shared and their manifests saying on what
evidence; where they are not, nothing is accepted.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.stage import Job
from granularity.plan import commands, resources
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import generations, manifests, writer
from granularity.store.artifacts import MANIFEST, ORIGIN, PARTS, Artifact, key_of
from granularity.store.claim import host
from granularity.store.task import Task

TRIAL = ".trial"


@dataclass(frozen=True)
class Outdated:
    """A result that only other code, or other packages, have made; `origin` is what it would be made from now."""

    job: Job
    artifact: Artifact
    origin: dict[str, Any]

    @property
    def change(self) -> tuple:
        """What has changed: results of one change are accepted on one piece of evidence."""
        old, new = self.artifact.manifest, self.origin
        packages = {name for name in {*old["packages"], *new["packages"]} if _version(old, name) != _version(new, name)}
        versions = tuple(f"{name} {_version(old, name)} -> {_version(new, name)}" for name in sorted(packages))
        return (self.job.stage, tuple(new["code"]["modules"]), old["code"]["digest"], new["code"]["digest"], versions)


def _version(origin: dict[str, Any], package: str) -> str:
    return origin["packages"].get(package, "none")


def changes(plan: Plan) -> dict[tuple, list[Outdated]]:
    """The results of a configuration that other code has made, by change; the cheapest to make first."""
    found: dict[tuple, list[Outdated]] = {}
    for one in _outdated(plan):
        found.setdefault(one.change, []).append(one)
    for same in found.values():
        same.sort(key=lambda one: one.artifact.manifest["cost"]["wall_seconds"])
    return found


def _outdated(plan: Plan) -> Iterator[Outdated]:
    for stage in STAGES.values():
        for job in () if stage.volatile else plan.jobs(stage.name):
            try:
                artifact = Artifact.peek(plan.folder(job))
                inputs = {role: tuple(map(plan.folder, jobs)) for role, jobs in job.inputs.items()}
                options = stage.model.model_validate(job.options)
                seed, machine = plan.config.seeds.base, artifact.manifest["machine"]
                origin = Task(stage, plan.folder(job), options, inputs, seed, machine=machine).origin
            except GranularityError:  # it, or an input, is not there: Snakemake makes it
                continue
            made = artifact.manifest
            alike = all(made[name] == origin[name] for name in ORIGIN if name != "packages")
            if alike and key_of(origin) != made["key"]:
                yield Outdated(job, artifact, origin)


def evidence(plan: Plan, one: Outdated) -> Artifact:
    """Make a result again, by the command of its job, without letting its name lead to it.

    Raises:
        GranularityError: it cannot be made, or is another one.
    """
    job, old = one.job, one.artifact
    trial = generations.store_of(old.place) / TRIAL / secrets.token_hex(8)
    trial.parent.mkdir(parents=True, exist_ok=True)
    words = [*commands.words(plan, job, output=str(trial)), "--threads", str(resources.threads(plan, job))]
    try:
        ended = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            raise GranularityError(f"{old.path}: cannot be made again to compare ({last})")
        new = Artifact.open(trial)
    finally:
        trial.unlink(missing_ok=True)
        generations.stamp_of(trial).unlink(missing_ok=True)
    if new.digest != old.digest:
        raise GranularityError(
            f"{old.path}: made again it is another ({new.digest[:12]}, was {old.digest[:12]}); nothing of this change "
            "is adopted. Run snakemake, which makes the results again"
        )
    return new


def adopt(one: Outdated, proof: Artifact) -> None:
    """Publish a result under the key of the present code, and say in its manifest on what evidence."""
    old = one.artifact
    store = generations.store_of(old.place)
    if key_of(one.origin) == proof.manifest["key"]:
        generations.point(old.place, proof.folder, proof.kind, proof.digest)
        return
    for problem in old.corrupt():
        raise GranularityError(f"{problem}; delete {generations.stamp_of(old.path)}, and snakemake makes it again")
    by = {
        "evidence": {"name": proof.manifest["name"], "key": proof.manifest["key"], "digest": proof.digest},
        "by": f"{getpass.getuser()} on {host()}",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    now = {name: one.origin[name] for name in ("code", "packages")}
    parts = {role: part for role, part in old.lineage().items() if part.kind in PARTS}
    parts = {role: _again(store, part, now, by, {}) for role, part in parts.items()}
    made = _again(store, old, one.origin, by, parts)
    generations.point(old.place, made.folder, made.kind, made.digest)


def _again(
    store: Path, old: Artifact, origin: Mapping[str, Any], by: Mapping[str, Any], parts: Mapping[str, Artifact]
) -> Artifact:
    """Publish the files of a result once more, under another origin; `parts` are the runs that it holds, by role."""
    folder = store / generations.NEW / secrets.token_hex(8)
    folder.mkdir(parents=True)
    try:
        for name in old.manifest["files"]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(old.folder / name, folder / name)
        manifest = {**old.manifest, **origin}
        manifest["key"] = key_of(manifest)
        place = generations.generation(store, old.kind, manifest["key"])
        held = {role: {"path": os.path.relpath(part.folder, place)} for role, part in parts.items()}
        manifest["inputs"] = {role: entry | held.get(role, {}) for role, entry in old.manifest["inputs"].items()}
        before = {name: old.manifest[name] for name in ("key", "code", "packages")}
        manifest["adopted"] = {"from": before, **by}
        text = manifests.as_text({**manifest, "seal": manifests.seal(manifest)})
        (folder / MANIFEST).write_text(text, encoding="utf-8")
        return writer.publish(folder, store, manifest)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(plan: Plan) -> list[str]:
    """Adopt what can be adopted of a configuration's results.

    Returns:
        what was refused, one line each.
    """
    refused = []
    for change, same in changes(plan).items():
        stage, _, before, now, versions = change
        what = ", ".join([*([f"code {before} -> {now}"] if before != now else []), *versions])
        cheapest = same[0]
        seconds = cheapest.artifact.manifest["cost"]["wall_seconds"]
        say(f"{stage}: {what}: {len(same)} results; making {cheapest.artifact.path} again (it took {seconds:.1f} s)")
        try:
            proof = evidence(plan, cheapest)
            for one in same:
                adopt(one, proof)
        except GranularityError as error:
            refused += error.args
        else:
            say(f"{stage}: equal ({proof.digest[:12]}); {len(same)} results adopted")
    return refused
