"""Numbers that papers published: their relations find mistakes of typing; files that are wrong are said to be."""

import pytest
from typer.testing import CliRunner

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.claims import published
from granularity.look.text import published_numbers

HEADER = ",".join(published.COLUMNS)
ROW = "one,T1,,setting,arm,2,error_percent,5.0,0.1,3,"


def means(table="", **where):
    """Means of the core paper by (arm, x)."""
    rows = published.rows("granularity", table)
    for column, value in where.items():
        rows = rows[rows[column].str.contains(value, regex=False)]
    keys = list(zip(rows["arm"], rows["x"], strict=True))
    assert len(keys) == len(set(keys)) > 0
    return dict(zip(keys, rows["mean"], strict=True))


def baseline(table="", **where):
    (mean,) = means(table, arm="baseline", **where).values()
    return mean


def test_every_row_says_what_it_is():
    for paper in published.papers():
        for row in published.read(paper):
            assert row["paper"] == paper and all(
                (row["setting"], row["arm"], row["metric"], row["mean"] or row["note"])
            )


def test_the_headline_is_the_gain_of_the_best_human_labels():
    rows = published.rows("granularity")
    headline = rows.loc[rows["metric"] == "relative_gain_percent", "mean"].item()
    manual = [mean for (arm, _), mean in means("T5").items() if arm == "manual"]
    assert headline == pytest.approx(100 * (baseline("T5") - min(manual)) / baseline("T5"), abs=0.005)
    about = rows.loc[rows["metric"] == "gain_points", "mean"].item()
    assert about == round(baseline("T2") - means("T2")["wordnet", 21843], 1)


def test_table_3_is_the_best_of_table_10_and_table_4_the_means_of_table_11():
    best = published.rows("granularity", "T10").groupby(["arm", "x"])["mean"].max().to_dict()
    assert means("T3", arm="wordnet") == best and len(best) == 6
    assert means("T4") == means("T11")


# ---------------------------------------------------------------- reading


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "FOLDER", tmp_path)
    return tmp_path


def test_numbers_are_numbers_and_empty_cells_are_not(folder):
    (folder / "one.csv").write_text(f"{HEADER}\n{ROW}\none,,,setting,arm,,loss,,,,near zero\n")
    rows = published.rows("one")
    assert list(rows["mean"].isna()) == [False, True] and rows.loc[0, ["x", "mean", "std", "n"]].sum() == 10.1
    assert len(published.rows("one", "T1")) == 1
    assert published.read("one")[0]["mean"] == "5.0"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["one,T1,,setting,arm,2,error_percent,5.O,0.1,3,"], "row 2, column mean: '5.O' is not a number"),
        ([ROW, ROW], "row 3: equals row 2 in table, setting, arm, x, metric"),
        (["one,T1,setting,arm,2,error_percent,1,,"], "row 2: has 9 cells, but must have 11"),
    ],
)
def test_a_wrong_row_is_named(folder, lines, words):
    (folder / "one.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    with pytest.raises(GranularityError) as error:
        published.rows("one")
    (line,) = error.value.args
    assert line.startswith(f"{folder / 'one.csv'}: {words}")
    (folder / "one.csv").write_text("paper,table\n")
    with pytest.raises(GranularityError, match=r"one.csv: the columns are paper,table, but must be paper,table,figure"):
        published.read("one")


def test_what_is_not_there_lists_what_is():
    with pytest.raises(GranularityError, match=r"nothing.csv: there are no published rows .* feature_contamination, "):
        published.rows("nothing")
    with pytest.raises(GranularityError, match=r"granularity.csv: has no table T12; it has T1, T2, .*T11"):
        published.rows("granularity", "T12")
    with pytest.raises(GranularityError, match="no published rows"):
        published.rows("label_counts")


# ---------------------------------------------------------------- printing


def test_a_table_is_printed_with_the_digits_of_the_paper():
    result = CliRunner().invoke(cli.app, ["published", "granularity", "--table", "T5"])
    assert result.exit_code == 0
    lines = result.output.split("\n")
    assert lines[0].split() == ["table", "figure", "arm", "x", "metric", "mean", "std", "n", "note"]
    assert any(line.split()[-4:] == ["error_percent", "5.40", "0.075", "6"] for line in lines)
    assert "iNaturalist 2021 mini; 11 superclasses; ResNet34; R1, R2" in lines
    rows = [line for line in lines if line.startswith("T5")]
    assert len(rows) == len(published.read("granularity", "T5")) == 34


def test_without_a_paper_it_says_what_there_is():
    lines = published_numbers(None).split("\n")
    assert [line.split()[0] for line in lines] == published.papers()
    assert next(line for line in lines if line.startswith("neural_collapse")).endswith("rows  no tables")
    with pytest.raises(GranularityError, match="--table T1: name a paper first"):
        published_numbers(None, "T1")
