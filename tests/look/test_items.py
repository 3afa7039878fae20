"""`granularity inspect` of a file or a run, and `granularity compare` of two arms, image by image."""

import contextlib
import io
import os
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.learning.runs import Run
from granularity.look import predictions
from granularity.store.artifact import Artifact
from support import writing
from support.tiny_chain import harmed

CHAIN = "results/tiny/train-60"


@pytest.fixture
def chain(tiny_results):
    with contextlib.chdir(tiny_results[0]):
        yield Path(CHAIN)


def said(*words, code=0):
    result = CliRunner().invoke(cli.app, list(map(str, words)))
    if code:
        assert isinstance(result.exception, GranularityError), result
        return str(result.exception)
    assert result.exit_code == 0, result.exception
    return result.stdout


def csv(*words):
    return pd.read_csv(io.StringIO(said(*words, "--csv")))


def one(folder: Path, pattern: str) -> Path:
    return next(iter(sorted(folder.glob(pattern))))


# ---------------------------------------------------------------- inspect


def test_a_file_of_any_kind_is_shown(chain):
    clusters = one(chain, "cluster/*/clusters.parquet")
    text, rows = said("inspect", clusters), len(pd.read_parquet(clusters))
    assert f"{rows} of {rows} rows" in text and "cluster" in text and "verified" in text
    assert "2 of 60 rows; --rows N for more" in said("inspect", one(chain, "hierarchy/*/labels.parquet"), "--rows", 2)
    pd.testing.assert_frame_equal(csv("inspect", clusters), pd.read_parquet(clusters), check_dtype=False)
    hashes = pd.read_parquet(chain / "pixels/index.parquet")["sha256"].map(bytes.hex)  # bytes, not text
    assert csv("inspect", chain / "pixels/index.parquet")["sha256"].tolist() == hashes.tolist()
    assert hashes[0][:11] in said("inspect", chain / "pixels")
    embedding = np.load(chain / "embed/embedding.npy")
    assert np.allclose(csv("inspect", chain / "embed/embedding.npy", "--rows", 3), embedding[:3], rtol=1e-5)
    weights = csv("inspect", one(chain, "pretrain/*/*/backbones/*.safetensors"))
    assert list(weights) == ["tensor", "dtype", "shape"] and "conv1.weight" in set(weights["tensor"])
    properties = said("inspect", one(chain, "hierarchy/*/properties.json"))
    assert '"images": 60' in properties and "of        hierarchy" in properties
    results = Path("results/tiny/report/tables/results.csv")
    assert len(csv("inspect", results)) == len(pd.read_csv(results))
    classes = one(chain, "hierarchy/kmeans-6/classes.parquet")
    assert "first 6 of 6 rows" in said("inspect", classes.parent)
    assert "first 1 of 6 rows" in said("inspect", classes.parent, "--rows", 1)


def test_a_run_is_found_by_its_id_or_name(chain):
    finetuned = pd.read_parquet(one(chain, "finetune/target/*/*/runs.parquet")).query("space == 'kmeans-6'")
    run, row = finetuned["parent"].iloc[0], finetuned.iloc[0]
    found, text = csv("inspect", run), said("inspect", run)
    assert found["kind"].tolist() == ["pretrain", "finetune", "finetune"]
    assert found["run_id"].tolist() == [run, *finetuned["run_id"]]
    assert (found["wall_seconds"] > 0).all() and all(Path(folder).is_dir() for folder in found["artifact"])
    measured = text.split("measured, ")[1].splitlines()[2:]
    assert {line.split()[0] for line in measured} == {run} and "loops/linear" in text
    text = said("inspect", found["name"][1])
    assert f"val_error     {row['val_error']:.4g}" in text and f"kmeans-6-p0-{run}" in text
    assert finetuned["run_id"].iloc[1] not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "nothing: there is no such file, folder, or run in results (--results)"),
        ([f"{CHAIN}/embed/gone.npy"], "gone.npy: is not a file of this artifact; it has embedding.npy"),
        ([f"{CHAIN}/embed.stamp", "--csv"], "--csv is for one table"),
        ([f"{CHAIN}/pixels/moments.json", "--csv"], "moments.json: is not a table"),
        (["results/tiny/logs/train-60.txt"], "there is no such file"),
    ],
)
def test_what_cannot_be_inspected_is_one_line(chain, words, message):
    text = said("inspect", *words, code=1)
    assert message in text and len(text.splitlines()) == 1


