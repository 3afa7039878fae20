"""The artifact contract, by doing it: kill, flip, truncate, swap, fill the disk."""

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

from granularity.base.errors import GranularityError
from granularity.look import inspection
from granularity.store.artifacts import Artifact
from granularity.store.code import RESULT_VERSION, code_digest
from support import writing

MODULE = ("granularity.base.seeds",)


def make(path, inputs=None, values=None, params=None):
    """A small artifact of several formats; `values` decides its bytes."""
    values = np.arange(6.0) if values is None else values
    with writing.create(path, "thing", MODULE, inputs or {}, params or {}, options={"asked": [1]}) as out:
        out.array("a/values.npy", values)
        out.table("rows.parquet", pd.DataFrame({"x": values}))
        out.json("notes.json", {"n": len(values)})
    return Artifact.open(path)


def flip(file, offset):
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


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
    assert (manifest["options"], manifest["params"]) == ({"asked": [1]}, {"seed": 3})
    assert manifest["schema_version"] == RESULT_VERSION
    assert manifest["code"] == {"modules": [*MODULE], "digest": code_digest(*MODULE)}
    assert {"started", "wall_seconds", "cpu_seconds", "peak_memory_mb"} == set(manifest["cost"])


def test_a_wrong_output_destroys_nothing(tmp_path):
    """A folder of somebody's, one of results, an artifact of another kind, or the input itself."""
    samples = tmp_path / "results" / "samples"
    with writing.create(samples, "samples", MODULE, {}, {}, files=("samples.parquet",)) as out:
        out.table("samples.parquet", pd.DataFrame({"x": [1]}))
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.jpg").write_bytes(b"a cat")
    inputs = {"samples": Artifact.open(samples)}
    for output, words in {
        photos: "photos/cat.jpg: is no part of a 'pixels' artifact",
        tmp_path / "results": "the input 'samples' lies there",
        samples: "the input 'samples' lies there",
        tmp_path: "the input 'samples' lies there",
    }.items():
        with (
            pytest.raises(GranularityError, match=words),
            writing.create(output, "pixels", MODULE, inputs, {}, files=("pixels.npy",)),
        ):
            raise AssertionError("nothing may be computed")
    with (
        pytest.raises(GranularityError, match=r"samples\.parquet: is no part of a 'pixels' artifact"),
        writing.create(samples, "pixels", MODULE, {}, {}, files=("pixels.npy",)),
    ):
        raise AssertionError("nothing may be computed")
    assert (photos / "cat.jpg").read_bytes() == b"a cat" and Artifact.open(samples)


@pytest.mark.parametrize("left", ["manifest.json", "samples.parquet", "wordnet.parquet"])
def test_what_is_left_of_a_result_is_replaced(tmp_path, left):
    """Snakemake removes the files that it knows of."""
    files = ("samples.parquet", "word*.parquet")
    for _ in range(2):
        with writing.create(tmp_path / "samples", "samples", MODULE, {}, {}, files=files) as out:
            for name in ("samples.parquet", "wordnet.parquet"):
                out.table(name, pd.DataFrame({"x": [1]}))
        assert Artifact.open(tmp_path / "samples")
        for file in (tmp_path / "samples").iterdir():
            if file.name != left:
                file.unlink()


def test_digest_is_of_the_contents_alone(tmp_path):
    first, again = make(tmp_path / "one"), make(tmp_path / "two", params={"other": 1})
    other = make(tmp_path / "three", values=np.arange(7.0))
    assert first.digest == again.digest != other.digest


