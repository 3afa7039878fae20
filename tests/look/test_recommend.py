"""`granularity recommend`: what it reads of results, what it says where nothing can be told, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from granularity.base.errors import GranularityError
from granularity.claims import foresight
from granularity.cli import app
from granularity.look import evidence, recommend
from support import tiny_chain

MADE_UP = ("recommend", "--results", "empty", "-f", "tiny.yaml", "--evidence")


@pytest.fixture(scope="module")
def room(tiny_results, tmp_path_factory):
    """A folder with the tiny chain's finished results, its configuration, and evidence of two other data sets."""
    folder = tmp_path_factory.mktemp("room")
    (folder / "results").symlink_to(tiny_results[0] / "results")
    (folder / "empty").mkdir()
    (folder / "tiny.yaml").write_text(json.dumps(tiny_chain.TINY))
    made_up(["signal"]).to_csv(folder / "evidence.csv", index=False)
    with contextlib.chdir(folder):
        yield folder


def made_up(deciding: list[str]) -> pd.DataFrame:
    rng, tables = np.random.default_rng(0), []
    for data in ("cars", "birds"):
        known = pd.DataFrame({name: rng.normal(size=20) for name in foresight.PROPERTIES})
        where = {"data": data, "configuration": data, "condition": "a", "network": "n", "transfer": "t"}
        gains = dict.fromkeys(evidence.GAIN, known[deciding].sum(axis=1))
        spaces = [f"space-{i}" for i in range(20)]
        rest = {"space": spaces, "family": "manual", "meaningless": False, "train_images": 9}
        tables.append(known.assign(**where, **gains, **rest))
    return pd.concat(tables)[evidence.COLUMNS]


def said(*words: str, status: int = 0) -> str:
    found = CliRunner().invoke(app, words)
    assert found.exit_code == status, found.output
    return found.output


def test_evidence_is_what_results_say(room):
    table = evidence.found(room / "results").set_index("space")
    finetuned = (room / "results/tiny/train-60/finetune").glob("*/*/*/runs.parquet")
    errors = pd.concat(map(pd.read_parquet, finetuned)).groupby("space")["val_error"].mean()
    assert (
        set(table.index) == set(errors.index) - {"target"} == {"manual-digit", "random-5", "kmeans-6", "rebalanced-3"}
    )
    assert table["gain"].to_dict() == pytest.approx((errors["target"] - errors).drop("target").to_dict())
    assert table["meaningless"].to_dict() == {name: name == "random-5" for name in table.index}
    assert set(table["data"]) == {"digits"} and set(table["backbones"]) == {1} and table["gain_low"].isna().all()
    assert table.loc["manual-digit", ["G", "nmi_finest", "refinement"]].tolist() == [10, 1, 1]
    assert table.loc["kmeans-6", "signal"] > 0.2 > abs(table.loc["random-5", "signal"])


def test_label_spaces_are_ranked_with_a_record_and_predictions(room):
    text = said(*MADE_UP, "evidence.csv")
    assert "tiny, train-60: 60 training images, best first by signal" in text
    assert "signal beats the number of classes alone and NMI" in text and "2 data sets, 2 groups, 40 rows" in text
    assert "  holds      rho, signal: 1 (>= 0.3)" in text and "  fails      rho, nmi_finest" in text
    ranking = pd.read_csv(io.StringIO(said(*MADE_UP, "evidence.csv", "--csv")))
    assert ranking["place"].tolist() == [1, 2, 3, 4]
    assert ranking["signal"].is_monotonic_decreasing and set(ranking["score"]) == set(ranking["signal"].round(9))


def test_with_one_data_set_it_says_what_is_missing_and_still_ranks(room):
    made_up(["signal"])[:0].to_csv("nothing.csv", index=False)
    text = said("recommend", "-f", "tiny.yaml", "--evidence", "nothing.csv")
    assert "NOTHING IS KNOWN" in text and "it takes a second data set" in text and "best first by NMI finest" in text
    assert text.count("not tested") == 12


def test_a_winner_that_is_not_known_of_some_label_spaces_does_not_rank_them(room):
    record, spaces = foresight.record(made_up(["signal"])), made_up(["signal"])[:4]
    assert recommend.leader(record, spaces) == "signal"
    assert recommend.leader(record, spaces.assign(signal=np.nan)) in foresight.DUMB


def test_where_nothing_beats_the_dumb_ones_it_says_so(room):
    made_up(["nmi_finest"]).to_csv("dumb.csv", index=False)
    text = said(*MADE_UP, "dumb.csv")
    assert "NO PROPERTY BEATS" in text and "best first by NMI finest" in text


def test_what_it_writes_is_what_it_reads(room, tmp_path):
    said("recommend", "-f", "tiny.yaml", "--evidence", "evidence.csv", "--write", str(tmp_path))
    made = {"evidence.csv", "record.csv", "predictions.csv", "recommend.svg"}
    assert {file.name for file in tmp_path.iterdir()} == made
    again = evidence.read(tmp_path / "evidence.csv")
    assert len(again) == 44 and set(pd.read_csv(tmp_path / "record.csv")["predictor"]) == set(foresight.PREDICTORS)
    own = evidence.found(room / "results")
    assert len(recommend.combine(own, again)) == 44  # those of the tiny chain are in both, and count once


def test_label_spaces_that_are_not_made_are_refused_with_the_command(room):
    (room / "other.yaml").write_text(json.dumps(tiny_chain.TINY | {"name": "other"}))
    found = CliRunner().invoke(app, ["recommend", "-f", "other.yaml"])
    words = "label spaces are not made; make them with: snakemake hierarchy --configfile other.yaml"
    assert isinstance(found.exception, GranularityError) and f"5 of 5 {words}" in str(found.exception)


@pytest.mark.parametrize(
    "text, words",
    [
        ("a,b\n1,2\n", "bad.csv: has no column data; give a file that `granularity recommend` wrote"),
        ("", "bad.csv: cannot be read as a CSV file"),
        (
            ",".join(evidence.COLUMNS) + "\n" + ",".join("x" * len(evidence.COLUMNS)) + "\n",
            "column 'meaningless' must be True or False",
        ),
    ],
)
def test_evidence_that_is_none_is_refused(tmp_path, text, words):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(GranularityError) as refused:
        evidence.read(tmp_path / "bad.csv")
    assert words in str(refused.value)


def test_results_of_another_label_space_are_left_out(room, tmp_path, capsys):
    """A label space was made anew, and networks were not trained on it yet."""
    condition = room / "results/tiny/train-60"
    spaces = evidence.artifacts.find(condition / "hierarchy")
    shown = {"hierarchy": {"0" * 64}, "samples": set()}
    assert spaces and evidence._runs(evidence.artifacts.find(condition / "finetune"), shown).empty
    assert "was made from another sample table or label space" in capsys.readouterr().err


def test_the_page_has_the_numbers_of_the_committed_evidence():
    record = foresight.record(evidence.read(recommend.COMMITTED))
    page = (recommend.COMMITTED.parents[1] / "docs/recommend.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in page.split("\n") if ", rank correlation with the gain |" in line]
    assert [name.split(",")[0].strip() for name, *_ in rows] == list(record.within.index)
    for (_, *cells), found in zip(rows, record.within.to_numpy(), strict=True):
        assert [float(cell.replace("−", "-")) for cell in cells] == found.round(2).tolist()
    assert f"predict the other half with {record.ceiling:.2f}" in page
