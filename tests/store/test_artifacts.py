"""The artifact contract, by doing it: kill, flip, truncate, swap, fill the disk."""

import errno
import json
import os
import resource
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from granularity.base import regular
from granularity.base.errors import GranularityError
from granularity.look import inspection
from granularity.store import hashing, writer
from granularity.store.artifact import FORM, Artifact, as_text
from granularity.store.code import RESULT_VERSION, code_digest
from support import writing

MODULE = ("granularity.base.seeds",)


def make(path, inputs=None, values=None, params=None):
    """A small artifact of several formats; `values` decides its bytes."""
    values = np.arange(6.0) if values is None else values
    origin = writing.origin(
        "thing", {}, MODULE, inputs, options={"asked": [1], **(params or {}), "values": list(values)}
    )
    with writer.create(path, origin, inputs or {}, params or {}) as out:
        out.array("a/values.npy", values)
        out.table("rows.parquet", pd.DataFrame({"x": values}))
        out.json("notes.json", {"n": len(values)})
    return Artifact.open(path)


def test_round_trip_and_manifest(tmp_path):
    thing = make(tmp_path / "thing", params={"seed": 3})
    assert thing.array("a/values.npy").tolist() == list(range(6))
    assert thing.table("rows.parquet")["x"].tolist() == list(range(6))
    assert thing.json("notes.json") == {"n": 6}
    manifest = thing.manifest
    assert manifest["files"]["a/values.npy"]["shape"] == [6]
    assert manifest["files"]["rows.parquet"] | {"sha256": 0, "bytes": 0} == {
        "rows": 6,
        "columns": {"x": "double"},
        "sha256": 0,
        "bytes": 0,
    }
    assert manifest["options"]["asked"] == [1] and manifest["params"] == {"seed": 3}
    assert manifest["schema_version"] == RESULT_VERSION
    assert manifest["code"] == {"modules": [*MODULE], "digest": code_digest(*MODULE)}
    assert {"started", "wall_seconds", "cpu_seconds", "peak_memory_mb"} == set(manifest["cost"])


def test_whoever_the_umask_says_may_read_all_files(tmp_path):
    """Also weights, which safetensors writes for their owner alone."""
    with writing.create(tmp_path / "thing") as out:
        out.tensors("weights.safetensors", {"a": torch.ones(2)})
    modes = {file.stat().st_mode & 0o777 for file in Artifact.open(tmp_path / "thing").folder.iterdir()}
    umask = os.umask(0)
    os.umask(umask)
    assert modes == {0o444 & ~umask}


@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE])
def test_what_the_system_does_not_let_be_read_is_not_taken_for_damaged(tmp_path, monkeypatch, number):
    thing = make(tmp_path / "results/thing")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # nothing is known to be sound
    opened = os.open

    def refused(path, *how):
        if str(path).endswith("values.npy"):
            raise OSError(number, os.strerror(number), str(path))
        return opened(path, *how)

    monkeypatch.setattr(hashing.os, "open", refused)
    with pytest.raises(regular.UnreadableError, match=rf"values\.npy: cannot be read \({os.strerror(number)}"):
        writer.sound(tmp_path / "results/.store", thing.kind, thing.manifest["key"])
    (problem,) = inspection.verify(tmp_path / "results")["problems"]
    assert "cannot be read" in problem and thing.folder.is_dir()


def test_the_store_may_be_a_link_to_another_disk(tmp_path):
    results = tmp_path / "results"
    make(results / "thing")
    (tmp_path / "disk").mkdir()
    (results / ".store").rename(tmp_path / "disk/ours")
    (results / ".store").symlink_to(tmp_path / "disk/ours")
    for values in (np.ones(2), np.ones(2), np.ones(3)):
        assert make(results / "thing", values=values).path == results / "thing"
    assert inspection.verify(results)["problems"] == []


