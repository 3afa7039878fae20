"""The report: statistics, words, figures and the page, on a synthetic tree of results."""

import base64
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from scipy import stats

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import claim, statistics
from granularity.claims.claim import Claim
from granularity.claims.primary import Primary
from granularity.config.options import Config
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.report import comparisons as compared_by
from granularity.stages.report import loaded, words
from granularity.stages.report.sections import clusters
from granularity.store import place
from granularity.store.artifact import Artifact
from granularity.store.task import Task
from support import browser, synthetic_results

SMALL = {
    "name": "small",
    "seeds": {"pretrain": 3, "finetune": 3},
    "conditions": [{"train_size": 120}, {"train_size": 240, "spaces": ["manual-digit", "kmeans-4"]}],
    "label_spaces": {
        "random": [4, 10],
        "random_instance": True,
        "random_superclass": [2],
        "kmeans": [4],
        "kmeans_superclass": [2, 3],
        "rebalanced": {"clusters": [2, 3], "thresholds": [12, 4]},
    },
}


ANSWER = ("curve", "questions", "results")  # sections
FEW = {"conditions": [{"train_size": 120, "spaces": ["manual-digit", "kmeans-superclass-2"]}]}


def make(monkeypatch, folder: Path, over: dict | None = None, sections=ANSWER, **options) -> tuple[Plan, Path]:
    """Synthetic results and sections of their report (none: all), in a working directory of their own."""
    monkeypatch.chdir(folder)
    plan = synthetic_results.write(Config.model_validate(SMALL | (over or {})), **options)
    return plan, synthetic_results.write_report(plan, sections=sections)


def load(plan: Plan) -> loaded.Loaded:
    """What a report of these results shows."""
    (job,) = plan.jobs("report")
    inputs = {role: tuple(map(plan.folder, sources)) for role, sources in job.inputs.items()}
    options = STAGES["report"].model.model_validate(job.options)
    return loaded.Loaded(Task(STAGES["report"], plan.folder(job), options, inputs))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("report")
        plan, output = make(monkeypatch, folder, sections=())
        yield plan, folder / output


def text_of(output: Path) -> str:
    return (output / "report.html").read_text(encoding="utf-8")


def comparisons(output: Path) -> pd.DataFrame:
    return pd.read_parquet(output / "tables/comparisons.parquet")


def headline_of(output: Path) -> tuple[str, str]:
    """The answer of the page, and the one sentence that goes with it."""
    text = text_of(output).partition('<p class="headline">')[2].partition("</p>")[0]
    answer, said = re.fullmatch(r'<span class="verdict (\w+)">[^<]*</span>(.*)', text, flags=re.DOTALL).groups()
    assert len(said.split()) <= 40
    return answer, " ".join(said.split())


def drawn_in(output: Path, name: str) -> list[str]:
    """The words of a figure."""
    return re.findall(r">([^<>]+)</text>", (output / f"figures/{name}.svg").read_text())


def section_of(output: Path, name: str) -> str:
    return text_of(output).partition(f'<section id="{name}">')[2].partition("</section>")[0]


def sections_of(text: str) -> list[str]:
    return re.findall(r'<section id="(\w+)">', text)


DEFAULT_SECTIONS = ["curve", "caveats", "questions", "results", "measures", "spaces", "clusters", "reproduce"]


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
    pairs = results[results["condition"] == "train-120"].dropna(subset="control")
    controls = {"manual-digit": "random-10", "kmeans-4": "random-4", "kmeans-superclass-2": "random-superclass-2"}
    assert pairs.set_index("space")["control"].to_dict() == controls  # of G = 9 there is none
    pairs = pairs.groupby("control_holds")
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


