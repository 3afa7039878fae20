"""A cache between workflows: what is served is verified and believed, and edited code or a spoilt entry never is."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from granularity.stages.cluster.engines import faiss as engine
from granularity.stages.hierarchy.families import kmeans
from granularity.store.artifacts import Artifact, key_of
from granularity.store.cache import fetch, place_of, store
from support import tasks, writing


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made(output: Path, value: int = 7, param: int = 1, code: tuple[str, ...] = writing.THIS, inputs=None) -> Artifact:
    """What a workflow has in its own store."""
    with writing.create(output, "cluster", code, inputs, {"param": param}, facts=()) as out:
        out.array("values.npy", np.full(1000, value))
        out.summary["value"] = value
    return Artifact.open(output)


def shared(output: Path, **how) -> Path:
    """What it puts into the cache; returns the entry."""
    artifact = made(output, **how)
    store(artifact)
    return place_of("cluster", artifact.manifest["key"])


def served(folder: Path, param: int = 1, code: tuple[str, ...] = writing.THIS, inputs=None) -> Artifact | None:
    """What another workflow is served, in its own store."""
    return fetch(folder / ".store", "cluster", key_of(writing.origin("cluster", {"param": param}, code, inputs)))


def test_the_second_workflow_is_served(tmp_path, cache):
    shared(tmp_path / "mine" / "thing")
    first, second = Artifact.open(tmp_path / "mine" / "thing"), served(tmp_path / "yours")
    assert second.folder.is_relative_to(tmp_path / "yours")
    assert (second.digest, second.summary) == (first.digest, {"value": 7})
    assert second.manifest["cost"] == first.manifest["cost"]


def test_without_the_variable_nothing_is_shared(tmp_path):
    store(made(tmp_path / "mine"))
    assert served(tmp_path / "yours") is None


@pytest.mark.parametrize("change", [{"param": 2}, {"code": ("granularity.learning.runs",)}])
def test_other_parameters_or_code_are_not_served(tmp_path, cache, change):
    shared(tmp_path / "mine")
    assert served(tmp_path / "yours", **change) is None


def test_other_inputs_are_not_served_and_equal_ones_are(tmp_path, cache):
    cases = {"a": (1, 1), "b": (1, 2), "c": (3, 3)}
    one, same, other = (made(tmp_path / name, value, param) for name, (value, param) in cases.items())
    assert one.digest == same.digest  # the inputs are compared by content, wherever they lie and whatever they cost
    shared(tmp_path / "of one", inputs={"source": one}, param=9)
    assert served(tmp_path / "yours", inputs={"source": same}, param=9)
    assert served(tmp_path / "yours", inputs={"source": other}, param=9) is None


def test_another_target_is_made(tmp_path, cache, make_samples):
    """The sample tables are equal, file by file: what is the target is a parameter."""
    ranks = {"coarse": list("aabb") * 5, "fine": list("abcd") * 5}
    found = {}
    for target in ranks:
        samples = make_samples(tmp_path / target, ["train"] * 20, ranks, target)
        options = {"space": "manual-fine", "family": "manual", "params": {"rank": "fine"}}
        made = tasks.run("hierarchy", tmp_path / f"{target} space", options, samples=samples)
        found[target] = made.table("classes.parquet")["parent"].tolist()
    assert found == {"coarse": ["a", "a", "b", "b"], "fine": ["a", "b", "c", "d"]}


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    write(file, bytes(data))


def write(file: Path, data: bytes) -> None:
    file.chmod(0o644)
    file.write_bytes(data)


def forge(file: Path) -> None:
    manifest = json.loads(file.read_text())
    write(file, json.dumps({**manifest, "summary": {"value": 8}}).encode())


def link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("file", ["values.npy", "manifest.json"])
@pytest.mark.parametrize(
    "spoil", [flip, Path.unlink, lambda file: write(file, file.read_bytes()[:-8]), link, pipe, forge]
)
def test_a_spoilt_entry_is_never_served_and_is_named(tmp_path, cache, capsys, file, spoil):
    entry = shared(tmp_path / "mine")
    if file == "values.npy" and spoil is forge:
        spoil = flip
    spoil(entry / file)
    assert served(tmp_path / "yours") is None
    assert f"{entry}" in capsys.readouterr().err
    shared(tmp_path / "mine")
    assert served(tmp_path / "yours")  # the entry, one's own, was replaced by a sound one


def test_an_entry_under_the_wrong_name_is_never_served(tmp_path, cache, capsys):
    one, two = shared(tmp_path / "mine", value=1, param=1), shared(tmp_path / "yours", value=2, param=2)
    shutil.rmtree(two)
    one.rename(two)
    assert served(tmp_path / "again", param=2) is None
    assert "is another result than its place says" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch, capsys):
    (tmp_path / "cache").write_text("a file, not a folder")
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    shared(tmp_path / "mine")
    assert "the result is not shared" in capsys.readouterr().err


# ---------------------------------------------------------------- users

NEIGHBOUR = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")


@contextlib.contextmanager
def neighbour():
    os.seteuid(NEIGHBOUR)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def town(monkeypatch):
    """A cache that all may write, a folder of root's and one of a neighbour's."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    for name, mode in {"cache": 0o1777, "mine": 0o755, "yours": 0o777}.items():
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    monkeypatch.setenv("GRANULARITY_CACHE", str(folder / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "yours"))
    yield folder
    shutil.rmtree(folder)


