"""The report: statistics, words, figures and the page, on a synthetic tree of results."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from granularity.base.errors import GranularityError
from granularity.claims import claim, statistics
from granularity.claims.claim import Claim
from granularity.config.options import Config
from granularity.look import evidence
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.report import between, drawing, figures, loaded, montage, page, panels, questions, words
from granularity.stages.report.encoder import Encoder
from granularity.store import artifacts, writer
from granularity.store.artifacts import Artifact
from granularity.store.task import Task
from support import synthetic_results

SMALL = {
    "name": "small",
    "seeds": {"pretrain": 3, "finetune": 3},
    "conditions": [{"train_size": 120}, {"train_size": 240, "spaces": ["manual-digit", "kmeans-4"]}],
    "label_spaces": {
        "random": [4, 10],
        "random_superclass": [2],
        "kmeans": [4],
        "kmeans_superclass": [2, 3],
        "rebalanced": {"clusters": [2, 3], "thresholds": [12, 4]},
    },
}


FEW = {"conditions": [{"train_size": 120, "spaces": ["manual-digit", "kmeans-superclass-2"]}]}


def make(monkeypatch, folder: Path, over: dict | None = None, **options) -> tuple[Plan, Path]:
    """Synthetic results and their report, in a working directory of their own."""
    monkeypatch.chdir(folder)
    plan = synthetic_results.write(Config.model_validate(SMALL | (over or {})), **options)
    return plan, synthetic_results.write_report(plan)


def load(plan: Plan) -> loaded.Loaded:
    """What a report of these results shows."""
    (job,) = plan.jobs("report")
    inputs = {role: tuple(map(plan.folder, sources)) for role, sources in job.inputs.items()}
    options = STAGES["report"].model.model_validate(job.options)
    return loaded.load(Task(STAGES["report"], plan.folder(job), options, inputs))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("report")
        plan, output = make(monkeypatch, folder)
        yield plan, folder / output


def text_of(output: Path) -> str:
    return (output / "report.html").read_text(encoding="utf-8")


def comparisons(output: Path) -> pd.DataFrame:
    return pd.read_parquet(output / "tables/comparisons.parquet")


def sections_of(text: str) -> list[str]:
    return re.findall(r'<section id="(\w+)">', text)


DEFAULT_SECTIONS = [
    "curve",
    "differences",
    "caveats",
    "meaning",
    "which",
    "sizes",
    "results",
    "answer",
    "probes",
    "spaces",
]
DEFAULT_SECTIONS += ["clusters", "encoder", "cost", "reproduce"]


# ---------------------------------------------------------------- tables


def test_results_against_the_runs(made):
    plan, output = made
    results = pd.read_csv(output / "tables/results.csv")
    compared = pd.read_csv(output / "tables/comparisons.csv")
    finetune = pd.concat(
        Artifact.open(output.parents[2] / plan.folder(job)).table("runs.parquet")
        for job in plan.jobs("finetune", condition="train-120")
    )
    errors = finetune.groupby(["space", "pretrain_seed"])["val_error"].mean().unstack()
    row = results[(results["condition"] == "train-120") & (results["space"] == "kmeans-4")].iloc[0]
    assert row["runs"] == 9 and row["backbones"] == 3
    assert row["mean"] == pytest.approx(errors.loc["kmeans-4"].mean())
    assert row["std"] == pytest.approx(errors.loc["kmeans-4"].std())
    meaningful = compared[compared["question"] == "finer"]
    assert len(meaningful) == 8 and set(meaningful["comparisons"]) == {8}
    assert row["control"] == "random-4"
    for prefix, other, number in (("", "target", 8), ("control_", "random-4", 3)):
        test = stats.ttest_rel(errors.loc["kmeans-4"], errors.loc[other])
        interval = tuple(test.confidence_interval(1 - 0.05 / number))
        found = row[f"{prefix}difference"], row[f"{prefix}low"], row[f"{prefix}high"]
        assert found == pytest.approx(((errors.loc["kmeans-4"] - errors.loc[other]).mean(), *interval))
    averaged = compared[(compared["question"] == "meaning") & (compared["label"] == "120 training images")]
    pairs = results[results["condition"] == "train-120"].dropna(subset="control").groupby("control_holds")
    assert pairs["space"].agg(list).to_dict() == {
        "both": ["kmeans-superclass-2"],
        "neither": ["kmeans-4"],
        "space": ["manual-digit"],  # whose control does not hold the target: it is in no average
    }
    for row in averaged.itertuples():
        assert int(row.other) == 1
        assert row.difference == pytest.approx(pairs.get_group(row.holds)["control_difference"].mean())
    assert averaged["holds"].tolist() == ["both", "neither"]
    one_pass = results[(results["condition"] == "train-120") & (results["role"] == "one_pass")].iloc[0]
    assert one_pass["runs"] == plan.config.seeds.pretrain * plan.config.seeds.finetune


def test_a_control_has_as_many_classes_and_is_alike_within_the_target(made):
    results = pd.read_csv(made[1] / "tables/results.csv")
    controls = results[results["condition"] == "train-120"].set_index("space")["control"].dropna().to_dict()
    # Of G = 6 there is one within superclasses; of 9 there is none.
    assert controls == {
        "manual-digit": "random-10",
        "kmeans-4": "random-4",
        "kmeans-superclass-2": "random-superclass-2",
    }


# ---------------------------------------------------------------- words


VERDICTS = {
    "seeds": {"pretrain": 6, "finetune": 2},
    "conditions": [{"train_size": 120, "spaces": ["manual-digit", "random-4", "random-10", "kmeans-4"]}],
}


@pytest.mark.parametrize(
    "effects, noise, verdict, standing",
    [
        ({"manual": -6.0, "random": 6.0}, 0.3, "yes", "better"),
        ({"manual": 4.0, "kmeans": 4.0}, 0.3, "no", "worse"),
        ({}, 0.05, "no", "open"),
        ({"manual": -0.5}, 1.5, "open", "open"),
    ],
    ids=["better", "all worse", "no room for a gain", "too noisy"],
)
def test_the_headline_follows_the_arms(monkeypatch, tmp_path, effects, noise, verdict, standing):
    _, output = make(monkeypatch, tmp_path, VERDICTS, effects=effects, noise=noise)
    results = pd.read_parquet(output / "tables/results.parquet")
    text = text_of(output)
    answer, sentence = words.headline(results, comparisons(output))
    arms = results.set_index("space")["standing"]
    assert answer == verdict and arms["manual-digit"] == standing
    assert (answer == "yes") == (arms.drop(["random-4", "random-10"]) == "better").any()
    assert f'<span class="verdict {answer}">' in text and sentence in text
    (case,) = questions.cases(results)  # what the sections say of this size is what the headline says
    assert (case["answer"], case["space"]) == (answer, words.best_of(words.finer(results), answer)["space"])
    for mark in ("better", "worse"):  # labels by chance are marked neither, whatever they come to
        marked = words.finer(results)["standing"] == mark
        assert text.count(f'class="verdict {mark}"') == int(marked.sum())
    best = results[results["space"].isin(["manual-digit", "kmeans-4"])].set_index("space")
    best = best.loc[best["difference"].idxmin()]
    assert best.name in sentence and words.interval_of(best) in sentence
    assert best["control"] in sentence and words.interval_of(best, "control_") in sentence


def test_labels_by_chance_are_no_answer(monkeypatch, tmp_path):
    """Random IDs that are better than the baseline say yes to nothing; what means something is no better than they."""
    effects = {"manual": -3.0, "random": -3.0, "kmeans": 0.0}
    over = {"conditions": [{"train_size": 120, "spaces": ["random-4", "random-10"]}]}
    _, output = make(monkeypatch, tmp_path, VERDICTS | over | {"name": "chance"}, effects=effects)
    results = pd.read_parquet(output / "tables/results.parquet")
    assert set(results.loc[results["meaningless"], "standing"]) == {"better"}
    assert words.headline(results, comparisons(output)) == (
        "open",
        "No label space finer than the target, other than by chance, was pretrained on.",
    )
    assert "meaning" not in sections_of(text_of(output))
    _, output = make(monkeypatch, tmp_path, VERDICTS, effects=effects)
    answer, sentence = words.headline(pd.read_parquet(output / "tables/results.parquet"), comparisons(output))
    assert answer == "yes" and "random-10" in sentence and "which can’t be told from chance" in sentence


def test_without_a_control_of_the_same_size_the_answer_says_so(monkeypatch, tmp_path):
    over = {"conditions": [{"train_size": 120, "spaces": ["manual-digit", "random-4"]}]}
    _, output = make(monkeypatch, tmp_path, VERDICTS | over, effects={"manual": -6.0})
    results = pd.read_parquet(output / "tables/results.parquet")
    answer, sentence = words.headline(results, comparisons(output))
    assert answer == "yes" and "no labels by chance of the same G" in sentence and results["control"].isna().all()
    assert "No labels by chance of the same G are beside manual-digit" in text_of(output)
    assert not pd.read_csv(output / "tables/comparisons.csv")["question"].isin(["control", "meaning"]).any()


def test_every_size_is_answered_for_itself(monkeypatch, tmp_path):
    over = {"conditions": [*VERDICTS["conditions"], {"train_size": 240, "spaces": ["kmeans-4"]}]}
    _, output = make(monkeypatch, tmp_path, VERDICTS | over, effects={"manual": -6.0}, noise=1.0)
    answer, sentence = words.headline(pd.read_parquet(output / "tables/results.parquet"), comparisons(output))
    assert answer == "yes" and sentence.startswith("With 120 training images, networks")
    assert sentence.endswith(". Elsewhere: 240 training images: can’t be told.")
    sizes = text_of(output).partition('<section id="sizes">')[2].partition("</section>")[0]
    assert re.findall(r'<span class="verdict (\w+)">', sizes) == ["yes", "open"]


def test_gains_are_compared_between_sizes_and_between_transfers(monkeypatch, tmp_path):
    over = {"seeds": {"pretrain": 4, "finetune": 1}, "transfers": [{"name": "first"}, {"name": "second"}]}
    over["conditions"] = [
        {"train_size": 120, "spaces": ["manual-digit", "random-4"]},
        {"train_size": 240, "spaces": ["manual-digit", "kmeans-4"]},
    ]
    plan, output = make(monkeypatch, tmp_path, over)
    tables = {name: pd.read_csv(output / f"tables/gains_by_{name}.csv") for name in ("size", "transfer")}
    # Of the sizes, what both have, in each transfer; of the transfers, at each size; labels by chance in neither.
    assert tables["size"]["space"].tolist() == ["manual-digit"] * 2
    assert tables["transfer"]["space"].tolist() == ["manual-digit", "manual-digit", "kmeans-4"]
    gains = {panel.label: between._gains(panel) for panel in panels.panels(load(plan).conditions)}
    for table in tables.values():
        p = []
        for row in table.itertuples():
            here, there = (gains[label][row.network, row.space] for label in (row.label, row.other))
            test = stats.ttest_rel(here, there)
            p.append(test.pvalue)
            assert (row.gain, row.other_gain, row.pairs) == pytest.approx((here.mean(), there.mean(), 4))
            ends = tuple(test.confidence_interval(1 - 0.05 / len(table)))
            assert (row.difference, row.low, row.high) == pytest.approx(((here - there).mean(), *ends))
        assert table["p"].tolist() == pytest.approx(statistics.holm(p))
        assert ((table["standing"] == "open") == (table["p"] >= 0.05)).all()
    text = text_of(output)
    assert "Does the gain differ between sizes?" in text and "Does the gain differ between transfers?" in text


def test_one_backbone_tells_no_difference_between_sizes(monkeypatch, tmp_path):
    sizes = [{"train_size": size, "spaces": ["manual-digit"]} for size in (120, 240)]
    _, output = make(monkeypatch, tmp_path, {"conditions": sizes, "seeds": {"pretrain": 1, "finetune": 2}})
    (row,) = pd.read_csv(output / "tables/gains_by_size.csv").to_dict("records")
    assert row["standing"] == "untested" and row["told"] == "can’t be told" and math.isnan(row["needed"])


def test_the_headlines_arm_is_of_a_size_that_it_answers():
    """At one size there is no room for a gain, at another it can't be told: that is the answer, and its arm."""
    rows = [("10", -0.1, -0.2, 0.1), ("20", 0.5, -1.0, 2.0), ("30", -3.0, np.nan, np.nan)]
    table = pd.DataFrame(rows, columns=["label", "difference", "low", "high"]).assign(role="arm", space="fine")
    table["standing"] = ["open", "open", "untested"]
    table = pd.concat([table, table.assign(role="baseline", space="target")], ignore_index=True)
    table = table.assign(meaningless=False, baseline_mean=6.0, control=None, network="n", repeats=None)
    table["granularity"] = np.where(table["role"] == "arm", 9, 3)
    answer, sentence = words.headline(table, pd.DataFrame(columns=["question", "label", "network"]))
    assert answer == "open" and sentence.startswith("With 20, the best networks")
    assert sentence.endswith(" Elsewhere: 10: no and 30: can’t be told.")