def test_costs_are_those_of_a_jobs_processes_too(tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with writing.create(tmp_path / "thing") as out:
        subprocess.run([sys.executable, "-c", "bytes(300 << 20).count(1)"], check=True)
        out.text("value.txt", "1")
    after, cost = resource.getrusage(resource.RUSAGE_CHILDREN), Artifact.open(tmp_path / "thing").manifest["cost"]
    assert cost["cpu_seconds"] > 0.9 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert cost["peak_memory_mb"] > 300


@pytest.mark.parametrize("field", [*FORM, "cost.started", "cost.wall_seconds", "code.modules"])
def test_a_sealed_manifest_of_another_form_is_one_line(tmp_path, field):
    """It lacks a field, or holds one of another type: `verify` and all others name it."""
    make(tmp_path / "results/thing")
    file = tmp_path / "results/thing/manifest.json"
    file.chmod(0o644)
    *above, name = field.split(".")
    for change in (lambda part: part.pop(name), lambda part: part.update({name: [[1]]})):
        said = json.loads(before := file.read_text())
        change(said[above[0]] if above else said)
        del said["seal"]
        file.write_text(as_text(said))
        (problem,) = inspection.verify(tmp_path / "results")["problems"]
        assert problem.startswith(f"{file}: corrupt ('{field}'") and len(problem.splitlines()) == 1
        file.write_text(before)


def test_a_wrong_output_destroys_nothing(tmp_path):
    """A folder of somebody's, one of results, a file, or a link of somebody's own."""
    make(tmp_path / "results" / "thing")
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.jpg").write_bytes(b"a cat")
    (tmp_path / "mine").symlink_to(photos)
    (tmp_path / "top").symlink_to("/")
    for output in (photos, tmp_path / "results", photos / "cat.jpg", tmp_path / "mine", tmp_path / "top"):
        with (
            pytest.raises(GranularityError, match=f"{output.name}: exists and is not a result"),
            writing.create(output),
        ):
            raise AssertionError("nothing may be computed")
    assert (photos / "cat.jpg").read_bytes() == b"a cat" and Artifact.open(tmp_path / "results" / "thing")


def test_a_file_that_a_stage_does_not_declare_is_refused(tmp_path):
    with (
        pytest.raises(GranularityError, match=r"b\.txt: is not one of the files that stage 'thing' declares: a\*"),
        writing.create(tmp_path / "thing", files=("a*",)) as out,
    ):
        out.text("b.txt", "b")
    assert not (tmp_path / "thing").exists()


def test_a_name_leads_to_the_latest_result_and_none_is_lost(tmp_path):
    first = make(tmp_path / "thing", params={"seed": 1})
    second = make(tmp_path / "thing", values=np.arange(3.0), params={"seed": 2})
    assert first.folder != second.folder and Artifact.open(first.folder).digest == first.digest
    assert Artifact.open(tmp_path / "thing").digest == second.digest
    assert (tmp_path / "thing.stamp").read_text() == f"thing {second.digest}\n"
    assert first.array("a/values.npy").tolist() == list(range(6))  # who had opened it reads on


def test_what_is_opened_by_its_stamp_or_its_manifest_is_the_same(tmp_path):
    made = make(tmp_path / "thing")
    for name in ("thing.stamp", "thing/manifest.json"):
        assert Artifact.open(tmp_path / name).folder == made.folder


def test_a_fact_is_part_of_the_digest_and_another_parameter_is_not(tmp_path):
    with writing.create(tmp_path / "one", params={"target": "a"}) as out:
        out.json("notes.json", 1)
    with writing.create(tmp_path / "two", params={"target": "b"}) as out:
        out.json("notes.json", 1)
    one, two = (Artifact.open(tmp_path / name) for name in ("one", "two"))
    assert one.digest != two.digest and one.facts == {"target": "a"}


def test_digest_is_of_the_contents_alone(tmp_path):
    first, again = make(tmp_path / "one"), make(tmp_path / "two", params={"other": 1})
    other = make(tmp_path / "three", values=np.arange(7.0))
    assert first.digest == again.digest != other.digest


def test_inputs_of_different_lineages_are_refused_together(tmp_path):
    first, other = make(tmp_path / "first"), make(tmp_path / "other", values=np.arange(9.0))
    second = make(tmp_path / "second", {"first": first}, np.arange(3.0))
    with pytest.raises(GranularityError, match=r"second: was made from a different 'first' than .*other"):
        make(tmp_path / "third", {"first": other, "second": second})


def test_wrong_kind_and_missing_column_are_named(tmp_path):
    thing = make(tmp_path / "thing")
    with pytest.raises(GranularityError, match="'thing' artifact where 'samples'"):
        Artifact.open(tmp_path / "thing", "samples")
    with pytest.raises(GranularityError, match=r"no column \['y'\]"):
        thing.table("rows.parquet", ["y"])
    with pytest.raises(GranularityError, match="no artifact here"):
        Artifact.open(tmp_path / "nowhere")


def test_pickled_arrays_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Object arrays"):
        make(tmp_path / "thing", values=np.array([{}], dtype=object))
    assert not (tmp_path / "thing").exists()
    with writing.create(tmp_path / "thing") as out:
        np.save(out.path("evil.npy"), np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(GranularityError, match=r"evil\.npy: cannot be read as an array"):
        Artifact.open(tmp_path / "thing").array("evil.npy")
