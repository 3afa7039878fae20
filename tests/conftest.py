"""Small artifacts that the tests of the stages share; each takes well under a second to make."""

import contextlib
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import granularity  # noqa: F401  (first, as a command does: it says which loops libraries take)

# isort: split
import numpy as np
import pandas as pd
import pytest

from granularity.config.options import Config
from granularity.data import moments
from granularity.store import resume
from granularity.store.artifact import Artifact
from support import tasks, warm, writing
from support.photographs import moments_of
from support.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401


def pytest_collection_modifyitems(items):
    """Of several processes that share the tests, none is to wait for one that takes long: those come first."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.get_closest_marker("workflow") is None)


# The hundreds of commands that tests start would each compile the package again where an environment asks for that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory):
    """Tests leave no records of hashes in the user's cache; what libraries keep there, they find."""
    users, private = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"), tmp_path_factory.mktemp("cache")
    for place in users.iterdir() if users.is_dir() else ():
        if place.name != "granularity":
            (private / place.name).symlink_to(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(private))
        yield


@pytest.fixture
def checkpoint_always(monkeypatch):
    """Save the state of long work after every step, so that a kill anywhere has something to resume from."""
    monkeypatch.setattr(resume, "CHECKPOINT_SECONDS", 0.0)


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Path:
    """A sample table of 120 training and 60 validation digits."""
    folder = tmp_path_factory.mktemp("digits") / "samples"
    tasks.run("samples", folder, {"validation": 60, "train_size": 120})
    return folder


@pytest.fixture(scope="session")
def digits_pixels(digits) -> Path:
    folder = digits.parent / "pixels"
    tasks.run("pixels", folder, samples=digits)
    return folder


@pytest.fixture(scope="session")
def tiny_results(tmp_path_factory):
    """A finished chain of every kind of artifact, a theory world too: its folder, and the steps that made it."""
    from support import tiny_chain

    folder = tmp_path_factory.mktemp("tiny")
    with tiny_chain.tiny_world(), contextlib.chdir(folder):
        made = tiny_chain.steps(Config.model_validate(tiny_chain.TINY), tiny_chain.WORLD)
        for step in made:
            step.run()
    return folder, made


@pytest.fixture(scope="session")
def make_samples():
    """Write a sample table with labels of your own choosing: make_samples(folder, split, {rank: names})."""

    from granularity.stages.samples.ranks import taxonomy

    def make(folder: Path, split: list[str], ranks: dict[str, list[str]], target: str, **over) -> Path:
        frame = pd.DataFrame({"sample_id": [f"image {i}" for i in range(len(split))], "split": split, **ranks})
        frame = frame.assign(**over.pop("columns", {})).astype(dict.fromkeys(ranks, "category"))
        params = {"source": "table", "wordnet": None, "checksums": "content"}
        params |= {"target": target, "ranks": list(ranks), "root": None, **over}
        code, facts = ("granularity.stages.samples.stage",), [name for name in params if name != "root"]
        facts += ["root"] if params["checksums"] == "size" else []  # as the stage has it
        with writing.create(folder, "samples", code, {}, params, facts=facts, **writing.unlike_any()) as out:
            out.table("samples.parquet", frame)
            out.table("taxonomy.parquet", taxonomy(frame, list(ranks)))
        return folder

    return make


@pytest.fixture(scope="session")
def make_array():
    """Write pixels or an embedding of your own choosing: make_array(folder, kind, samples, values)."""

    def make(folder: Path, kind: str, of: Path, values: np.ndarray) -> Path:
        file = {"pixels": "pixels.npy", "embed": "embedding.npy"}[kind]
        code = (f"granularity.stages.{kind}.stage",)
        with writing.create(folder, kind, code, {"samples": Artifact.open(of)}, {}, **writing.unlike_any()) as out:
            out.array(file, values)
            if kind == "pixels":
                split = Artifact.open(of).table("samples.parquet", ["split"])["split"].to_numpy()
                out.json(moments.FILE, moments_of(split, values))
        return folder

    return make


@pytest.fixture(scope="session")
def processes():
    """Run lines of Python in a process that may start others: processes(code) has its `status` and what it `said`."""
    paths = os.pathsep.join(str(Path(__file__).parents[1] / name) for name in ("workflow", "tests"))

    def go(code: str, **environment: str) -> SimpleNamespace:
        command, known = [warm.commands() / "lines", code], os.environ | {"PYTHONPATH": paths}
        ended = subprocess.run(command, env=known | environment, stderr=subprocess.PIPE, text=True, timeout=120)
        return SimpleNamespace(status=ended.returncode, said=ended.stderr.splitlines())

    return go


class Killed(Exception):
    """What the tests raise in the midst of long work: no part of the code may swallow it."""


@pytest.fixture
def kill_at(monkeypatch):
    """Make the n-th call of a function raise; returns the list that grows by one entry a call, its arguments."""

    def patch(owner, name: str, n: int | None) -> list[tuple]:
        original, calls = getattr(owner, name), []

        def counted(*args, **kwargs):
            calls.append(args)
            if len(calls) == n:
                raise Killed
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)
        return calls

    patch.Killed = Killed
    return patch