def test_a_damaged_file_is_not_shown(chain):
    with harmed(chain / "embed"):
        (chain / "embed/embedding.npy").write_bytes(b"\x93NUMPY")
        assert "embedding.npy: corrupt" in said("inspect", chain / "embed/embedding.npy", code=1)


def test_a_terminal_is_not_outgrown(chain):
    ours, theirs = os.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    words = [sys.executable, "-m", "granularity", "inspect", str(chain / "samples"), "--rows", "3"]
    with subprocess.Popen(words, stdout=theirs, env=os.environ | {"COLUMNS": ""}) as process:
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # the terminal is closed
            while data := os.read(ours, 65536):
                text += data
    os.close(ours)
    lines = text.decode().splitlines()
    assert process.returncode == 0 and "samples.parquet, first 3 of 90 rows" in lines
    assert max(map(len, lines)) <= 80


# ---------------------------------------------------------------- compare

KINDS = ["bird", "fish"] * 3


@pytest.fixture
def arms(tmp_path, make_samples):
    """Finetunings of two arms on six images: results/x/train-4/finetune/target/net/{coarse,fine}."""
    split, root = ["train"] * 4 + ["val"] * 6, tmp_path / "results/x"
    extra = {"columns": {"file": [f"\x1b{i}.jpg" for i in range(10)]}}
    kinds = {"kind": ["bird", "fish"] * 2 + KINDS}

    def finetune(place, space, predictions, samples=root / "train-4/samples"):
        if not samples.exists():
            make_samples(samples, split, kinds, "kind", **extra)
        of = Artifact.open(samples)
        runs = {
            Run(space, p, f, f"{space[0]}{p}{f}".encode().hex() + "00"): labels
            for (p, f), labels in predictions.items()
        }
        params = {"runs": [run.name for run in runs], "target": "kind", "place": place}
        folder = root / place
        with writing.create(folder, "finetune", inputs={"samples": of}, params=params) as out:
            table = {"sample_id": [f"image {i}" for i in range(4, 10)]} | {
                run.id: np.int32(labels) for run, labels in runs.items()
            }
            out.table("predictions.parquet", pd.DataFrame(table))
            out.table("classes.parquet", pd.DataFrame({"label": np.int32([0, 1]), "name": ["bird", "fish"]}))
        return folder

    net = "train-4/finetune/target/net"
    coarse = {(0, 0): [0, 1, 1, 0, 0, 1], (0, 1): [0, 1, 1, 1, 0, 1], (1, 0): [1, 1, 1, 1, 0, 1], (2, 0): [0] * 6}
    fine = {(0, 0): [0, 1, 0, 1, 0, 0], (0, 1): [0, 1, 0, 1, 0, 1], (1, 0): [0, 1, 0, 1, 0, 1]}
    finetune(f"{net}/coarse", "coarse", coarse)
    finetune(f"{net}/fine", "fine", fine)
    with contextlib.chdir(tmp_path):
        yield finetune