def test_heads_that_are_merged_into_the_target_stand_beside_finetuning(monkeypatch, tmp_path):
    over = {"conditions": [{"train_size": 120, "merged": ["manual-digit"], **FEW["conditions"][0]}]}
    plan, output = make(monkeypatch, tmp_path, over)
    alike, merged = plan.networks
    assert merged.recipe.epochs == alike.recipe.epochs + plan.transfers[0].recipe.epochs
    assert not any(
        "merged" in name
        for stage in ("finetune", "measure")
        for job in plan.jobs(stage)
        for name in job.values.values()
    )
    errors, before = {}, [*plan.jobs("pretrain"), *plan.jobs("finetune")]
    for job in before:
        table = Artifact.open(plan.folder(job)).table("runs.parquet").assign(stage=job.stage)
        for key, rows in table.groupby(["stage", "network", "space"]):
            errors[key] = rows.groupby("pretrain_seed")["val_error"].mean()
    compared = comparisons(output).set_index("question")
    head, whole = compared.loc["head"], compared.loc[["merged"]].iloc[0]
    assert set(head["space"]) == {"manual-digit (head)", "kmeans-superclass-2 (head)"}
    ours = errors["pretrain", "resnet18", "manual-digit"] - errors["finetune", "resnet18", "manual-digit"]
    assert head.set_index("space")["difference"]["manual-digit (head)"] == pytest.approx(ours.mean())
    other = errors["finetune", "resnet18", "target"]
    assert whole["space"] == "manual-digit (merged)" and whole["pairs"] == 3
    one_stage = errors["pretrain", "resnet18_merged", "manual-digit"]
    assert whole["difference"] == pytest.approx((one_stage - other).mean())
    (stages,) = compared.loc[["stages"]].to_dict("records")
    assert (stages["space"], stages["other"]) == ("manual-digit (merged)", "manual-digit")
    own = errors["finetune", "resnet18", "manual-digit"]
    assert stages["difference"] == pytest.approx((one_stage - own).mean())
    text = " ".join(text_of(output).split())
    assert "Trained for all epochs (merged), it has an error" in text and "Is it finetuning that helps?" in text
    results = pd.read_csv(output / "tables/results.csv")
    assert results.loc[results["role"] == "merged", ["space", "granularity", "backbones"]].values.tolist() == [
        ["manual-digit (merged)", 10, 3]
    ]


def test_merged_heads_stand_in_the_transfer_whose_epochs_they_have(monkeypatch, tmp_path):
    over = {"conditions": [{"train_size": 120, "merged": ["manual-digit"], **FEW["conditions"][0]}]}
    over["transfers"] = [{"name": "whole"}, {"name": "head", "recipe": {"freeze_backbone": True, "epochs": 5}}]
    _, output = make(monkeypatch, tmp_path, over)
    compared = comparisons(output)
    assert set(compared.loc[compared["question"].isin(["merged", "stages"]), "transfer"]) == {"whole"}
    assert set(compared.loc[compared["question"] == "head", "transfer"]) == {"whole", "head"}
    results = pd.read_csv(output / "tables/results.csv")
    assert set(results.loc[results["role"] == "merged", "transfer"]) == {"whole"}


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
    answer, sentence = headline_of(output)
    arms = results.set_index("space")["standing"]
    assert answer == verdict and arms["manual-digit"] == standing
    assert sentence.startswith("(exploratory)") == (answer != "open")  # nothing was declared
    assert (answer == "yes") == (arms.drop(["random-4", "random-10"]) == "better").any()
    (case,) = words.cases(results)  # what the sections say of this size is what the headline says
    for mark in ("better", "worse"):  # labels by chance are marked neither, whatever they come to
        marked = words.finer(results)["standing"] == mark
        assert text.count(f'class="verdict {mark}"') == int(marked.sum())
    best = results[results["space"].isin(["manual-digit", "kmeans-4"])].set_index("space")
    best = best.loc[best["difference"].idxmin()]
    assert (case["answer"], case["space"]) == (answer, best.name)
    assert best.name in sentence and words.interval(best["low"], best["high"]) in sentence
    assert {f"{best.name} − target", f"{best.name} − {best['control']}"} <= {*drawn_in(output, "answer")}


@pytest.mark.parametrize(("effect", "verdict"), [(-3.0, "yes"), (3.0, "no"), (-0.3, "open")])
def test_what_was_declared_is_the_answer_whatever_else_is_found(monkeypatch, tmp_path, effect, verdict):
    """Intervals are corrected for the two that were declared, and for none of the others; these are exploratory."""
    power = {"smallest": 1.0, "spread": 0.4}  # percentage points
    primary = [{"arm": "manual-digit"}, {"arm": "manual-digit", "against": "random-10"} | power]
    over = {"conditions": [VERDICTS["conditions"][0] | {"primary": primary, "backbones": 5}]}
    _, output = make(monkeypatch, tmp_path, VERDICTS | over, effects={"manual": effect, "kmeans": -6.0}, noise=0.9)
    rows = comparisons(output).query("question == 'primary'")
    backbones = pd.read_parquet(output / "tables/backbones.parquet").query("transfer == 'target'")
    errors = backbones.set_index(["space", "pretrain_seed"])["error"].unstack(0)
    answer, sentence = headline_of(output)
    for row, against in zip(rows.itertuples(), ("target", "random-10"), strict=True):
        differences = errors["manual-digit"] - errors[against]
        reach = stats.t.ppf(1 - 0.05 / 4, 4) * differences.sem()
        assert row.pairs == 5 and row.low == pytest.approx(differences.mean() - reach)
        assert (words.interval(row.low, row.high) in sentence) == (against == "target")
        assert f"manual-digit − {against}" in drawn_in(output, "answer")
    assert answer == verdict and "exploratory" not in sentence
    assert "kmeans-4" not in " ".join([sentence, *drawn_in(output, "answer")])
    needed = Primary(**primary[1]).backbones(2)
    section = " ".join(section_of(output, "curve").split())
    found = f"Detecting a difference of 1.00 points takes {needed} backbones (power 90 %), given the standard deviation"
    assert "Declared before the run" in section and f"{found} of 0.40 between backbones in a pilot run." in section


