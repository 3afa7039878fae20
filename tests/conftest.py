"""Small artifacts that the tests of the stages share; each takes well under a second to make."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tallies
from granularity.config import options
from granularity.stages.pixels import stage as pixels
from granularity.stages.samples import stage as samples
from granularity.stages.samples.ranks import taxonomy
from granularity.store import artifacts, checkpoints
from granularity.store.artifacts import Artifact


def pytest_terminal_summary(terminalreporter):
    for line in tallies.lines():
        terminalreporter.write_line(line)


@pytest.fixture
def checkpoint_always(monkeypatch):
    """Save the state of long work after every step, so that a kill anywhere has something to resume from."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Path:
    """A sample table of 120 training and 60 validation digits."""
    folder = tmp_path_factory.mktemp("digits") / "samples"
    samples.run(options.Samples(validation=60), options.Condition(train_size=120), 0, folder)
    return folder


@pytest.fixture(scope="session")
def digits_pixels(digits) -> Path:
    folder = digits.parent / "pixels"
    pixels.run(options.Pixels(), digits, folder)
    return folder


@pytest.fixture(scope="session")
def tiny_results(tmp_path_factory):
    """A finished chain of every kind of artifact, a theory world too: its folder, and the steps that made it."""
    import tiny_chain

    folder = tmp_path_factory.mktemp("tiny")
    with tiny_chain.tiny_world(), contextlib.chdir(folder):
        made = tiny_chain.steps(options.Config.model_validate(tiny_chain.TINY), tiny_chain.WORLD)
        for step in made:
            step.run()
    return folder, made


@pytest.fixture(scope="session")
def make_samples():
    """Write a sample table with labels of your own choosing: make_samples(folder, split, {rank: names})."""

    def make(folder: Path, split: list[str], ranks: dict[str, list[str]], target: str, **over) -> Path:
        frame = pd.DataFrame({"sample_id": [f"image {i}" for i in range(len(split))], "split": split, **ranks})
        frame = frame.assign(**over.pop("columns", {})).astype(dict.fromkeys(ranks, "category"))
        params = {"target": target, "ranks": list(ranks), "root": None, **over}
        with artifacts.create(folder, "samples", "granularity.stages.samples.stage", {}, params) as out:
            out.table("samples.parquet", frame)
            out.table("taxonomy.parquet", taxonomy(frame, list(ranks)))
        return folder

    return make


@pytest.fixture(scope="session")
def make_array():
    """Write pixels or an embedding of your own choosing: make_array(folder, kind, samples, values)."""

    def make(folder: Path, kind: str, of: Path, values: np.ndarray) -> Path:
        module = {"pixels": "granularity.stages.pixels.stage", "embedding": "granularity.stages.embed.stage"}[kind]
        with artifacts.create(folder, kind, module, {"samples": Artifact.open(of)}, {}) as out:
            out.array(f"{kind}.npy", values)
        return folder

    return make


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
