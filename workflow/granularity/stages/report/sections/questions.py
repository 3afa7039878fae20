"""Meaning or number, which number of classes, which training-set size, which transfer: each answered separately."""

import operator

import pandas as pd

from granularity.stages.report import drawing, words
from granularity.stages.report.comparisons import AVERAGED, HOLDS, MOST_PAIRS, STANDINGS
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part

HEADING = "What the gain depends on"
FINEST = {"better": "the finest is better", "worse": "the coarsest is better", "open": "not significant"}
CHANGED = {**STANDINGS, "better": "gains more", "worse": "gains less", "untested": STANDINGS["open"]}


def build(loaded: Loaded) -> Part | None:
    results, compared = loaded.results, loaded.comparisons
    if results.empty:
        return None
    finest = compared[compared["question"] == "finest"]
    finest = finest.assign(words=finest["standing"].map(FINEST).fillna("no interval")).to_dict("records")
    heads = compared[compared["question"].isin(["head", "merged", "stages"])]
    after = (heads["other"] + ", finetuned").where(heads["question"] != "merged", "target, finetuned on it again")
    heads = heads.assign(with_what=after).to_dict("records")
    cases = words.cases(results)
    tables, figures = {}, {}
    values = {"heads": heads, "finest": finest, "best": [case for case in cases if "space" in case], "most": MOST_PAIRS}
    asked = (("sizes", "train_images", "gains_by_size"), ("transfers", "transfer", "gains_by_transfer"))
    for question, key, name in asked:
        values[question] = sorted(cases, key=operator.itemgetter(key)) if results[key].nunique() > 1 else []
        rows = loaded.between[loaded.between["question"] == question]
        if len(rows):
            tables[name] = rows.assign(told=rows["standing"].map(CHANGED))
    if results["control"].notna().any():
        averages = sorted(words.meaning(compared), key=lambda row: AVERAGED.index(row["holds"]))
        figures["meaning"] = _meaning(results, compared)
        alone = results[results["control"].notna() & ~results["control_holds"].isin(AVERAGED)]
        values |= {"averages": averages, "left_out": alone.to_dict("records")}
    if not (heads or finest or figures or tables or values["sizes"] or values["transfers"]):
        return None
    return Part(tables, figures, values)


def _meaning(results: pd.DataFrame, compared: pd.DataFrame) -> str:
    """Draw label spaces with a control, grouped by which of the two holds the target; a group ends with its average."""
    paired = results[results["control"].notna()].drop(columns=["difference", "low", "high", "standing"])
    paired = paired.rename(columns=lambda name: name.removeprefix("control_"))
    same = " = " + paired["repeats"].astype("str")
    paired["space"] += same.where(paired["repeats"].notna(), "") + " − " + paired["control"]
    average = compared[compared["question"] == "meaning"]
    pairs = average["other"].map(lambda number: words.count(int(number), "pair"))
    average = average.assign(space="average of " + pairs, series="average", baseline=average["network"])
    shown = pd.concat([paired, average], ignore_index=True)
    labels, kinds = list(shown["label"].unique()), list(HOLDS)
    by = shown["label"].map(labels.index) * len(kinds) + shown["holds"].map(kinds.index)
    shown = shown.loc[by.sort_values(kind="stable").index]
    shown["label"] += ": " + shown["holds"].map(HOLDS)
    return drawing.differences(shown, "meaning", "the control")