def test_what_was_declared_is_of_the_first_network_and_rows_name_whose_they_are(monkeypatch, tmp_path):
    """Another network may be finetuned first; one without a baseline has that of the first."""
    primary = [{"arm": "manual-digit"}]
    over = {"conditions": [VERDICTS["conditions"][0] | {"primary": primary}], "name": "declared"}
    over |= {"networks": [{"name": "main"}, {"name": "side", "spaces": ["manual-digit"]}]}
    over |= {"transfers": [{"name": "quick", "of": ["side"]}, {"name": "full"}]}
    _, output = make(monkeypatch, tmp_path, VERDICTS | over, effects={"manual": -3.0})
    (row,) = comparisons(output).query("question == 'primary'").itertuples()
    assert (row.network, row.transfer) == ("main", "full")
    assert "manual-digit (head) (side)" in section_of(output, "questions")
    assert "(main)" not in text_of(output)


def test_labels_by_chance_are_no_answer(monkeypatch, tmp_path):
    """Random IDs that are better than the baseline say yes to nothing; what means something is no better than they."""
    effects = {"manual": -3.0, "random": -3.0, "kmeans": 0.0}
    over = {"conditions": [{"train_size": 120, "spaces": ["random-4", "random-10"]}]}
    _, output = make(monkeypatch, tmp_path, VERDICTS | over | {"name": "chance"}, effects=effects)
    results = pd.read_parquet(output / "tables/results.parquet")
    assert set(results.loc[results["meaningless"], "standing"]) == {"better"}
    nothing = "No network was pretrained on a meaningful label space finer than the target."
    assert headline_of(output) == ("open", nothing)
    assert "figure-meaning" not in text_of(output)
    _, output = make(monkeypatch, tmp_path, VERDICTS, effects=effects)
    answer, _ = headline_of(output)
    assert answer == "yes" and "manual-digit − random-10" in drawn_in(output, "answer")


def test_every_size_is_answered_for_itself(monkeypatch, tmp_path):
    over = {"conditions": [{"train_size": 120, "spaces": ["manual-digit", "random-4"]}]}
    over["conditions"].append({"train_size": 240, "spaces": ["kmeans-4"]})
    _, output = make(monkeypatch, tmp_path, VERDICTS | over, effects={"manual": -6.0}, noise=1.0)
    answer, sentence = headline_of(output)
    assert answer == "yes" and "120 training images)" in sentence
    results = pd.read_parquet(output / "tables/results.parquet")
    assert results["control"].isna().all()
    assert not comparisons(output)["question"].isin(["control", "meaning"]).any()
    assert "Elsewhere: 240 training images: open." in text_of(output)
    sizes = section_of(output, "questions").partition("Which training-set size?")[2]
    assert re.findall(r'<span class="verdict (\w+)">', sizes) == ["yes", "open"]


def test_gains_are_compared_between_sizes_and_between_transfers(monkeypatch, tmp_path):
    over = {"seeds": {"pretrain": 4, "finetune": 1}, "transfers": [{"name": "first"}, {"name": "second"}]}
    over["conditions"] = [
        {"train_size": 120, "spaces": ["manual-digit", "random-4"]},
        {"train_size": 240, "spaces": ["manual-digit", "kmeans-4"], "backbones": 6},
    ]
    plan, output = make(monkeypatch, tmp_path, over)
    tables = {name: pd.read_csv(output / f"tables/gains_by_{name}.csv") for name in ("size", "transfer")}
    # Of the sizes, what both have, in each transfer; of the transfers, at each size; labels by chance in neither.
    assert tables["size"]["space"].tolist() == ["manual-digit"] * 2
    assert tables["transfer"]["space"].tolist() == ["manual-digit", "manual-digit", "kmeans-4"]
    gains = {panel.label: panel.gains for panel in compared_by.panels(load(plan).conditions)}
    for table in tables.values():
        p = []
        for row in table.itertuples():
            here, there = (gains[label][row.network, row.space] for label in (row.label, row.other))
            here, there = here.align(there, join="inner")  # of seeds that both have, so that gains subtract
            test = stats.ttest_rel(here, there)
            p.append(test.pvalue)
            assert (row.gain, row.other_gain, row.pairs) == pytest.approx((here.mean(), there.mean(), len(here)))
            ends = tuple(test.confidence_interval(1 - 0.05 / len(table)))
            assert (row.difference, row.low, row.high) == pytest.approx(((here - there).mean(), *ends))
        assert table["p"].tolist() == pytest.approx(statistics.holm(p))
        assert ((table["standing"] == "open") == (table["p"] >= 0.05)).all()
    assert section_of(output, "questions").count("Does the gain differ?") == 2