def test_images_that_one_arm_gets_right_alone(arms):
    found = predictions.compare("coarse", "fine", Path("results/x"))
    assert (found["images"], found["backbones"]) == (6, 2)  # seed 2 has no partner
    # Of backbone 0, mean of two: right 4.5 and 5.5; of backbone 1: right 4 and 6.
    assert found["errors"] == {"a": pytest.approx(100 * 1.75 / 6), "b": pytest.approx(100 * 0.25 / 6)}
    counts = [found[key] for key in ("both_right", "only_a_right", "only_b_right", "both_wrong")]
    assert counts == [4.0, 0.25, 1.75, 0.0] and sum(counts) == 6
    table = csv("compare", "coarse", "fine")
    fixed, lost = (table[table[name] > 0].set_index("sample_id") for name in ("only_b_right", "only_a_right"))
    assert fixed["only_b_right"].to_dict() == {"image 6": 2, "image 4": 1, "image 7": 0.5}
    assert fixed.loc["image 6", ["class", "a_says", "b_says"]].tolist() == ["bird", "fish", "bird"]
    assert lost["only_a_right"].to_dict() == {"image 9": 0.5}
    assert len(table) == 6 and table["sample_id"].tolist()[::5] == ["image 6", "image 9"]
    assert len(csv("compare", "coarse", "fine", "--rows", 2)) == 2
    text = said("compare", "coarse", "fine")
    assert "error: A 29.17 %, B 4.17 %" in text and "A wrong      1.8" in text and "3 of 3 images" in text
    assert "\x1b" not in text and "\\x1b6.jpg" in text
    assert "1 of 3 images" in said("compare", "coarse", "fine", "--rows", 1)


def test_an_image_stands_under_one_heading(arms):
    net = "train-4/finetune/target/net"
    arms(f"{net}/one", "one", {(seed, 0): [seed > 0, 1, 1, 1, 1, 1] for seed in range(3)})
    arms(f"{net}/two", "two", {(seed, 0): [seed == 0, *[1 - (seed == 2)] * 3, 0, 1] for seed in range(3)})
    text = said("compare", "one", "two").split("right more often with ")
    assert [part.partition("\n")[0] for part in text[1:]] == ["B (two): 3 of 3 images", "A (one): 2 of 2 images"]
    rows = [" ".join(line.split()) for part in text for line in part.splitlines() if line.lstrip().startswith("image")]
    assert sorted(row[:7] for row in rows) == [f"image {i}" for i in (4, 5, 6, 7, 8)]
    assert "image 4 \\x1b4.jpg bird fish bird 1.0 2.0" in rows and "image 5 \\x1b5.jpg fish fish fish 3.0 2.0" in rows


def test_two_runs_are_compared_whatever_their_seeds(arms):
    first, second = (Run("coarse", 2, 0, "63323000"), Run("fine", 1, 0, "66313000"))
    found = predictions.compare(first.name, second.id, Path("results"))
    assert (found["both_right"], found["only_b_right"]) == (3, 3)


def test_what_cannot_be_compared_is_one_line(arms, tmp_path, make_samples):
    def refused(*words):
        text = said("compare", *words, code=1)
        assert len(text.splitlines()) == 1
        return text

    assert "has no finetuned run or label space 'fin'; its label spaces are coarse, fine" in refused("fin", "coarse")
    assert "there is no such folder" in refused("fine", "coarse", "nowhere")
    assert "contains no finetuned runs" in refused("fine", "coarse", "results/x/train-4/samples")
    arms("train-4/finetune/target/other/fine", "late", {(7, 0): [0] * 6})
    assert "have no runs with the same seeds" in refused("late", "coarse")
    ranks = {"kind": ["fish"] * 10}
    other = make_samples(tmp_path / "results/x/train-9/samples", ["train"] * 4 + ["val"] * 6, ranks, "kind")
    for place in ("train-9/finetune/target/net/fine", "train-9/finetune/target/net/coarse"):
        arms(place, place.rpartition("/")[2], {(0, 0): [0] * 6}, other)
    assert "results: has such runs in several folders; name one of results/x/train-4/fine" in refused("coarse", "fine")
    arms("train-9/finetune/target/net/late", "only", {(1, 0): [0] * 6}, other)
    assert "only, 66313000: were validated on different images" in refused("only", "66313000")
    damaged = tmp_path / "results/x/train-4/finetune/target/net/fine/predictions.parquet"
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert "predictions.parquet: corrupt" in refused("coarse", "fine", "results/x/train-4")