def test_runs_of_one_backbone_count_once(monkeypatch, tmp_path):
    """Many finetunings that agree make no interval, nor do backbones that differ by more than the arms."""
    over = {"seeds": {"pretrain": 1, "finetune": 12}}
    _, output = make(monkeypatch, tmp_path, VERDICTS | over, effects={"manual": -2.0}, noise=0.01)
    results = pd.read_parquet(output / "tables/results.parquet")
    assert set(results["standing"]) == {"baseline", "untested"} and results["low"].isna().all()
    answer, sentence = words.headline(results, comparisons(output))
    assert answer == "open" and "No interval can be given" in sentence and "seeds.pretrain" in sentence
    text = re.sub(r"<svg.*?</svg>", "", text_of(output), flags=re.DOTALL).lower()
    assert "nan" not in text.split() and 'class="verdict better"' not in text
    assert "1 pretrained backbone stands behind each label space" in text


def test_what_all_backbones_of_a_seed_share_is_taken_away(monkeypatch, tmp_path):
    _, output = make(monkeypatch, tmp_path, VERDICTS, effects={"manual": -2.0}, noise=0.1, between_backbones=3.0)
    row = pd.read_csv(output / "tables/results.csv").set_index("space").loc["manual-digit"]
    assert row["std"] > 4 and row["standing"] == "better" and row["high"] - row["low"] < 1