def test_runs_of_one_backbone_count_once(monkeypatch, tmp_path):
    """Many finetunings that agree make no interval, nor do backbones that differ by more than the arms."""
    over = {"seeds": {"pretrain": 1, "finetune": 12}}
    _, output = make(monkeypatch, tmp_path, VERDICTS | over, (*ANSWER, "caveats"), effects={"manual": -2.0}, noise=0.01)
    results = pd.read_parquet(output / "tables/results.parquet")
    assert set(results["standing"]) == {"baseline", "untested"} and results["low"].isna().all()
    answer, sentence = headline_of(output)
    assert answer == "open" and sentence == "1 backbone per label space cannot show a difference; 5 or more can."
    assert "one backbone gives no interval" in " ".join(text_of(output).split())
    text = re.sub(r"<svg.*?</svg>", "", text_of(output), flags=re.DOTALL).lower()
    assert "nan" not in text.split() and 'class="verdict better"' not in text
    assert "1 pretrained backbone was trained per label space" in text


def test_too_few_backbones_are_said_first_and_no_error_is_drawn_below_zero(monkeypatch, tmp_path):
    over = {"seeds": {"pretrain": 2, "finetune": 1}}
    _, output = make(monkeypatch, tmp_path, over, noise=4.0)
    number = int((comparisons(output)["question"] == "finer").sum())
    (needed,) = (n for n in (5, 6, 7) if _reach(n, number) <= 2 < _reach(n - 1, number))
    assert headline_of(output) == (
        "open",
        f"2 backbones per label space cannot show a difference; {needed} or more can.",
    )
    rests_on = f"With {number} comparisons, the interval of a difference extends {_reach(2, number):.1f} standard"
    assert rests_on in " ".join(text_of(output).split())
    assert not (output / "figures/answer.svg").exists()
    results = pd.read_parquet(output / "tables/results.parquet")
    assert (results["mean_low"] < 0).any() and not any("−" in one for one in drawn_in(output, "granularity_curve"))


def test_few_backbones_that_show_a_difference_are_not_said_to_be_too_few(monkeypatch, tmp_path):
    """And what was declared is shown, however few they are."""
    primary = [{"arm": "kmeans-4"}, {"arm": "manual-digit"}]
    condition = VERDICTS["conditions"][0]
    for name, declared in (("declared", primary), ("free", [])):
        over = {"seeds": {"pretrain": 3, "finetune": 1}, "conditions": [condition | {"primary": declared}]}
        effects = {"manual": -6.0} if declared else {"kmeans": 6.0}
        (tmp_path / name).mkdir()
        _, output = make(monkeypatch, tmp_path / name, over, effects=effects, noise=0.02)
        assert "cannot show a difference" not in text_of(output)
        assert (output / "figures/answer.svg").exists()


def _reach(backbones: int, comparisons: int) -> float:
    return stats.t.ppf(1 - 0.05 / 2 / comparisons, backbones - 1) / math.sqrt(backbones)


def test_meaning_is_told_by_pairs_that_hold_the_target_alike(monkeypatch, tmp_path):
    """Clusters over the whole set are better than chance, those within the target's classes are not: only so far."""
    over = {"conditions": [{"train_size": 120}], "seeds": {"pretrain": 6, "finetune": 1}}
    spaces = {"manual": ["digit"], "random": [4, 10], "random_superclass": [2], "kmeans": [4], "kmeans_superclass": [2]}
    over |= {"label_spaces": spaces}
    effects = {"manual": -0.1, "random": 5.0, "random_superclass": 0.0, "kmeans": 0.0, "kmeans_superclass": 0.0}
    _, output = make(monkeypatch, tmp_path, over, effects=effects)
    section = " ".join(section_of(output, "questions").split())
    assert re.findall(r'<span class="verdict (\w+)">', section) == ["open", "yes"]
    assert (
        "Left out of the averages: manual-digit and random-10 (120 training images), because the control does not hold"
        in section
    )
    assert "the contribution of meaning beyond it is not significant" in section
    assert "random-10 *</td>" in text_of(output)