@pytest.mark.parametrize("name", ["a/values.npy", "rows.parquet", "notes.json", "manifest.json"])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_flipped_byte_anywhere_is_found_and_named(tmp_path, name, place):
    make(tmp_path / "thing")
    file = tmp_path / "thing" / name
    size = file.stat().st_size
    offset = {"first": 0, "middle": size // 2, "last": size - 1}[place]
    if name == "manifest.json" and place == "last":
        offset = size - 3  # the last byte is white space
    flip(file, offset)
    with pytest.raises(GranularityError, match=file.name):
        Artifact.open(tmp_path / "thing")
    assert any(file.name in problem for problem in inspection.verify(tmp_path)["problems"])


def test_a_flipped_byte_beyond_a_megabyte_is_found(tmp_path):
    make(tmp_path / "thing", values=np.zeros(400_000))
    flip(tmp_path / "thing/a/values.npy", 3_000_000)
    with pytest.raises(GranularityError, match=r"values\.npy: corrupt"):
        Artifact.open(tmp_path / "thing")


def test_truncated_missing_added_and_swapped_files_are_found(tmp_path):
    for name, harm in {
        "truncated": lambda folder: os.truncate(folder / "rows.parquet", 10),
        "missing": lambda folder: (folder / "rows.parquet").unlink(),
        "added": lambda folder: (folder / "more.json").write_text("{}"),
        "swapped": lambda folder: (folder / "notes.json").write_bytes((folder / "rows.parquet").read_bytes()),
    }.items():
        make(tmp_path / name)
        harm(tmp_path / name)
        with pytest.raises(GranularityError):
            Artifact.open(tmp_path / name)


def test_a_hand_edited_manifest_is_found(tmp_path):
    make(tmp_path / "thing", params={"seed": 3})
    file = tmp_path / "thing/manifest.json"
    file.write_text(file.read_text().replace('"seed": 3', '"seed": 4'))
    with pytest.raises(GranularityError, match="seal"):
        Artifact.open(tmp_path / "thing")


def test_stale_against_any_ancestor_even_after_moving_the_whole_tree(tmp_path):
    tree = tmp_path / "tree"
    first = make(tree / "first")
    second = make(tree / "second", {"first": first}, np.arange(3.0))
    make(tree / "third", {"second": second}, np.arange(2.0))
    tree.rename(tmp_path / "moved")
    moved = tmp_path / "moved"
    assert Artifact.open(moved / "third") and not inspection.verify(moved)["problems"]
    make(moved / "first", values=np.arange(9.0))
    with pytest.raises(GranularityError, match="second: stale"):
        Artifact.open(moved / "third")
    assert [p for p in inspection.verify(moved)["problems"] if "stale" in p]


def test_remaking_the_same_bytes_leaves_descendants_fresh(tmp_path):
    first = make(tmp_path / "first")
    make(tmp_path / "second", {"first": first}, np.arange(3.0))
    make(tmp_path / "first")
    assert Artifact.open(tmp_path / "second")


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
    with writing.create(tmp_path / "thing", "thing", MODULE, {}, {}) as out:
        np.save(out.path("evil.npy"), np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(GranularityError, match=r"evil\.npy: cannot be read as an array"):
        Artifact.open(tmp_path / "thing").array("evil.npy")


def test_a_failed_writer_leaves_the_old_artifact_and_nothing_else(tmp_path):
    old = make(tmp_path / "thing")
    with pytest.raises(RuntimeError), writing.create(tmp_path / "thing", "thing", MODULE, {}, {}) as out:
        out.array("a/values.npy", np.zeros(3))
        raise RuntimeError
    assert Artifact.open(tmp_path / "thing").digest == old.digest
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_a_full_disk_is_one_clear_error_and_publishes_nothing(tmp_path):
    old = make(tmp_path / "thing")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(GranularityError, match="cannot be written"):
            make(tmp_path / "thing", values=np.random.default_rng(0).random(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert Artifact.open(tmp_path / "thing").digest == old.digest
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


WRITER = """
import os, sys, time
import numpy as np
from granularity.store import artifacts
code = ("granularity.base.seeds",)
with writing.create(sys.argv[1], "thing", code, {}, {"key": sys.argv[2]}, resumable=True) as out:
    out.array("values.npy", np.arange(5))
    done = out.work / "done"
    print("continued" if done.exists() else "started", flush=True)
    artifacts.write_atomically(done, b"half of the work")
    if sys.argv[3] == "hang":
        time.sleep(60)
"""


def write(path, key, mode):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), key, mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_writer_publishes_nothing_and_its_work_is_continued(tmp_path):
    target = tmp_path / "thing"
    killed = write(target, "same", "hang")
    assert killed.stdout.readline() == "started\n"
    while not list(tmp_path.glob(".thing.work-*/done")):
        pass
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not target.exists()
    leftovers = {path.name.split("-")[0] for path in tmp_path.iterdir()}
    assert leftovers == {".thing.new", ".thing.work", ".thing.claim"}
    again = write(target, "same", "finish")
    assert again.communicate()[0] == "continued\n"
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]
    assert Artifact.open(target)


def test_work_under_another_key_starts_clean(tmp_path):
    target = tmp_path / "thing"
    killed = write(target, "one", "hang")
    assert killed.stdout.readline() == "started\n"
    killed.kill()
    killed.wait()
    assert write(target, "two", "finish").communicate()[0] == "started\n"


def test_two_writers_at_once_leave_one_whole_artifact(tmp_path):
    target = tmp_path / "thing"
    writers = [write(target, str(i), "finish") for i in range(4)]
    for writer in writers:
        writer.wait()
    assert Artifact.open(target).array("values.npy").tolist() == list(range(5))


def test_verify_counts_and_reports_json(tmp_path):
    make(tmp_path / "one")
    make(tmp_path / "deep/two")
    result = inspection.verify(tmp_path)
    assert (result["artifacts"], result["problems"]) == (2, [])
    with pytest.raises(GranularityError, match="no artifacts"):
        (tmp_path / "empty").mkdir()
        inspection.verify(tmp_path / "empty")


def test_inspect_shows_lineage_and_a_preview(tmp_path):
    first = make(tmp_path / "first")
    make(tmp_path / "second", {"origin": first}, np.arange(3.0), {"dial": 7})
    text = inspection.describe(tmp_path / "second")
    assert "origin <- " in text and "dial = 7" in text and "first 3 of 3 rows" in text and "verified" in text
    data = json.loads(inspection.as_json(tmp_path / "second"))
    assert data["lineage"]["origin"] == str(tmp_path / "first") and data["problems"] == []
    assert len(inspection.describe(tmp_path).splitlines()) == 2