def test_words_follow_the_numbers(monkeypatch, tmp_path):
    _, output = make(monkeypatch, tmp_path, VERDICTS, effects={"manual": -6.0, "random": 6.0, "kmeans": 0.0})
    results, compared = (pd.read_parquet(output / f"tables/{name}.parquet") for name in ("results", "comparisons"))
    said = words.findings(results, compared)
    assert any(one.startswith("Better than the baseline: manual-digit (−") for one in said)
    assert any(one.startswith("Worse than the baseline: random-4 (+") and "random-10" in one for one in said)
    assert any("from the baseline, in either direction: kmeans-4" in one for one in said)
    assert any(one.startswith("Where neither of them holds the target (1 pair), meaning counts") for one in said)
    assert any(one.startswith("random-10, the finest of its family, against random-4") for one in said)
    page_text = text_of(output)
    assert all(one in page_text for one in said)
    assert words.tally(results)[1][0] == ("human labels", ["1 better"])


def test_meaning_is_told_by_pairs_that_hold_the_target_alike(monkeypatch, tmp_path):
    """Clusters over the whole set are better than chance, those within the target's classes are not: only so far."""
    over = {"conditions": [{"train_size": 120}], "seeds": {"pretrain": 6, "finetune": 1}}
    spaces = {"manual": ["digit"], "random": [4, 10], "random_instance": False, "random_superclass": [2], "kmeans": [4]}
    over |= {"label_spaces": spaces | {"kmeans_superclass": [2], "rebalanced": {"thresholds": []}}}
    effects = {"manual": -0.1, "random": 5.0, "random_superclass": 0.0, "kmeans": 0.0, "kmeans_superclass": 0.0}
    _, output = make(monkeypatch, tmp_path, over, effects=effects)
    text = text_of(output)
    section = text.partition('<section id="meaning">')[2].partition("</section>")[0]
    assert re.findall(r'<span class="verdict (\w+)">', section) == ["open", "yes"]
    assert "In no average: manual-digit beside random-10 (120 training images), as the control does not hold" in section
    headline = text.partition('<p class="headline">')[2].partition("</p>")[0]
    assert "whether meaning beyond it counts can’t be told" in headline
    effects = effects | {"manual": -5.0}
    _, output = make(monkeypatch, tmp_path, over | {"name": "other"}, effects=effects)
    headline = text_of(output).partition('<p class="headline">')[2].partition("</p>")[0]
    assert "manual-digit" in headline and "but no evidence of meaning, as the control does not" in headline
    assert "random-10 *</td>" in text_of(output)