def test_one_label_space_of_two_names_counts_once(monkeypatch, tmp_path):
    over = {"conditions": [{"train_size": 120}], "seeds": {"pretrain": 3, "finetune": 1}}
    spaces = {"random": [4], "regrouped": [3], "kmeans": [4], "nested": ["bottomup-2-4"]}
    plan, output = make(monkeypatch, tmp_path, over | {"label_spaces": spaces}, ("caveats", "results"))
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
    assert "kmeans-4 and bottomup-4 partition the images identically" in text and "bottomup-4</a> = kmeans-4<" in text


def test_the_leak_is_told(made, monkeypatch, tmp_path):
    over = FEW | {"encoder": {"captions": {"granularity": "coarse"}}}
    _, coarse = make(monkeypatch, tmp_path, over, ("caveats", "clusters"))
    fine = "captions name the rank “digit” of each training image. These labels leak into the embedding: every"
    for output, said in ((made[1], fine), (coarse, "“loops” of each training image. These labels leak")):
        for section in ("caveats", "clusters"):
            assert said in " ".join(section_of(output, section).split())


def test_twins_across_splits_are_the_first_caveat(made, monkeypatch, tmp_path):
    assert "near twin" not in section_of(made[1], "caveats")
    _, output = make(monkeypatch, tmp_path, FEW | {"duplicates": {"by": "both"}}, ("caveats",))
    first = " ".join(section_of(output, "caveats").partition("<li>")[2].partition("</li>")[0].split())
    assert first.startswith(
        "<strong>3 validation images have a near twin in training</strong>: of 100, with 120 training"
    )
    assert "images, 1 of them of another class." in first


# ---------------------------------------------------------------- figures


def test_figures_are_the_same_bytes_again(made, monkeypatch, tmp_path):
    plan, output = made
    monkeypatch.chdir(output.parents[2])
    again = synthetic_results.write_report(plan, tmp_path / "again")
    drawn = sorted(file.name for file in (output / "figures").iterdir())
    wanted = "answer granularity_curve differences meaning probe agreement class_sizes montage encoder_loss"
    assert {f"{name}.svg" for name in wanted.split()} == set(drawn)
    for name in drawn:
        first = (output / "figures" / name).read_bytes()
        assert first == (again / "figures" / name).read_bytes()
        assert b"<dc:date>" not in first and b"Matplotlib v" not in first
        ElementTree.fromstring(first)


def test_the_montage_shows_the_images_of_the_cluster(made):
    plan, output = made
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(output.parents[2])
        conditions = load(plan).conditions
        samples = {condition.name: condition.samples.table("samples.parquet") for condition in conditions}
        made = [(one.name, each.manifest["options"]["clustering"]) for one in conditions for each in one.of("cluster")]
        rows, others = (clusters.rows(conditions, 2 * len(made), seed) for seed in (0, 1))
    assert {(row.condition or conditions[0].name, row.clustering) for row in rows} == set(made)
    assert [row.cluster for row in rows] != [row.cluster for row in others]
    for row in rows:
        members = samples[row.condition or conditions[0].name].iloc[row.members]
        assert len(set(row.members)) == len(members) == min(row.size, clusters.ACROSS)
        assert (members["split"] == "train").all()
        assert row.superclass is None or set(members["loops"]) == {row.superclass}
        shares = members["digit"].value_counts(normalize=True)
        assert sum(row.composition.values()) == pytest.approx(1)
        for name, share in row.composition.items():  # in proportion: to within an image
            assert abs(shares[name] - share) * len(members) < 1


# ---------------------------------------------------------------- the page


