"""Numbers that papers published: their relations find mistakes of typing; files that are wrong are said to be."""

import csv

import pytest
from typer.testing import CliRunner

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.claims import published
from granularity.look import published_numbers

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


def test_every_table_of_the_papers_is_there():
    assert {paper: published.tables(published.read(paper)) for paper in published.papers()} == {
        "granularity": [f"T{number}" for number in range(1, 12)],
        "neural_collapse": [],
        "feature_emergence": [f"T{number}" for number in range(1, 8)],
        "feature_contamination": [f"T{number}" for number in range(1, 6)],
        "mask_reconstruction": ["T1"],
    }


VARIED = {  # how the settings of each table begin
    "feature_emergence": {
        "T1": ["parity; main setting"],
        "T2": ["interval"],
        "T3": ["parity; d = 100", "parity; d = 2000"],
        "T4": ["parity; share of class -1: 0.8", "parity; share of class -1: 0.9"],
        "T5": ["parity; n = 25000", "parity; n = 10000, m = 50"],
        "T6": ["MNIST", "CIFAR-10", "SVHN"],
        "T7": ["CIFAR-10 airplane or automobile; ResNet(128)", "CIFAR-10 airplane or automobile; ResNet(256)"],
    },
    "feature_contamination": {
        "T1": ["ImageNet"],
        "T2": ["iWildCam"],
        "T3": ["Camelyon17"],
        "T4": ["DomainNet"],
        "T5": ["PACS"],
    },
}


@pytest.mark.parametrize("paper", VARIED)
def test_a_table_is_about_its_settings(paper):
    found = {table: set() for table in published.tables(published.read(paper))}
    for row in filter(lambda row: row["table"], published.read(paper)):
        begins = [one for one in VARIED[paper][row["table"]] if row["setting"].startswith(one)]
        found[row["table"]] |= set(begins or [row["setting"]])
    assert found == {table: set(settings) for table, settings in VARIED[paper].items()}


@pytest.mark.parametrize(
    ("paper", "where", "cells"),
    [
        ("granularity", {"table": "T2", "arm": "baseline"}, ("7.90", "")),
        ("granularity", {"table": "T5", "arm": "random", "x": "88"}, ("6.30", "0.070")),
        ("granularity", {"table": "T10", "x": "2281", "mean": "79.7"}, ("79.7", "0.019")),
        ("feature_emergence", {"table": "T3", "arm": "one step", "mean": "50.01"}, ("50.01", "")),
        ("feature_emergence", {"table": "T4", "arm": "one step", "mean": "0.950"}, ("0.950", "")),
        ("feature_emergence", {"figure": "Fig 21b", "metric": "cosine_between_centres"}, ("-0.900", "")),
        ("feature_contamination", {"table": "T4", "arm": "pretrained", "mean": "92.30"}, ("92.30", "")),
        ("mask_reconstruction", {"table": "T1", "arm": "mask reconstruction"}, ("78.0", "")),
    ],
)
def test_cells_have_the_digits_of_the_paper(paper, where, cells):
    (row,) = (row for row in published.read(paper) if all(row[name] == cell for name, cell in where.items()))
    assert (row["mean"], row["std"]) == cells


def test_the_headline_is_the_gain_of_the_best_human_labels():
    rows = published.rows("granularity")
    headline = rows.loc[rows["metric"] == "relative_gain_percent", "mean"].item()
    manual = [mean for (arm, _), mean in means("T5").items() if arm == "manual"]
    assert headline == pytest.approx(100 * (baseline("T5") - min(manual)) / baseline("T5"), abs=0.005)
    about = rows.loc[rows["metric"] == "gain_points", "mean"].item()
    assert about == round(baseline("T2") - means("T2")["wordnet", 21843], 1)


def test_table_1_is_table_5_without_the_rebalanced_spaces():
    assert means("T1") == {key: mean for key, mean in means("T5").items() if key[0] != "rebalanced"}


def test_the_last_checkpoint_is_that_of_table_5():
    assert means("T6", setting="to epoch 90") == means("T5", arm="manual")


def test_table_8_is_what_table_2_leaves_of_100():
    best = published.rows("granularity", "T8").groupby(["arm", "x"])["mean"].max()
    errors = means("T2")
    assert len(best) == 2
    for key, accuracy in best.items():
        assert errors[key] == pytest.approx(100 - accuracy, abs=0.006)


def test_table_3_is_the_best_of_table_10_and_table_4_the_means_of_table_11():
    best = published.rows("granularity", "T10").groupby(["arm", "x"])["mean"].max().to_dict()
    assert means("T3", arm="wordnet") == best and len(best) == 6
    assert means("T4") == means("T11")


def test_training_twice_beats_one_pass():
    rows = published.rows("granularity")
    once = {row.setting: row for row in rows[rows["arm"] == "one pass"].itertuples()}
    where = {"iNaturalist": {"table": "T5"}, "ImageNet-21k;": {"table": "T2"}}
    where["ImageNet-1k;"] = {"setting": "ImageNet-1k; ResNet50; R1, R2"}  # of the text: Table 9 has no baseline
    gains = []
    for setting, row in once.items():
        error = row.mean if row.metric == "error_percent" else 100 - row.mean
        gains.append(error - baseline(**where[setting.split(" ")[0]]))
    assert gains == pytest.approx([0.62, 0.354, 0.76], abs=0.001)


