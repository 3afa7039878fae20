"""Labels from a file: all of them, or those of another label space corrected."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.plan.graph import Plan
from support import tasks

KINDS = ["bird", "bird", "fish", "fish", "bird", "fish"]
HEAD = "sample_id,label\n"


@pytest.fixture
def samples(tmp_path, make_samples):
    return make_samples(tmp_path / "samples", ["train"] * 5 + ["val"], {"kind": KINDS}, "kind")


def planned(file, of=None):
    """The job of a label space from a file, and the ids of the trainings on it."""
    spaces = {"kmeans": [30], "file": [{"path": str(file)} | ({"of": of} if of else {})]}
    images = {"source": "folder", "root": "photos", "ranks": ["kind"], "target": "kind"}
    over = {"samples": images, "conditions": [{"train_size": "all"}], "label_spaces": spaces}
    plan = Plan(Config.model_validate(over))
    (job,) = plan.jobs("hierarchy", space=f"file-{file.stem}")
    runs = plan.pretrainings(plan.networks[0], plan.conditions[0])
    return job, [run.id for run in runs if run.space == f"file-{file.stem}"]


def labels(made):
    names = made.table("classes.parquet")["name"]
    return names[made.table("labels.parquet")["label"]].tolist()


def test_a_file_has_all_labels_or_corrects_those_of_another_space(tmp_path, samples):
    whole, some, parquet = (tmp_path / name for name in ("whole.csv", "some.csv", "rows.parquet"))
    whole.write_text("label,more,sample_id\n" + "".join(f"{i % 2},,image {i}\n" for i in range(5)))
    made = tasks.run("hierarchy", tmp_path / "whole", planned(whole)[0].options, samples=samples)
    assert labels(made) == ["0", "1", "0", "1", "0"]
    some.write_bytes(b"\xef\xbb\xbfsample_id,label\r\nimage 0,fish\r\nimage 1,owl\r\n")  # as spreadsheets write it
    job, ids = planned(some, "target")
    made = tasks.run("hierarchy", tmp_path / "some", job.options, samples=samples)
    assert labels(made) == ["fish", "owl", "fish", "fish", "bird"] and made.summary["from_file"] == 2
    pd.DataFrame({"sample_id": ["image 4"], "label": [7]}).to_parquet(parquet)
    made = tasks.run("hierarchy", tmp_path / "rows", planned(parquet, "target")[0].options, samples=samples)
    assert labels(made) == [*KINDS[:4], "7"]
    some.write_text(HEAD + "image 0,owl\n")
    assert planned(some, "target")[1] != ids
    with pytest.raises(GranularityError, match=r"some\.csv: has changed since the run was planned"):
        tasks.run("hierarchy", tmp_path / "late", job.options, samples=samples)


def test_one_that_corrects_clusters_is_made_after_them(tmp_path):
    (tmp_path / "labels.csv").write_text(HEAD)
    job, _ = planned(tmp_path / "labels.csv", "kmeans-30")
    assert [one.values["clustering"] for one in job.inputs["cluster"]] == ["whole-30"] and job.inputs["embed"]


@pytest.mark.parametrize(
    ("rows", "of", "message"),
    [
        ("image 0,a\nimage 0,b\nimage 9,c\n", "target", "images that appear twice: 1, such as 'image 0'"),
        (
            "image 9,c\nimage 5,d\n",
            "target",
            r"images not of the training split of this draw \(delete their rows\): 2, such as 'image 9', 'image 5'",
        ),
        ("image 0,1\n", "target", "'1' is the number of a class, whose name is 'fish'; write names"),
        ("image 0,a\nimage 1,\n", "target", "images without a label: 1, such as 'image 1'"),
        ("image 0,a\nimage 1,a\n", None, "training images are missing .*: 3, such as 'image 2', 'image 3', 'image 4'"),
        ('image 0,"a\n', "target", "cannot be read as a CSV or Parquet table with the columns sample_id and label"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, samples, rows, of, message):
    (tmp_path / "labels.csv").write_text(HEAD + rows)
    job, _ = planned(tmp_path / "labels.csv", of)
    with pytest.raises(GranularityError, match=f"labels.csv: {message}"):
        tasks.run("hierarchy", tmp_path / "out", job.options, samples=samples)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("gone.csv", "label_spaces.file: gone.csv: cannot be read (No such file or directory)"),
        ({"path": "x.csv", "of": "kmean-3"}, "label_spaces.file: file-x: of 'kmean-3': must be a label space"),
        ({"path": "x.csv", "of": "file-x"}, "label_spaces.file: file-x: of 'file-x': must be a label space"),
    ],
)
def test_what_is_wrong_before_anything_runs_is_one_line(tmp_path, monkeypatch, asked, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").touch()
    (tmp_path / "own.yaml").write_text(json.dumps({"label_spaces": {"file": [asked]}}))
    error = CliRunner().invoke(cli.app, ["config", "check", "-f", "own.yaml"]).exception
    assert isinstance(error, GranularityError) and message in str(error) and len(str(error).splitlines()) == 1