def test_one_label_space_of_two_names_counts_once(monkeypatch, tmp_path):
    over = {"conditions": [{"train_size": 120}], "seeds": {"pretrain": 3, "finetune": 1}}
    spaces = {"random": [4], "random_instance": False, "random_superclass": [], "kmeans": [4], "kmeans_superclass": []}
    spaces |= {"rebalanced": {"thresholds": []}, "nested": {"bottomup": [2, 4]}}
    plan, output = make(monkeypatch, tmp_path, over | {"label_spaces": spaces})
    compared = comparisons(output)
    assert load(plan).conditions[0].alike["bottomup-4"] == "kmeans-4"
    again = compared[compared["repeats"].notna()]
    assert set(zip(again["question"], again["space"], again["repeats"], strict=True)) == {
        ("finer", "bottomup-4", "kmeans-4"),
        ("control", "bottomup-4", "kmeans-4"),
    }
    number = compared.groupby("question")["comparisons"].first()
    assert (compared["question"] == "finer").sum() == number["finer"] + 1
    assert number["control"] == 1 and compared.loc[compared["question"] == "meaning", "other"].tolist() == ["1"]
    runs = pd.concat(Artifact.open(plan.folder(job)).table("runs.parquet") for job in plan.jobs("finetune"))
    pooled = runs[runs["space"].isin(["kmeans-4", "bottomup-4"])].groupby("pretrain_seed")["val_error"].mean()
    results = pd.read_parquet(output / "tables/results.parquet").set_index("space").loc[["kmeans-4", "bottomup-4"]]
    assert results["mean"].tolist() == pytest.approx([pooled.mean()] * 2) and set(results["runs"]) == {6}
    assert set(results["backbones"]) == {3} and results["low"].nunique() == 1
    text = text_of(output)
    assert "kmeans-4 and bottomup-4 part the images alike" in text and "bottomup-4 = kmeans-4<" in text
    known = evidence.found(output.parent).set_index("space")  # what `granularity recommend` learns from
    errors = runs[runs["space"] == "target"].groupby("pretrain_seed")["val_error"].mean()
    assert set(known.index) == {"manual-digit", "random-4", "kmeans-4", "bottomup-2"}
    assert known.loc["kmeans-4", "gain"] == pytest.approx((errors - pooled).mean())


def test_the_leak_is_that_of_the_captions_it_was_trained_on(monkeypatch, tmp_path):
    plan, _ = make(monkeypatch, tmp_path, FEW | {"encoder": {"captions": {"granularity": "coarse"}}})
    assert load(plan).encoder.rank == "loops"