@pytest.mark.parametrize("arm", ["pretrained", "distilled"])
def test_the_mean_of_the_five_shifts_is_theirs(arm):
    rows = published.rows("feature_contamination", "T1")
    rows = rows[rows["arm"] == arm]
    network, tested = rows["setting"].str.split("; ").str[1], rows["setting"].str.split("tested on ").str[1]
    table = rows.assign(network=network, tested=tested).pivot(index="network", columns="tested", values="mean")
    shifts = table.drop(columns=["ImageNet", "mean of the five shifts"])
    assert shifts.shape == (5, 5)
    assert list(shifts.mean(axis=1)) == pytest.approx(list(table["mean of the five shifts"]), abs=0.0051)


def test_two_step_training_is_never_behind_one_step():
    rows = published.rows("feature_emergence").query("table != '' and metric == 'test_accuracy_percent'")
    table = rows.pivot(index="setting", columns="arm", values="mean")
    assert len(table) == 8 and (table["two step"] - table["one step"] > 10).all()


def test_shares_are_shares():
    for paper in published.papers():
        rows = published.rows(paper)
        percent = rows[rows["metric"].str.endswith("percent")]
        cosine = rows[rows["metric"].str.startswith("cosine")]
        assert percent["mean"].dropna().between(0, 100).all() and cosine["mean"].dropna().between(-1, 1).all()
        assert (rows["std"].dropna() < 1).all() and (rows["n"].dropna() >= 1).all()


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
        (["one,T1,,setting,arm,2,error_percent,5.O,0.1,3,"], "row 2, column mean: '5.O' is no number"),
        (["one,T1,,setting,arm,2,error_percent,5.0,nan,3,"], "row 2, column std: 'nan' is no number"),
        ([ROW, ROW], "row 3: is alike row 2 in table, setting, arm, x, metric"),
        (["one,T1,,setting,arm,2,error_percent,,,,"], "row 2, column note: is empty"),
        (["one,T1,,setting,,2,error_percent,1,,,"], "row 2, column arm: is empty"),
        (["two,T1,,setting,arm,2,error_percent,1,,,"], "row 2, column paper: 'two' is not the file's name"),
        (["one,T1,setting,arm,2,error_percent,1,,"], "row 2: has 9 cells, must have 11"),
    ],
)
def test_a_wrong_row_is_named(folder, lines, words):
    (folder / "one.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    with pytest.raises(GranularityError) as error:
        published.rows("one")
    (line,) = error.value.args
    assert line.startswith(f"{folder / 'one.csv'}: {words}")


def test_every_wrong_row_is_named_at_once(folder):
    (folder / "one.csv").write_text(f"{HEADER}\n{ROW.replace('5.0', 'x')}\n{ROW.replace('0.1', 'y')}\n")
    with pytest.raises(GranularityError) as error:
        published.read("one")
    assert len(error.value.args) == 3 and "row 3, column std" in error.value.args[1]


def test_wrong_columns_are_named(folder):
    (folder / "one.csv").write_text("paper,table\n")
    with pytest.raises(GranularityError, match=r"one.csv: the columns are paper,table, must be paper,table,figure"):
        published.read("one")


def test_what_is_not_there_lists_what_is():
    with pytest.raises(GranularityError, match=r"nothing.csv: there are no published rows .* feature_contamination, "):
        published.rows("nothing")
    with pytest.raises(GranularityError, match=r"granularity.csv: has no table T12; it has T1, T2, .*T11"):
        published.rows("granularity", "T12")
    with pytest.raises(GranularityError, match="no published rows"):
        published.rows("label_counts")


def test_one_number():
    main = {"table": "T1", "arm": "one step"}
    assert published.number("feature_emergence", **main, metric="cosine_max") == 0.848
    with pytest.raises(GranularityError, match=r"table 'T1', arm 'one step': must be 1 row, there are 3"):
        published.number("feature_emergence", **main)
    with pytest.raises(GranularityError, match=r"emergence.csv: metric 'accuracy_std_points': has no mean"):
        published.number("feature_emergence", metric="accuracy_std_points")


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
    lines = published_numbers.describe(None).split("\n")
    assert [line.split()[0] for line in lines] == published.papers()
    assert next(line for line in lines if line.startswith("neural_collapse")).endswith("rows  no tables")
    with pytest.raises(GranularityError, match="--table T1: of which paper"):
        published_numbers.describe(None, "T1")


def test_numbers_of_papers_stand_once():
    """The counts of label spaces are of another kind; no other file of the folder has columns of its own."""
    for file in published.FOLDER.glob("*.csv"):
        with open(file, newline="") as stream:
            header = next(csv.reader(stream))
        assert (header == list(published.COLUMNS)) == (file.stem != published.COUNTS)