def test_the_page_asks_nobody_and_is_whole(made, monkeypatch):
    plan, output = made
    monkeypatch.chdir(output.parents[2])
    text = text_of(output)
    assert not (output.parent / "report.html").exists()
    assert not re.findall(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", text))
    assert not re.findall(r'(?:src|href)="(?!#|data:|\.\./)', text)
    links = dict(re.findall(r'<a href="(\.\./[^"]+)" title="(granularity inspect [^"]+)"', text))
    made = {os.path.realpath(plan.folder(job)) for stage in ("hierarchy", "finetune") for job in plan.jobs(stage)}
    assert {os.path.realpath(os.path.normpath(output / unquote(link))) for link in links} >= made
    assert "granularity inspect results/small/train-120/hierarchy/kmeans-4" in links.values()
    assert "currentColor" in text and plan.config.report.title in text
    for source in ("kmeans-superclass-2", "random-instance", "target (one pass)", "embedding", "snakemake"):
        assert source in text
    ids = re.findall(r'<[a-zA-Z]+[^>]* id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and sections_of(text) == DEFAULT_SECTIONS
    assert re.findall(r'<a href="#(\w+)">', text) == DEFAULT_SECTIONS


def test_hostile_names_are_escaped(monkeypatch, tmp_path):
    over = FEW | {"report": {"title": "<img src=x onerror=alert(1)> & co"}}
    monkeypatch.setenv("GRANULARITY_COMMAND", "snakemake --configfile 'a & b.yaml'")
    _, output = make(monkeypatch, tmp_path, over, ("clusters", "reproduce"))
    text = text_of(output)
    assert "snakemake --configfile &#39;a &amp; b.yaml&#39;" in text
    assert text.count("<script") == 1 and "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; co" in text
    assert "&lt;script" in text  # the superclass in the montage


def test_verdicts_are_shown_beside_the_numbers(monkeypatch, tmp_path, capsys):
    over = {"conditions": [{"train_size": 120, "spaces": ["manual-digit"]}], "studies": ["granularity_t5"]}
    monkeypatch.chdir(tmp_path)
    plan = synthetic_results.write(Config.model_validate(SMALL | over))
    met = {"n < d": True, "c < 1": False}
    rows = [Claim("S1", "It rises", "Theorem 1", "slope", [1.9, 2.0, 2.1], low=1, conditions=met)]
    rows.append(Claim("S2", "It <b>falls</b>", "Theorem 2", "slope", [], untested="needs 3 runs"))
    rows.append(Claim("S3", "It is", "Theorem 3", "sum", [1.0], 1, 1, kind="identity"))
    for job in [*plan.jobs("verdicts", name="small"), *plan.jobs("verdicts", study="label_granularity")]:
        judged(plan, job, rows)
    output = synthetic_results.write_report(Plan(plan.config), sections=("claims",))
    html = text_of(output)
    assert html.count("2 (1.9 to 2.1)") == 2 and html.count("needs 3 runs") == 2
    assert html.count("1 of 2 conditions met") == html.count("n &lt; d: met; c &lt; 1: NOT met") == 2
    assert "granularity t5" in html and "label granularity" in html
    assert "It &lt;b&gt;falls" in html and "data:image/svg+xml;base64," in html
    assert html.count("Identities (only a mistake in the code can break them): holds: 1") == 2
    assert {"verdicts/granularity_t5", "theory/label_granularity"} <= set(Artifact.open(output).manifest["inputs"])
    assert "claims" in sections_of(html) and "The theory, simulated" in html
    claims = pd.read_csv(output / "tables/claims.csv")
    assert claims["measured"].tolist() == pytest.approx([2.0, math.nan, 1.0], nan_ok=True)
    (world,) = plan.jobs("verdicts", study="label_granularity")
    (plan.folder(world) / "checks.csv").chmod(0o644)
    (plan.folder(world) / "checks.csv").write_text("harmed")
    output = synthetic_results.write_report(Plan(plan.config), tmp_path / "again", ("claims",))  # it waits for none
    assert "The theory" not in text_of(output) and "without the theory" in capsys.readouterr().err


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


def test_the_artifact_names_all_it_read(made):
    plan, output = made
    report = Artifact.open(output, "report")
    assert report.manifest["options"]["configuration"] == plan.config.model_dump(mode="json")
    found = {path.resolve() for path in place.find(output.parent) if path != output}
    assert {(report.folder / entry["path"]).resolve() for entry in report.manifest["inputs"].values()} == found
    assert "train-120/hierarchy/kmeans-4" in report.manifest["inputs"]
    for name in ("results", "probe", "properties", "cost"):
        parquet = pd.read_parquet(output / f"tables/{name}.parquet")
        assert len(parquet) == len(pd.read_csv(output / f"tables/{name}.csv")) > 0
    assert all(artifact.digest in text_of(output) for artifact in report.lineage().values())


@pytest.mark.parametrize(
    "over, absent, parts",
    [
        ({"conditions": [{"train_size": 120, "spaces": []}]}, {"clusters", "questions"}, set()),
        ({"report": {"montage_clusters": 0}}, set(), {"class_sizes", "encoder_loss"}),
        ({"encoder": {"model": "ViT-L-14", "pretrained": "openai"}}, set(), {"class_sizes", "montage"}),
        ({"jobs": {"pretrain": "run", "finetune": "space", "measure": "run"}}, set(), {"montage"}),
        ({"measures": []}, {"measures"}, {"montage"}),
        ({"transfers": [{"name": "none", "of": []}]}, {"curve", "caveats", "questions", "results"}, set()),
        ({"conditions": [{"train_size": "all", "spaces": ["random-4"]}]}, {"clusters", "questions"}, set()),
    ],
    ids=[
        "baseline only",
        "no montage",
        "encoder from elsewhere",
        "small jobs",
        "no measure",
        "no finetuning",
        "nothing clustered",
    ],
)
def test_what_there_is_nothing_to_show_of_is_left_out(monkeypatch, tmp_path, over, absent, parts):
    _, output = make(monkeypatch, tmp_path, FEW | over, ())
    text = text_of(output)
    assert sections_of(text) == [name for name in DEFAULT_SECTIONS if name not in absent]
    assert ("No network is finetuned" in text) == ("results" in absent)
    assert ("all training images" in text) == (over.get("conditions", [{}])[0].get("train_size") == "all")
    drawn = {file.stem for file in (output / "figures").iterdir()}
    assert parts <= drawn and drawn == set(re.findall(r'<figure id="figure-(\w+)">', text))
    assert {file.stem for file in (output / "tables").glob("*.csv")} == set(re.findall(r"tables/(\w+)\.csv", text))
    elsewhere = "model" in over.get("encoder", {})
    assert ("leak" in text) == ("clusters" not in absent and not elsewhere)
    assert ("(ViT-L-14, weights: openai) was trained elsewhere." in text) == elsewhere
    if "measures" not in absent:
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
    _, output = make(monkeypatch, tmp_path, over, ())
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
    assert "“distilled” has no runs on the target labels; it is compared with" in text
    assert "no labels: distil (distilled)" in text and "distil, distilled" in text
    header = text.partition('id="results"')[2].partition("</thead>")[0]
    assert "Network" in header and "Transfer" in header
    assert sections_of(text) == DEFAULT_SECTIONS


def test_errors_after_a_transfer_to_other_data_are_not_said_to_be_on_the_target(made, monkeypatch, tmp_path):
    data = {"samples": {"target": "digit", "validation": 50}, "train_size": 90}
    over = {"name": "there", "transfers": [{"name": "there", "data": data}]}
    _, output = make(monkeypatch, tmp_path, FEW | over, ("curve", "caveats", "results"))
    text, elsewhere = " ".join(text_of(output).split()), "(after a transfer to other data, on the target of those data)"
    assert "errors are measured, except after transfers to other data, which have their own target;" in text
    assert f"Error on the target {elsewhere}" in text and f"Validation error on the target {elsewhere};" in text
    assert "All runs of a condition, except transfers to other data, are scored on the same validation" in text
    assert "Transfer</th>" in section_of(output, "results") and "Transfer</th>" not in section_of(made[1], "results")
    assert "to other data" not in text_of(made[1])


def test_other_measures_are_plain_tables(monkeypatch, tmp_path):
    over = {
        "name": "measured",
        "conditions": [{"train_size": 120, "spaces": ["manual-digit"]}],
        "measures": [
            {"name": "probe", "of": ["backbones", "untrained"]},
            {"name": "scores", "measure": "accuracy", "of": ["backbones"], "splits": ["train", "val"]},
        ],
    }
    _, output = make(monkeypatch, tmp_path, over, ("measures",))
    table = pd.read_csv(output / "tables/measures.csv")
    assert set(table["key"]) == {"error", "macro_f1", "images"} and set(table["split"]) == {"train", "val"}
    section = section_of(output, "measures")
    assert "Macro-F1 (%)" in section and "Error, top-1 (%)" in section
    probe = pd.read_csv(output / "tables/probe.csv")
    errors = probe[probe["rank"] == "loops"].groupby("state")["mean"].mean()
    assert set(errors.index) == {"untrained", "pretrained"} and errors["untrained"] > errors["pretrained"] + 10
    assert '<th scope="col" class="text">State' in section


OWN = """
'''Seconds of <every> stage.'''
from granularity.stages.report import drawing
from granularity.stages.report.sections import Part

EXTENDS = "section"
HEADING = "Time"


def build(loaded):
    figure, axes = drawing.panels(1, 1, 2)
    axes[0, 0].bar(loaded.cost["stage"], loaded.cost["wall_seconds"])
    return Part({"seconds": loaded.cost[["stage", "wall_seconds"]]}, {"NAME": drawing.svg(figure, "NAME", "seconds")})
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "time_spent.py").write_text(OWN.replace("NAME", "time_spent"))
    yield str(tmp_path / "time_spent.py")
    extensions.load([])


def test_a_section_of_the_users_own_is_one_file_or_two(monkeypatch, tmp_path, own):
    extensions.load([own])
    plan, output = make(monkeypatch, tmp_path, FEW | {"extensions": [own]}, ("reproduce", "time_spent"))
    text = text_of(output)
    assert sections_of(text)[-1] == "time_spent" and "Seconds of &lt;every&gt; stage." in section_of(
        output, "time_spent"
    )
    assert (output / "figures/time_spent.svg").is_file() and (output / "tables/seconds.csv").is_file()
    (job,) = plan.jobs("report")
    code, options = STAGES["report"].code, STAGES["report"].model.model_validate(job.options)
    assert own in code(options) and not job.files
    (tmp_path / "time_spent.html.j2").write_text("<p>{{ tables.seconds | length }} stages</p>")
    plan = Plan(plan.config)
    (job,) = plan.jobs("report")
    assert job.files == (str(tmp_path / "time_spent.html.j2"),)
    again = synthetic_results.write_report(plan, tmp_path / "again", ("time_spent",))
    assert " stages</p>" in section_of(again, "time_spent")


def test_two_figures_of_one_name_are_one_line(monkeypatch, tmp_path, own):
    Path(own).write_text(OWN.replace("NAME", "differences"))
    extensions.load([own])
    with pytest.raises(GranularityError, match="two sections write figures/differences; rename it in yours"):
        make(monkeypatch, tmp_path, FEW | {"extensions": [own]}, ("results", "time_spent"))


# ---------------------------------------------------------------- in a browser


@pytest.mark.browser
@pytest.mark.parametrize("width", [420, 1280])
def test_in_a_browser(made, tmp_path, width):
    """Nothing in the console, no request, no sideways scroll of the page (measured in a frame of that width)."""
    script = """
      const all = what => [...page.querySelectorAll(what)], box = one => one.getBoundingClientRect();
      out.sections = all("section").length;
      out.requests = page.defaultView.performance.getEntriesByType("resource").length;
      const cut = svg => [svg, ...svg.querySelectorAll("text")].filter(one => box(one).width
        && (box(one).left < box(svg).left - 1 || box(one).right > Math.min(box(svg).right, innerWidth) + 1));
      out.cut = all("figure svg").flatMap(cut).length;
      out.headline = Math.round(box(all(".headline")[0]).height);
      page.querySelector("#words").open = false;  // as it is when the page opens
      out.answer = Math.round(box(all("#figure-answer svg")[0]).bottom);
      const wide = all(".scroll, pre").filter(one => one.scrollWidth > one.clientWidth + 1);
      out.stops = all(".scroll, pre, figure").filter(one => one.tabIndex === 0 !== wide.includes(one)).length;
      out.wide = wide.length;
      const table = all("#results table")[0], shown = () => [...table.tBodies[0].rows].filter(row => !row.hidden);
      const plain = rows => rows.filter(row => row.className !== "condition");
      const column = (rows, at) => plain(rows).map(row => row.cells[at].textContent);
      const sizes = column(shown(), 1).join();
      table.tHead.rows[0].cells[1].firstChild.click();
      out.ascending = column(shown().slice(0, 13), 1).join(" ");
      table.tHead.rows[0].cells[1].firstChild.click();
      out.descending = column(shown().slice(0, 13), 1).join(" ") + table.tHead.rows[0].cells[1].ariaSort;
      table.tHead.rows[0].cells[1].firstChild.click();
      out.again = column(shown(), 1).join() === sizes;
      const search = all("#results input")[0];
      search.value = "KMEANS-super class-2";
      search.dispatchEvent(new Event("input"));
      out.left = column(shown(), 0).join(" ") + " " + all("#results output")[0].textContent;
      const file = all("#results a[download]")[0];
      out.file = file.download + file.href.split(",")[1];"""
    found = browser.look(made[1] / "report.html", tmp_path, width, script)
    assert int(found["sections"]) == len(DEFAULT_SECTIONS) and int(found["width"]) <= width
    assert (found["requests"], found["cut"], found["stops"], found["again"]) == ("0", "0", "0", "true")
    assert int(found["wide"]) > 0 and int(found["headline"]) < 250 and int(found["answer"]) < 900
    sizes = [int(one) for one in found["ascending"].split()]
    assert sizes == sorted(sizes) and len(sizes) == 12
    assert found["descending"] == " ".join(map(str, reversed(sizes))) + "descending"
    assert found["left"] == "kmeans-superclass-2 1 of 16"
    csv = (made[1] / "tables/results.csv").read_bytes()
    assert found["file"] == "results.csv" + base64.b64encode(csv).decode()