def test_the_leak_is_told(made):
    assert "captions name the rank “digit”" in text_of(made[1])
    coarse = Encoder("m.json", "captions", {"granularity": "coarse"}, "loops", {})
    assert "“loops”" in coarse.leak and "told nothing finer" in coarse.leak
    assert "elsewhere" in Encoder("ViT-L-14", "openai", None, "loops", {}).leak


def test_listing_and_count():
    assert words.listing([]) == "none"
    assert words.listing("abc") == "a, b and c"
    assert (words.count(1, "run"), words.count(1200, "run")) == ("1 run", "1,200 runs")
    assert (words.signed(-0.5), page.number(None), page.interval(-1, 2)) == ("−0.50", "–", "−1.00 to +2.00")


# ---------------------------------------------------------------- figures


def test_figures_are_the_same_bytes_again(made, monkeypatch, tmp_path):
    plan, output = made
    monkeypatch.chdir(output.parents[2])
    again = synthetic_results.write_report(plan, tmp_path / "again")
    drawn = sorted(file.name for file in (output / "figures").iterdir())
    wanted = (
        "granularity_curve",
        "differences",
        "meaning",
        "probe",
        "agreement",
        "class_sizes",
        "montage",
        "encoder_loss",
    )
    assert {f"{name}.svg" for name in wanted} == set(drawn)
    for name in drawn:
        first = (output / "figures" / name).read_bytes()
        assert first == (again / "figures" / name).read_bytes()
        assert b"<dc:date>" not in first and b"Matplotlib v" not in first
        ElementTree.fromstring(first)


def test_ids_of_figures_do_not_collide(made):
    ids = re.findall(r'<[a-zA-Z]+[^>]* id="([^"]+)"', text_of(made[1]))
    assert len(ids) == len(set(ids))


def test_text_in_figures_is_plain():
    assert drawing.shorten("a\nb\x00c") == "a b c"
    assert len(drawing.shorten("x" * 99, 20)) == 20


def test_the_montage_shows_the_images_of_the_cluster(made):
    plan, output = made
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(output.parents[2])
        conditions = load(plan).conditions
        condition, space = montage.choose(conditions)
        samples = condition.samples.table("samples.parquet")
        rows = montage.rows(condition, space, count=3)
    assert space.name == "kmeans-superclass-2"
    sizes = [row.size for row in rows]
    assert len(rows) == 3 and sizes == sorted(sizes, reverse=True)
    for row in rows:
        members = samples.iloc[row.members]
        assert (members["split"] == "train").all() and set(members["loops"]) == {row.superclass}
        assert sum(row.composition.values()) == pytest.approx(1)
        shares = members["digit"].value_counts(normalize=True)
        assert row.composition == shares[shares > 0].to_dict()


@pytest.mark.parametrize("channels, side", [(1, 8), (3, 200)])
def test_montage_of_grey_and_colour_of_any_size(channels, side):
    pixels = np.random.default_rng(0).integers(0, 256, (4, side, side, channels)).astype(np.uint8)
    row = montage.Row(0, 4, "$a", np.arange(4), {"<b>": 0.5, "c": 0.2, "d": 0.2, "e": 0.1})
    svg = montage.draw([row], pixels)
    assert "&lt;b&gt;: 50%" in svg and "1 more: 10%" in svg and "$a" in svg
    assert len(svg) < 150_000


def test_small_shares_of_a_cluster_are_said_so():
    row = montage.Row(0, 1000, None, np.arange(4), {"a": 0.997, "b": 0.001, "c": 0.001, "d": 0.001})
    svg = montage.draw([row], np.zeros((4, 8, 8, 1), np.uint8))
    assert "1 more: &lt;1%" in svg and "b: &lt;1%" in svg and ": 0%" not in svg


def test_curve_of_any_granularity():
    for top in (13, 500_000):
        rows = [
            ("baseline", "manual", 11),
            ("arm", "manual", 12),
            ("arm", "random_instance", top),
            ("one_pass", "one_pass", 11),
        ]
        table = pd.DataFrame(rows, columns=["role", "series", "granularity"])
        table = table.assign(
            label="c", network="n", baseline="n", mean=5.0, mean_low=4.9, mean_high=[5.1, np.nan, 5.2, 5.1]
        )
        ElementTree.fromstring(figures.granularity_curve(table))


def test_an_unknown_family_is_drawn_under_its_own_name():
    rows = [("baseline", "manual", 3, 5.0), ("arm", "nobody_knows", 12, 4.0), ("arm", "nothing_at_all", None, 4.5)]
    table = pd.DataFrame(rows, columns=["role", "series", "granularity", "mean"])
    table = table.assign(label="c", network=["n", "n", "other"], baseline="n", mean_low=4.9, mean_high=5.1)
    svg = figures.granularity_curve(table)
    assert "nobody_knows" in svg and "nothing_at_all (other)" in svg


