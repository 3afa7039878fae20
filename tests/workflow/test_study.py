"""A study through Snakemake: its cells, one table of them, and a draw that is added makes itself alone.

The package is one that was installed from a wheel, in a folder without a checkout, as are the commands without images.
"""

import json

import pandas as pd

from support import tiny_chain

PREDICTION = {"arm": "random-5", "low": -90, "high": 90, "where": {"pretrain.epochs": 2}}
PROBED = {"arm": "random-5", "low": -90, "high": 90, "measure": "probe/loops/knn"}
PREDICTED = {"question": "Do random labels help?", "predictions": {"random": PREDICTION, "probe": PROBED}}


def study(draws: int, **more) -> dict:
    seeds = {"draws": draws, "pretrain": 2, "finetune": 1}
    spaces = {"random": [5], "manual": []}
    return {"seeds": seeds, "axes": {"pretrain.epochs": [1, 2]}, "label_spaces": spaces, "name": "several", **more}


def test_a_wheel_has_claims_published_numbers_and_pages(installed, tmp_path):
    empty = ["env", "-C", tmp_path, "granularity"]
    assert "ImageNet" in installed.run(*empty, "published", "granularity", "--table", "T9")
    said = installed.run(*empty, "simulate", "label_granularity", "--arm", "A fine", "--set", "steps=20")
    assert "hard_own" in said
    assert " holds, " in installed.run(*empty, "papers")
    every = "[find(kind, name) for kind in ('world', 'study') for name in names(kind)]"
    installed.run("lines", f"from granularity.base.extensions import find, names; {every}")


def test_a_study_is_one_command_and_another_draw_is_made_alone(installed):
    checkout = installed
    checkout.path("predicted.yaml").write_text(json.dumps(PREDICTED))
    more = {"predictions": "predicted.yaml", "studies": ["granularity_t5"]}
    tiny_chain.configure(checkout, **study(2, **more))
    tiny_chain.snakemake(checkout)
    folder = checkout.path("results/several/gather").resolve()
    runs, compared = (pd.read_csv(folder / f"{name}.csv") for name in ("runs", "comparisons"))
    assert set(zip(runs["pretrain.epochs"], runs["draw"], strict=True)) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    errors = runs[(runs["stage"] == "finetune") & (runs["measure"] == "val_error")].set_index("pretrain.epochs")
    row = compared[(compared["question"] == "chance") & (compared["space"] == "random-5")].set_index("pretrain.epochs")
    for epochs in (1, 2):  # the mean of the draws' own differences
        by_draw = errors.loc[epochs].groupby(["draw", "space"])["value"].mean().unstack()
        difference = by_draw["random-5"] - by_draw["target"]
        assert abs(row.loc[epochs, "difference"] - difference.mean()) < 1e-4
        assert row.loc[epochs, "draws"] == row.loc[epochs, "pairs"] == 2
    judged, probed = pd.read_csv(folder / "predictions.csv").to_dict("records")
    measured = runs[(runs["measure"] == "probe") & (runs["key"] == "loops/knn") & (runs["epoch"] > 0)]
    by_space = measured.groupby("space")["value"].mean()
    assert abs(probed["difference"] - by_space["random-5"] + by_space["target"]) < 1e-3 and probed["draws"] == 2
    assert abs(judged["difference"] - row.loc[2, "difference"]) < 1e-4 and judged["inside"] and not judged["excludes"]
    page = (folder / "study.html").read_text(encoding="utf-8")
    assert "../epochs-2_draw-1/report/report.html" in page and "<svg" in page
    assert "Nothing to be done" in tiny_chain.snakemake(checkout, "-n")
    assert "all sound" in checkout.run("granularity", "verify", "results/several")
    assert "2 of 2 predicted ranges" in " ".join(page.split()) and "What papers claim" in page
    checks = pd.read_csv(checkout.path("results/several/verdicts/granularity_t5/checks.csv")).query("id == 'V3'")
    for epochs in (1, 2):  # a paper's claim is judged over the same two draws
        (judged,) = checks[checks["quantity"].str.startswith(f"pretrain.epochs {epochs}, train-")].to_dict("records")
        assert judged["seeds"] == 2 and abs(judged["measured"] - row.loc[epochs, "difference"]) < 1e-4
    assert ["show_explored", "4"] in [
        line.split() for line in tiny_chain.snakemake(checkout, "-n", "explore").splitlines()
    ]
    assert "name those of one setting" in tiny_chain.snakemake(checkout, "-n", "atlas", code=1)
    tiny_chain.configure(checkout, **study(3, **more))
    said = tiny_chain.snakemake(checkout, "-n")
    planned = dict(line.split() for line in said.splitlines() if line.startswith("make_") and len(line.split()) == 2)
    assert planned["make_pretrain"] == planned["make_report"] == "2" and planned["make_gather"] == "1"
