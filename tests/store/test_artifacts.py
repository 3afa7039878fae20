"""The artifact contract, by doing it: kill, flip, truncate, swap, fill the disk."""

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from granularity.base.errors import GranularityError
from granularity.look import inspection
from granularity.store import writer
from granularity.store.artifacts import Artifact
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


def names(folder):
    """What people see; and no writer's folder or claim is left."""
    assert not [*(folder / ".store/.new").iterdir(), *(folder / ".store/.claims").iterdir()]
    return sorted(path.name for path in folder.iterdir() if path.name != ".store")


def flip(file, offset):
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.chmod(0o644)
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
    assert manifest["options"]["asked"] == [1] and manifest["params"] == {"seed": 3}
    assert manifest["schema_version"] == RESULT_VERSION
    assert manifest["code"] == {"modules": [*MODULE], "digest": code_digest(*MODULE)}
    assert {"started", "wall_seconds", "cpu_seconds", "peak_memory_mb"} == set(manifest["cost"])


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
            pytest.raises(
                GranularityError, match=f"{output.name}: something lies where the name of a result should be"
            ),
            writing.create(output),
        ):
            raise AssertionError("nothing may be computed")
    assert (photos / "cat.jpg").read_bytes() == b"a cat" and Artifact.open(tmp_path / "results" / "thing")


def test_a_file_that_a_stage_does_not_declare_is_refused(tmp_path):
    with (
        pytest.raises(GranularityError, match=r"b\.txt: is none of the files that stage 'thing' declares: a\*"),
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


def test_a_damaged_result_is_put_aside_and_made_again(tmp_path, capsys):
    made = make(tmp_path / "thing")
    (made.folder / "notes.json").chmod(0o644)
    flip(made.folder / "notes.json", 2)
    assert make(tmp_path / "thing").digest == made.digest
    assert "notes.json: corrupt" in capsys.readouterr().err
    (aside,) = (tmp_path / ".store/.aside").iterdir()
    assert (aside / "rows.parquet").exists()


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
        made = make(tmp_path / name, params={"seed": name})
        for file in made.folder.iterdir():
            file.chmod(0o755)
        harm(tmp_path / name)
        with pytest.raises(GranularityError):
            Artifact.open(tmp_path / name)


def test_a_hand_edited_manifest_is_found(tmp_path):
    make(tmp_path / "thing", params={"seed": 3})
    file = tmp_path / "thing/manifest.json"
    file.chmod(0o644)
    file.write_text(file.read_text().replace('"seed": 3', '"seed": 4'))
    with pytest.raises(GranularityError, match="seal"):
        Artifact.open(tmp_path / "thing")


def test_a_tree_may_be_moved_as_a_whole(tmp_path):
    tree = tmp_path / "tree" / "results"
    first = make(tree / "first")
    second = make(tree / "deep/second", {"first": first}, np.arange(3.0))
    make(tree / "third", {"second": second}, np.arange(2.0))
    tree.parent.rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "results"
    assert Artifact.open(moved / "third").lineage()["second"].lineage()["first"].digest == first.digest
    assert not inspection.verify(moved)["problems"]


def test_a_stamp_of_another_result_is_a_problem(tmp_path):
    one, two = make(tmp_path / "one"), make(tmp_path / "two", values=np.arange(3.0))
    (tmp_path / "two").unlink()
    (tmp_path / "two").symlink_to(one.folder)
    (problem,) = inspection.verify(tmp_path)["problems"]
    assert "two.stamp: is the stamp of another result" in problem and two.digest != one.digest


def test_inputs_of_different_lineages_are_refused_together(tmp_path):
    first, other = make(tmp_path / "first"), make(tmp_path / "other", values=np.arange(9.0))
    second = make(tmp_path / "second", {"first": first}, np.arange(3.0))
    with pytest.raises(GranularityError, match=r"second: was made from another 'first' than .*other"):
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


def test_a_failed_writer_leaves_the_old_artifact_and_nothing_else(tmp_path):
    old = make(tmp_path / "thing")
    with pytest.raises(RuntimeError), writing.create(tmp_path / "thing") as out:
        out.array("a/values.npy", np.zeros(3))
        raise RuntimeError
    assert Artifact.open(tmp_path / "thing").digest == old.digest
    assert names(tmp_path) == ["thing", "thing.stamp"]


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
    assert names(tmp_path) == ["thing", "thing.stamp"]


WRITER = """
import os, sys, time
import numpy as np
from granularity.store import generations
from support import writing
with writing.create(sys.argv[1], params={"key": sys.argv[2]}, resumable=True) as out:
    out.array("values.npy", np.arange(5))
    done = out.work / "done"
    print("continued" if done.exists() else "started", flush=True)
    generations.write_atomically(done, b"half of the work")
    if sys.argv[3] == "hang":
        time.sleep(60)
"""


def write(path, key, mode):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), key, mode]
    tests = os.pathsep.join([str(Path(writing.__file__).parents[1]), *sys.path])
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": tests})


def test_a_killed_writer_publishes_nothing_and_its_work_is_continued(tmp_path):
    target = tmp_path / "thing"
    killed = write(target, "same", "hang")
    assert killed.stdout.readline() == "started\n"
    while not list(tmp_path.glob(".store/.work/*/done")):
        pass
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not target.exists()
    again = write(target, "same", "finish")
    assert again.communicate()[0] == "continued\n"
    assert not list(tmp_path.glob(".store/.work/*"))
    assert Artifact.open(target)


def test_work_of_another_key_starts_clean_and_the_first_is_kept(tmp_path):
    target = tmp_path / "thing"
    killed = write(target, "one", "hang")
    assert killed.stdout.readline() == "started\n"
    while not list(tmp_path.glob(".store/.work/*/done")):
        pass
    killed.kill()
    killed.wait()
    assert write(target, "two", "finish").communicate()[0] == "started\n"
    assert write(target, "one", "finish").communicate()[0] == "continued\n"


def test_two_writers_at_once_leave_one_whole_artifact(tmp_path):
    target = tmp_path / "thing"
    writers = [write(target, str(i), "finish") for i in range(4)]
    for one in writers:
        one.wait()
    assert Artifact.open(target).array("values.npy").tolist() == list(range(5))


def test_verify_counts_and_reports_json(tmp_path):
    make(tmp_path / "one")
    make(tmp_path / "deep/two", params={"seed": 2})
    make(tmp_path / "deep/the same", params={"seed": 2})
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
    assert data["lineage"]["origin"] == str(first.folder) and data["problems"] == []
    assert len(inspection.describe(tmp_path).splitlines()) == 2