# ---------------------------------------------------------------- the page


def test_the_page_asks_nobody_and_is_whole(made):
    plan, output = made
    text = text_of(output)
    assert not (output.parent / "report.html").exists()
    assert not re.findall(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
    assert "currentColor" in text and plan.config.report.title in text
    for source in ("kmeans-superclass-2", "random-instance", "target (one pass)", "embedding", "snakemake"):
        assert source in text
    assert sections_of(text) == DEFAULT_SECTIONS
    assert re.findall(r'<a href="#(\w+)">', text) == DEFAULT_SECTIONS


def test_hostile_names_are_escaped(monkeypatch, tmp_path):
    over = FEW | {"report": {"title": "<img src=x onerror=alert(1)> & co"}}
    _, output = make(monkeypatch, tmp_path, over)
    text = text_of(output)
    assert "<script" not in text and "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; co" in text
    assert "&lt;script" in text  # the superclass in the montage


def test_verdicts_are_shown_beside_the_numbers(monkeypatch, tmp_path):
    over = {"conditions": [{"train_size": 120, "spaces": ["manual-digit"]}], "studies": ["granularity_t5"]}
    monkeypatch.chdir(tmp_path)
    plan = synthetic_results.write(Config.model_validate(SMALL | over))
    rows = [
        Claim(
            "S1", "It rises", "Theorem 1", "slope", [1.9, 2.0, 2.1], low=1, conditions={"n < d": True, "c < 1": False}
        ),
        Claim("S2", "It <b>falls</b>", "Theorem 2", "slope", [], untested="needs 3 runs"),
        Claim("S3", "It is", "Theorem 3", "sum", [1.0], 1, 1, kind="identity"),
    ]
    for job in [*plan.jobs("verdicts", name="small"), *plan.jobs("verdicts", study="label_granularity")]:
        judged(plan, job, rows)
    output = synthetic_results.write_report(Plan(plan.config))
    html = text_of(output)
    assert html.count("2 (1.9 to 2.1)") == 2 and html.count("needs 3 runs") == 2
    assert html.count("1 of 2 conditions met") == html.count("n &lt; d: met; c &lt; 1: NOT met") == 2
    assert "granularity t5" in html and "label granularity" in html
    assert "It &lt;b&gt;falls" in html and "data:image/svg+xml;base64," in html
    assert html.count("Identities, which only a mistake in the code can break: holds: 1") == 2
    assert {"verdicts/granularity_t5", "theory/label_granularity"} <= set(Artifact.open(output).manifest["inputs"])
    assert {"studies", "theory"} <= set(sections_of(html)) and "paper" not in sections_of(html)
    claims = pd.read_csv(output / "tables/claims.csv")
    assert claims["measured"].tolist() == pytest.approx([2.0, math.nan, 1.0], nan_ok=True)


def test_a_damaged_world_is_left_out(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    over = {"conditions": [{"train_size": 120, "spaces": ["manual-digit"]}]}
    plan = synthetic_results.write(Config.model_validate(SMALL | over))
    (job,) = plan.jobs("verdicts", study="label_granularity")
    judged(plan, job, [Claim("S1", "It rises", "Theorem 1", "slope", [2.0], low=1)])
    plan = Plan(plan.config)
    (plan.folder(job) / "checks.csv").chmod(0o644)
    (plan.folder(job) / "checks.csv").write_text("harmed")
    assert "theory" not in sections_of(text_of(synthetic_results.write_report(plan)))
    assert "without the theory" in capsys.readouterr().err


def test_a_study_without_a_claim_to_judge_says_so(monkeypatch, tmp_path):
    over = {"conditions": [{"train_size": 120, "spaces": ["manual-digit"]}], "studies": ["granularity_t5"]}
    monkeypatch.chdir(tmp_path)
    plan = synthetic_results.write(Config.model_validate(SMALL | over))
    judged(plan, *plan.jobs("verdicts", name="small"), [])
    output = synthetic_results.write_report(plan)
    assert "No claim of this study bears on these results" in text_of(output)
    assert not (output / "tables/claims.csv").exists()


def judged(plan, job, claims):
    """What stage `verdicts` writes of some claims."""
    stage = STAGES["verdicts"]
    params = {"size": "quick"} if job.values["name"] == "theory" else {}
    task = Task(stage, plan.folder(job), stage.model.model_validate(job.options))
    with task.create({}, job.options | params, ("study", *params)) as out:
        out.text("checks.csv", claim.table(claims).to_csv(index=False))
        out.text("figures/rise.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
        out.summary |= {"verdicts": claim.verdicts(claims), "identities": claim.verdicts(claims, "identity")}
        out.summary |= {"runs": 3} if params else {}


def test_the_command_is_the_one_given(monkeypatch, tmp_path):
    monkeypatch.setenv("GRANULARITY_COMMAND", "snakemake --configfile 'a & b.yaml'")
    _, output = make(monkeypatch, tmp_path, FEW)
    assert "snakemake --configfile &#39;a &amp; b.yaml&#39;" in text_of(output)


def test_the_artifact_names_all_it_read(made):
    plan, output = made
    report = Artifact.open(output, "report")
    assert report.manifest["options"]["configuration"] == plan.config.model_dump(mode="json")
    found = {path.resolve() for path in artifacts.find(output.parent) if path != output}
    assert {(report.folder / entry["path"]).resolve() for entry in report.manifest["inputs"].values()} == found
    assert "train-120/hierarchy/kmeans-4" in report.manifest["inputs"]
    for name in ("results", "probe", "properties", "cost"):
        parquet = pd.read_parquet(output / f"tables/{name}.parquet")
        assert len(parquet) == len(pd.read_csv(output / f"tables/{name}.csv")) > 0
    assert all(artifact.digest in text_of(output) for artifact in report.lineage().values())


@pytest.mark.parametrize(
    "over, absent, parts",
    [
        ({"conditions": [{"train_size": 120, "spaces": []}]}, {"clusters", "encoder"}, set()),
        ({"report": {"montage_clusters": 0}}, {"clusters"}, {"class_sizes", "encoder_loss"}),
        ({"encoder": {"model": "ViT-L-14", "pretrained": "openai"}}, set(), {"class_sizes", "montage"}),
        ({"jobs": {"pretrain": "run", "finetune": "space", "measure": "run"}}, set(), {"montage"}),
        ({"measures": []}, {"probes"}, {"montage"}),
        ({"conditions": [{"train_size": "all", "spaces": ["random-4"]}]}, {"clusters", "encoder"}, set()),
    ],
    ids=["baseline only", "no montage", "encoder from elsewhere", "small jobs", "no measure", "nothing clustered"],
)
def test_what_there_is_nothing_to_show_of_is_left_out(monkeypatch, tmp_path, over, absent, parts):
    _, output = make(monkeypatch, tmp_path, FEW | over)
    text = text_of(output)
    absent = absent | {"meaning", "which", "sizes"}  # one size, no labels by chance, and no family of two
    assert sections_of(text) == [name for name in DEFAULT_SECTIONS if name not in absent]
    drawn = {file.stem for file in (output / "figures").iterdir()}
    assert parts <= drawn and drawn == set(re.findall(r'<figure id="figure-(\w+)">', text))
    assert {file.stem for file in (output / "tables").glob("*.csv")} == set(re.findall(r"tables/(\w+)\.csv", text))
    assert ("leak" in text or "trained elsewhere" in text) == ("encoder" not in absent)
    if "probes" not in absent:
        probe = pd.read_parquet(output / "tables/probe.parquet")
        assert not probe.duplicated(["condition", "space", "probe", "rank"]).any()


def test_several_networks_and_transfers_stand_apart(monkeypatch, tmp_path):
    over = {
        "name": "networks",
        "conditions": [{"train_size": 120, "spaces": ["manual-digit", "kmeans-4"]}],
        "networks": [
            {"name": "small"},
            {"name": "wide", "model": {"args": {"channels": [16, 16, 16, 16]}}},
            {"name": "distilled", "objective": "distil"},
        ],
        "transfers": [
            {"name": "here"},
            {"name": "there", "data": {"samples": {"source": "digits", "validation": 50}, "train_size": 90}},
        ],
    }
    _, output = make(monkeypatch, tmp_path, over)
    results = pd.read_csv(output / "tables/results.csv")
    labels = [f"120 training images, {network}, {name}" for name in ("here", "there") for network in ("small", "wide")]
    assert list(dict.fromkeys(results["label"])) == labels
    distilled = results[results["network"] == "distilled"]
    assert len(distilled) == 2 and distilled["granularity"].isna().all()
    assert set(distilled["baseline"]) == {"small"} and distilled["difference"].notna().all()
    one_pass = results[results["role"] == "one_pass"]
    assert set(one_pass["transfer"]) == {"here"}  # elsewhere the first stage is on other images
    assert results.loc[results["transfer"] == "there", "pretrain_mean"].isna().all()
    for _, rows in results.groupby("label"):
        assert (rows["role"] == "baseline").sum() == 1
    text = text_of(output)
    assert "“distilled” has no runs on the target labels of its own: it is compared with" in text
    assert "no labels: distil (distilled)" in text and "distil, distilled" in text
    header = text.partition('id="results"')[2].partition("</thead>")[0]
    assert "Network" in header and "Transfer" in header
    asked = ["transfers" if one == "sizes" else one for one in DEFAULT_SECTIONS if one not in ("meaning", "which")]
    assert sections_of(text) == asked


def test_a_network_without_any_baseline_is_not_compared(monkeypatch, tmp_path):
    over = {
        "name": "alone",
        "conditions": [{"train_size": 120, "spaces": ["manual-digit"]}],
        "networks": [{"name": "distilled", "objective": "distil"}],
    }
    _, output = make(monkeypatch, tmp_path, over)
    results = pd.read_csv(output / "tables/results.csv")
    assert results["baseline"].isna().all() and set(results["standing"]) == {"untested"}
    assert not {"curve", "differences"} & set(sections_of(text_of(output)))
    assert "There is no retraining baseline" in text_of(output)


def test_other_measures_are_plain_tables(monkeypatch, tmp_path):
    over = {
        "name": "measured",
        "conditions": [{"train_size": 120, "spaces": ["manual-digit"]}],
        "measures": [
            {"name": "probe", "of": ["backbones", "untrained"]},
            {"name": "scores", "measure": "accuracy", "of": ["backbones"], "splits": ["train", "val"]},
        ],
    }
    _, output = make(monkeypatch, tmp_path, over)
    text, table = text_of(output), pd.read_csv(output / "tables/measures.csv")
    assert set(table["key"]) == {"error", "macro_f1", "images"} and set(table["split"]) == {"train", "val"}
    section = text.partition('id="measures"')[2].partition("</section>")[0]
    assert "<h3>scores</h3>" in section and "Macro-F1 (%)" in section and "Error, top-1 (%)" in section
    probe = pd.read_csv(output / "tables/probe.csv")
    errors = probe[probe["rank"] == "loops"].groupby("state")["mean"].mean()
    assert set(errors.index) == {"untrained", "pretrained"} and errors["untrained"] > errors["pretrained"] + 10
    assert '<th scope="col" class="text">State' in text.partition('id="probes"')[2]


def test_missing_runs_are_an_error(monkeypatch, tmp_path):
    plan, _ = make(monkeypatch, tmp_path, FEW)
    (job,) = plan.jobs("finetune", condition="train-120", unit="all")
    stage, made = STAGES["finetune"], Artifact.open(plan.folder(job))
    table = made.table("runs.parquet")
    other = Task(stage, plan.folder(job), stage.model.model_validate(job.options), seed=1)
    with other.create({}, {}) as out:
        out.table("runs.parquet", table.iloc[1:])
    with pytest.raises(GranularityError, match=r"finetune/.*/all: lacks runs"):
        synthetic_results.write_report(plan)


def test_a_flipped_byte_is_an_error(monkeypatch, tmp_path):
    plan, _ = make(monkeypatch, tmp_path, FEW)
    file = Path("results/small/train-120/hierarchy/kmeans-superclass-2/classes.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(GranularityError, match=r"classes\.parquet"):
        synthetic_results.write_report(plan)


def test_the_papers_numbers_stand_beside_its_own_experiment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    plan = synthetic_results.write(
        Config.model_validate(SMALL | FEW), samples={"source": "inaturalist"}, classes={"loops": 11}
    )
    text = text_of(synthetic_results.write_report(plan))
    section = text.partition('id="paper"')[2].partition("</section>")[0]
    assert "5.25 % (std 0.051)" in section and "−0.46 (G = 1,103)" in section and "(sic)" in section
    assert "another data set" not in text.lower().replace("another data set, network", "")


# ---------------------------------------------------------------- in a browser


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_in_a_browser(made, tmp_path, width):
    """Nothing in the console, and no sideways scroll of the page: the width is measured in a frame of that width."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium to open the page in")
    (tmp_path / "report.html").write_bytes((made[1] / "report.html").read_bytes())
    (tmp_path / "frame.html").write_text(
        f"""<!doctype html><body style="margin:0">
        <iframe src="report.html" style="width:{width}px;height:800px;border:0"></iframe>
        <script>onload = () => {{
          const page = document.querySelector("iframe").contentDocument;
          page.querySelectorAll("details").forEach(part => part.open = true);
          document.body.dataset.width = page.documentElement.scrollWidth;
          document.body.dataset.sections = page.querySelectorAll("section").length;
        }}</script></body>"""
    )
    quiet = "--disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync"
    done = subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", *quiet.split(), "--enable-logging=stderr"),
            *("--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,900"),
            *("--virtual-time-budget=5000", "--dump-dom", (tmp_path / "frame.html").as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    measured = dict(re.findall(r'data-(width|sections)="(\d+)"', done.stdout))
    assert int(measured["sections"]) == len(DEFAULT_SECTIONS) and int(measured["width"]) <= width
    assert "CONSOLE" not in done.stderr


def test_gpus_have_columns_where_one_was_used(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "hardware", lambda: {"cpu": "x", "gpu": "H200"})
    monkeypatch.setattr(writer, "gpu_memory", lambda: {"gpu_peak_memory_mb": 41_234.5})
    _, output = make(monkeypatch, tmp_path, {"conditions": [{"train_size": 120, "spaces": ["manual-digit"]}]})
    section = text_of(output).partition('id="cost"')[2].partition("</section>")[0]
    assert "Largest GPU memory of a job (MB)" in section and "41,234" in section
    table = pd.read_csv(output / "tables" / "cost.csv")
    assert (table["gpu_seconds"] == table["wall_seconds"]).all()
