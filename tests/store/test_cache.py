"""A cache between workflows: what is served is verified, and neither edited code nor a corrupt entry ever is."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest

from granularity.stages.cluster import stage as cluster
from granularity.stages.hierarchy.families import kmeans
from granularity.store import artifacts, provenance
from granularity.store.artifacts import Artifact
from support import tasks, writing


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


MADE: list[str] = []


def make(
    output: Path, value: int = 7, param: int = 1, code: tuple[str, ...] = ("granularity.base.seeds",), inputs=None
) -> Artifact:
    with writing.create(output, "cluster", code, inputs or {}, {"param": param}, shared=True) as out:
        if not out.cached:
            MADE.append(str(output))
            out.array("values.npy", np.full(1000, value))
            out.summary["value"] = value
    return Artifact.open(output)


@pytest.fixture(autouse=True)
def nothing_made():
    MADE.clear()


def test_the_second_workflow_is_served(tmp_path, cache):
    first = make(tmp_path / "mine" / "thing")
    second = make(tmp_path / "yours" / "deep" / "thing")
    assert [str(tmp_path / "mine" / "thing")] == MADE
    assert second.digest == first.digest
    assert second.summary == {"value": 7}
    assert second.manifest["cached"].startswith(str(cache))
    assert second.manifest["cost"] == first.manifest["cost"]


def test_without_the_variable_nothing_is_shared(tmp_path):
    make(tmp_path / "mine")
    make(tmp_path / "yours")
    assert len(MADE) == 2


@pytest.mark.parametrize("change", [{"param": 2}, {"code": ("granularity.learning.runs",)}])
def test_other_parameters_or_code_are_made(tmp_path, cache, change):
    make(tmp_path / "mine")
    make(tmp_path / "yours", **change)
    assert len(MADE) == 2


def test_other_inputs_are_made_and_equal_ones_served(tmp_path, cache):
    one, same, other = (
        make(tmp_path / name, value, param) for name, value, param in (("a", 1, 1), ("b", 1, 2), ("c", 3, 3))
    )
    assert one.digest == same.digest  # the inputs are compared by content, wherever they lie and whatever they cost
    MADE.clear()
    make(tmp_path / "of one", inputs={"source": one}, param=9)
    of_same = make(tmp_path / "of same", inputs={"source": same}, param=9)
    make(tmp_path / "of other", inputs={"source": other}, param=9)
    assert [Path(name).name for name in MADE] == ["of one", "of other"]
    assert of_same.lineage()["source"].path.resolve() == same.path.resolve()


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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_cache_that_may_not_be_looked_into_costs_no_result(monkeypatch):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        for name, mode in {"cache": 0o700, "mine": 0o777, ".": 0o755}.items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name).chmod(mode)
        monkeypatch.setenv("GRANULARITY_CACHE", str(folder / "cache"))
        os.seteuid(65534)
        try:
            assert make(folder / "mine" / "thing").summary == {"value": 7}
        finally:
            os.seteuid(0)
    finally:
        shutil.rmtree(folder)


def test_an_edited_module_is_never_served(tmp_path, cache, monkeypatch):
    make(tmp_path / "mine")
    monkeypatch.setattr(artifacts, "code_digest", lambda module: "edited")
    make(tmp_path / "yours")
    assert len(MADE) == 2


def test_other_package_versions_are_not_served(tmp_path, cache, monkeypatch):
    make(tmp_path / "mine")
    monkeypatch.setattr(provenance, "package_versions", lambda: {"numpy": "0"})
    make(tmp_path / "yours")
    assert len(MADE) == 2


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def forge(file: Path) -> None:
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps({**manifest, "summary": {"value": 8}}))


@pytest.mark.parametrize(
    ("file", "spoil"),
    [
        ("values.npy", flip),
        ("values.npy", Path.unlink),
        ("values.npy", lambda file: file.write_bytes(file.read_bytes()[:-8])),
        ("manifest.json", flip),
        ("manifest.json", Path.unlink),
        ("manifest.json", forge),
    ],
)
def test_a_corrupt_entry_is_never_served(tmp_path, cache, capsys, file, spoil):
    make(tmp_path / "mine")
    (entry,) = (cache / "cluster").iterdir()
    spoil(entry / file)
    assert set(make(tmp_path / "yours").array("values.npy")) == {7}
    assert len(MADE) == 2
    assert f"{entry}" in capsys.readouterr().err
    make(tmp_path / "theirs")
    assert len(MADE) == 2  # the entry was replaced by a sound one


def test_an_entry_under_the_wrong_name_is_never_served(tmp_path, cache):
    make(tmp_path / "mine", value=1, param=1)
    make(tmp_path / "yours", value=2, param=2)
    one, two = sorted((cache / "cluster").iterdir())
    one.rename(cache / "x")
    two.rename(one)
    (cache / "x").rename(two)
    MADE.clear()
    assert set(make(tmp_path / "again", value=1, param=1).array("values.npy")) == {1}
    assert len(MADE) == 1


def link(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def test_links_in_an_entry_are_not_followed(tmp_path, cache):
    make(tmp_path / "mine")
    (entry,) = (cache / "cluster").iterdir()
    link(entry / "values.npy")
    make(tmp_path / "yours")
    assert len(MADE) == 2
    assert not entry.joinpath("values.npy").is_symlink()  # replaced by a sound one


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")
def test_users_share_as_the_mode_of_the_cache_lets_them(monkeypatch):
    """Whoever may write in it reads the entries of others, and removes those that are corrupt."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o755)
        for name, mode in {"cache": 0o1777, "mine": 0o755, "yours": 0o777}.items():
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        monkeypatch.setenv("GRANULARITY_CACHE", str(folder / "cache"))
        before = os.umask(0o077)
        try:
            make(folder / "mine" / "thing")
        finally:
            os.umask(before)
        (entry,) = (folder / "cache" / "cluster").iterdir()
        os.seteuid(65534)
        try:
            make(folder / "yours" / "thing")
            assert len(MADE) == 1
            flip(entry / "values.npy")
            make(folder / "yours" / "again")
            assert len(MADE) == 2 and entry.stat().st_uid == 65534  # replaced by one of theirs
        finally:
            os.seteuid(0)
        assert stat.S_IMODE((folder / "yours" / "thing").stat().st_mode) & 0o022 == 0  # in results, one's own umask
    finally:
        shutil.rmtree(folder)


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch, capsys):
    (tmp_path / "cache").write_text("a file, not a folder")
    monkeypatch.setenv("GRANULARITY_CACHE", str(tmp_path / "cache"))
    assert make(tmp_path / "mine").summary == {"value": 7}
    assert "the result is not shared" in capsys.readouterr().err


def test_clusterings_and_label_spaces_are_shared(tmp_path, cache, monkeypatch, make_samples, make_array):
    ranks = {"kind": list("ab") * 20}
    for user in ("mine", "yours"):
        samples = make_samples(tmp_path / user / "samples", ["train"] * 40, ranks, "kind")
        values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
        embed = make_array(tmp_path / user / "embed", "embed", samples, values)
        made = tmp_path / user / "whole-3"
        tasks.run("cluster", made, {"clustering": "whole-3"}, samples=samples, embed=embed)
        options = {"space": "kmeans-3", "family": "kmeans", "params": {"clusterings": ["whole-3"]}}
        tasks.run("hierarchy", tmp_path / user / "space", options, samples=samples, cluster=made, embed=embed)
        monkeypatch.setattr(cluster, "kmeans", None)  # the second user computes nothing
        monkeypatch.setattr(kmeans, "labels", None)
    for name in ("whole-3", "space"):
        mine, yours = (Artifact.open(tmp_path / user / name) for user in ("mine", "yours"))
        assert mine.digest == yours.digest
        assert "cached" in yours.manifest
