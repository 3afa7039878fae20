"""A job as its stage sees it; and its result, which is found in the store or in the shared cache, or made."""

import contextlib
import importlib
import os
import pwd
import secrets
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.stage import Stage
from granularity.store import lock, place, writer
from granularity.store.artifact import ORIGIN, Artifact, key_of
from granularity.store.code import RESULT_VERSION, code_digest, packages
from granularity.store.place import MANIFEST
from granularity.store.writer import Writer

TRUST = "GRANULARITY_TRUST"


@dataclass(frozen=True)
class Task:
    """One job, as a stage's `run` takes it."""

    stage: Stage
    output: Path  # the name of its result: a path that is to lead to it
    options: Any  # an instance of `stage.model`
    inputs: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)  # role -> names of artifacts
    seed: int = 0  # the base seed
    device: str = "auto"  # or cpu, cuda
    threads: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)  # see :func:`granularity.machine.device.machine`
    peek: Callable[[Path], Artifact] = Artifact.peek  # how the digests of its inputs are found

    @property
    def code(self) -> tuple[str, ...]:
        """The code that makes the result, see :meth:`granularity.base.stage.Stage.code`."""
        return self.stage.code(self.options)

    def states(self, name: str) -> Any:
        """What decides the bytes of the result, by the names of ORIGIN: the one statement of what a result is.

        Its key is over it, and what is out of date, or can be adopted, is held against it (granularity.plan.fresh).
        `made_from` has the digests of the inputs by role (with their names, where the stage shows those), `outside`
        those of files that the options name; `machine` counts where sums of floating-point numbers decide last bits.
        """
        of = {
            "kind": lambda: self.stage.name,
            "schema_version": lambda: RESULT_VERSION,
            "options": lambda: dict(self.stage.asked(self.options)),
            "made_from": lambda: {role: self.made_from(role) for role, paths in self.inputs.items() if paths},
            "seed": lambda: self.seed if self.stage.seeded else None,
            "outside": lambda: dict(self.stage.outside(self.options)),
            "machine": lambda: {} if self.stage.exact else dict(self.machine),
            "code": lambda: {"modules": list(self.code), "digest": code_digest(*self.code)},
            "packages": lambda: packages(*self.code),
        }
        return of[name]()

    @cached_property
    def origin(self) -> dict[str, Any]:
        """All of it: the first lines of the result's manifest."""
        return {name: self.states(name) for name in ORIGIN}

    def made_from(self, role: str) -> list:
        """The digests of the inputs of a role; a GranularityError where one is not there."""
        found = [self.peek(path) for path in self.inputs[role]]
        if not self.stage.shows_names:
            return [one.digest for one in found]
        return [[os.path.relpath(one.path, self.output.parent), one.digest] for one in found]

    @property
    def key(self) -> str:
        return key_of(self.origin)

    def origin_of_part(self, options: Mapping[str, Any], made_from: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """As :attr:`origin`, of a single run that the result is to hold; it has no names of a configuration."""
        return {**self.origin, "options": dict(options), "made_from": {role: [*of] for role, of in made_from.items()}}

    def path(self, role: str) -> Path | None:
        """The one artifact of a role; None where there is none."""
        return next(iter(self.paths(role)), None)

    def paths(self, role: str) -> tuple[Path, ...]:
        return self.inputs.get(role, ())

    def open(self, role: str) -> Artifact:
        """The one artifact of a role, verified."""
        return Artifact.open(self.path(role), self.kind(role))

    def open_all(self, role: str) -> list[Artifact]:
        """All artifacts of a role, verified."""
        return [Artifact.open(path, self.kind(role)) for path in self.paths(role)]

    def kind(self, role: str) -> str:
        """The kind of artifact that a role takes."""
        return self.stage.inputs[role].rstrip("?*")

    def create(self, *of: Any, **how: Any) -> AbstractContextManager[Writer]:
        """:func:`granularity.store.writer.create` of this task's result: inputs, params, facts, resumable."""
        return writer.create(self.output, self.origin, *of, **how, files=(*self.stage.files, *self.stage.more_files))


def make(task: Task) -> Artifact:
    """Find a task's result in the store or the shared cache, or make it; then let its name lead to it."""
    for role, paths in task.inputs.items():
        if any(os.path.abspath(path) == os.path.abspath(task.output) for path in paths):
            raise GranularityError(f"{task.output}: the input '{role}' lies there; choose another --output")
    run = None
    while (found := find(task)) is None:
        # Imported only where there is something to compute: torch takes seconds.
        run = run or importlib.import_module(task.stage.module).run
        try:
            run(task)
        except lock.LostError as lost:
            say(str(lost))
    return found


def find(task: Task) -> Artifact | None:
    """Find a task's result, waiting for whoever is making it, and let its name lead to it; None where there is none."""
    store, kind, key = place.store_of(task.output), task.stage.name, task.key
    if (found := writer.sound(store, kind, key)) is None:
        lock.wait(place.lock_file(store, kind, key), task.output)
        found = writer.sound(store, kind, key)
    if found is None and task.stage.shared:
        found = fetch(store, kind, key)
    elif found is not None and task.stage.shared:
        share(found)
    if found is not None:
        place.point(task.output, found.folder, kind, found.digest)
        # What a job saved that died just after publishing, or that woke just after another one had tidied up.
        place.close_work(place.work_folder(store, kind, key))
    return found


# ---------------------------------------------------------------- the shared cache

# `snakemake --cache` names the folder, in GRANULARITY_CACHE. An entry counts where its manifest belongs to oneself or
# to a user whom GRANULARITY_TRUST names (`alice,bob`), and nobody else can write it; it is copied, and the copy
# verified. What is refused is named, and the result is made here. (Snakemake's own cache verifies nothing.)


def trusted() -> set[int]:
    """Numbers of the users whose entries count: oneself, and those of this machine that GRANULARITY_TRUST names."""
    users = {os.geteuid()}
    for name in filter(None, (word.strip() for word in os.environ.get(TRUST, "").split(","))):
        try:
            users.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise GranularityError(f"{TRUST}: there is no user '{name}'; write names with commas: alice,bob") from None
    return users


def fetch(store: Path, kind: str, key: str) -> Artifact | None:
    """Bring a result from the cache into a store; None where the cache has none that is sound and trusted."""
    entry = _entry(kind, key)
    if entry is None or not os.path.isdir(entry):
        return None
    with place.new_folder(store) as folder:
        try:
            if (wrong := _distrusted(entry)) is None:
                shutil.copytree(entry, folder, symlinks=True, copy_function=shutil.copyfile, dirs_exist_ok=True)
                copy = Artifact.peek(folder)
                wrong = next(copy.corrupt(anew=True), None)
                if wrong is None and (copy.kind, copy.manifest["key"]) == (kind, key):
                    return writer.publish(folder, store, copy.manifest)
                wrong = wrong or f"{entry}: is another result than its place says"
        except GranularityError as error:
            wrong = str(error)
        except OSError as error:
            if not os.path.isdir(entry):  # it was removed meanwhile
                return None
            wrong = f"{entry}: cannot be read ({error})"
    say(f"{wrong.replace(str(folder), str(entry))}; this entry of the cache is not used, and the result is made here")
    if entry.stat().st_uid == os.geteuid():
        shutil.rmtree(entry, ignore_errors=True)
    return None


def share(artifact: Artifact) -> None:
    """Put a result into the cache. That it cannot be is said, and is no failure."""
    entry = _entry(artifact.kind, artifact.manifest["key"])
    if entry is None or os.path.exists(entry):
        return
    temporary = entry.with_name(f".{entry.name}-{secrets.token_hex(8)}")
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(artifact.folder, temporary, copy_function=shutil.copyfile)
        _permit(entry.parents[1], entry.parent, temporary)
        temporary.rename(entry)
    except OSError as error:
        if not os.path.exists(entry):  # or another workflow was quicker
            say(f"{entry}: cannot be written ({error}); the result is not shared")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _entry(kind: str, key: str) -> Path | None:
    cache = os.environ.get("GRANULARITY_CACHE")
    return place.generation(Path(cache), kind, key) if cache else None


def _distrusted(entry: Path) -> str | None:
    """Why an entry is not trusted, if it is not."""
    for path in (entry / MANIFEST, entry):
        about = path.lstat()
        if (owner := about.st_uid) not in trusted():
            with contextlib.suppress(KeyError):
                owner = pwd.getpwuid(owner).pw_name
            return f"{path}: belongs to user {owner}, whom {TRUST} does not name"
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"{path}: others can write it (mode {stat.S_IMODE(about.st_mode):04o})"
    return None


def _permit(cache: Path, kind: Path, entry: Path) -> None:
    """Let whoever may write in the cache add entries, and read this one, whatever the umask; write it may nobody."""
    mode = stat.S_IMODE(cache.stat().st_mode) & ~stat.S_ISVTX
    if kind.stat().st_uid == os.geteuid():
        kind.chmod(mode)
    for path in (entry, *entry.rglob("*")):
        path.chmod(mode & 0o755 if path.is_dir() else mode & 0o444)