@needs_root
def test_a_cache_that_may_not_be_looked_into_costs_no_result(town):
    (town / "cache").chmod(0o700)
    with neighbour():
        assert served(town / "yours") is None
        assert shared(town / "yours" / "thing")


@needs_root
def test_an_entry_of_another_user_is_served_to_those_who_trust_its_owner(town, monkeypatch, capsys):
    before = os.umask(0o077)
    try:
        entry = shared(town / "mine" / "thing")
    finally:
        os.umask(before)
    with neighbour():
        assert served(town / "yours") is None
        assert f"{entry / 'manifest.json'}: not believed: it belongs to user root" in capsys.readouterr().err
        trust = town / "yours" / "trust"
        trust.write_text("user root\n")
        monkeypatch.setenv("GRANULARITY_TRUST", str(trust))
        found = served(town / "yours")
        assert found.summary == {"value": 7}
        assert found.folder.stat().st_uid == NEIGHBOUR
    assert not any(path.stat().st_mode & 0o022 for path in entry.rglob("*"))  # others may read it, and nobody write it


@needs_root
def test_a_correctly_hashed_entry_of_a_stranger_is_refused_and_named(town, capsys):
    """Labels shifted by one, with digest, key and seal made anew: it would be sound."""
    with neighbour():
        forged = shared(town / "yours" / "thing", value=8, param=2)
    assert served(town / "mine", param=2) is None
    said = capsys.readouterr().err
    assert f"{forged / 'manifest.json'}: not believed: it belongs to user nobody" in said and "is made here" in said


@needs_root
def test_a_signed_entry_is_served_to_those_who_trust_the_key(town, monkeypatch, capsys):
    for name in ("hers", "his"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", town / "mine" / name], check=True)
    monkeypatch.setenv("GRANULARITY_SIGN", str(town / "mine" / "hers"))
    entry = shared(town / "mine" / "thing")
    monkeypatch.delenv("GRANULARITY_SIGN")
    trust = town / "yours" / "trust"
    monkeypatch.setenv("GRANULARITY_TRUST", str(trust))
    with neighbour():
        trust.write_text((town / "mine" / "his.pub").read_text())
        assert served(town / "yours") is None
        assert "the key that signed it is not believed" in capsys.readouterr().err
        trust.write_text((town / "mine" / "hers.pub").read_text())
        assert served(town / "yours").summary == {"value": 7}
        shutil.rmtree(town / "yours" / ".store")
    flip(entry / "manifest.sig")
    with neighbour():
        assert served(town / "yours") is None
    assert "not believed" in capsys.readouterr().err


# ---------------------------------------------------------------- through stages


def test_clusterings_and_label_spaces_are_shared(tmp_path, cache, monkeypatch, make_samples, make_array):
    ranks = {"kind": list("ab") * 20}
    for user in ("mine", "yours"):
        samples = make_samples(tmp_path / user / "samples", ["train"] * 40, ranks, "kind")
        values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
        embed = make_array(tmp_path / user / "embed", "embed", samples, values)
        clusters = tmp_path / user / "whole-3"
        tasks.run("cluster", clusters, {"clustering": "whole-3"}, anew=False, samples=samples, embed=embed)
        options = {"space": "kmeans-3", "family": "kmeans", "params": {"clusterings": ["whole-3"]}}
        given = {"samples": samples, "cluster": clusters, "embed": embed}
        tasks.run("hierarchy", tmp_path / user / "space", options, anew=False, **given)
        monkeypatch.setattr(engine, "cluster", None)  # the second user computes nothing
        monkeypatch.setattr(kmeans, "labels", None)
    for name in ("whole-3", "space"):
        mine, yours = (Artifact.open(tmp_path / user / name) for user in ("mine", "yours"))
        assert mine.digest == yours.digest
        assert mine.folder != yours.folder
