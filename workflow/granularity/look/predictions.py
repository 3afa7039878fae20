"""Two finetuned arms or runs, image by image: the images that only one of them gets right (`granularity compare`)."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from granularity.base.errors import GranularityError
from granularity.learning.runs import Run
from granularity.look import inspection
from granularity.look.items import trained
from granularity.look.text import as_csv, frame_text, table_of
from granularity.stages.report.words import count
from granularity.store.artifact import Artifact

CASES = ("both_right", "only_a_right", "only_b_right", "both_wrong")
SHOWN = 10  # images of each kind


def compare(a: str, b: str, root: Path) -> dict[str, Any]:
    """Compare two arms: each a label space, or a run of a finetuning by its id or name.

    Returns `a`, `b`, `folders`, `images`, `backbones`, `errors` (percent), the mean number of images in each of
    :data:`CASES`, and `table`, a row per validation image: `sample_id`, `file`, `class`, the most frequent predictions
    `a_says` and `b_says`, and the number of backbones in each case. Runs are paired by their seeds; the runs of one
    backbone together count as one. Raises GranularityError: there is nothing to compare.
    """
    arms = [_arms(asked, root) for asked in (a, b)]
    combinations = list(itertools.product(*arms))
    places = [(one, other) for one, other in combinations if one == other] or combinations
    if len(places) > 1:
        folders = ", ".join(dict.fromkeys(str(place) for pair in places for place in pair))
        raise GranularityError(f"{root}: has such runs in several folders; name one of {folders}")
    first, second = (arm[place] for arm, place in zip(arms, places[0], strict=True))
    by_seeds = {(run.pretrain_seed, run.finetune_seed): run for run in second}
    pairs = [(run, by_seeds.get((run.pretrain_seed, run.finetune_seed))) for run in first]
    if {a, b}.isdisjoint(run.space for run in (*first, *second)):  # two runs, whatever their seeds
        pairs = [(*first, *second)]
    if not (pairs := [pair for pair in pairs if pair[1] is not None]):
        raise GranularityError(f"{a}, {b}: have no runs with the same seeds, so they cannot be paired")
    table, names, one = _predicted(first, [pair[0] for pair in pairs])
    images, classes, two = _predicted(second, [pair[1] for pair in pairs])
    if not table.equals(images) or names != classes:
        raise GranularityError(f"{a}, {b}: were validated on different images, or against other classes")
    truth = pd.Index(names).get_indexer(table["class"])[:, None]
    seeds = pd.Series([pair[0].pretrain_seed for pair in pairs])
    weight = (1 / seeds.map(seeds.value_counts())).to_numpy()
    a_right, b_right, backbones = one == truth, two == truth, int(seeds.nunique())
    cases = (a_right & b_right, a_right & ~b_right, ~a_right & b_right, ~(a_right | b_right))
    modes = {key: np.array(names)[stats.mode(code, axis=1).mode] for key, code in (("a_says", one), ("b_says", two))}
    table = table.assign(**modes, **{name: (case @ weight).round(6) for name, case in zip(CASES, cases, strict=True)})
    counts = {name: float(table[name].sum() / backbones) for name in CASES}
    wrong = {"a": counts["only_b_right"] + counts["both_wrong"], "b": counts["only_a_right"] + counts["both_wrong"]}
    errors = {name: 100 * count / len(table) for name, count in wrong.items()}
    about = {"a": a, "b": b, "folders": list(map(str, places[0])), "images": len(table), "backbones": backbones}
    return about | {"errors": errors, **counts, "table": table}


def described(found: dict[str, Any], rows: int | None, width: int | None, csv: bool) -> str:
    """Return the four numbers, and the images that one arm gets right in more backbones than the other; as CSV, a row
    per image, sorted by how much more often B is right.
    """
    a, b = found["a"], found["b"]
    gain = (found["table"]["only_b_right"] - found["table"]["only_a_right"]).sort_values(ascending=False, kind="stable")
    table = found["table"].loc[gain.index]
    if csv:
        return as_csv(table.head(rows))
    right, wrong = ([f"{found[name]:.1f}" for name in names] for names in (CASES[:2], CASES[2:]))
    lines = [f"A = {a}, B = {b}, in {' and '.join(dict.fromkeys(found['folders']))}"]
    pairs = count(found["backbones"], "pair")
    lines += [f"{found['images']} validation images, mean over {pairs} of backbones", ""]
    lines += table_of([["", "B right", "B wrong"], ["A right", *right], ["A wrong", *wrong]], 1)
    lines += ["", f"error: A {found['errors']['a']:.2f} %, B {found['errors']['b']:.2f} %"]
    for better, images in ((f"B ({b})", table[gain > 0]), (f"A ({a})", table[gain < 0][::-1])):
        head = images.head(SHOWN if rows is None else rows)
        lines += ["", f"right more often with {better}: {len(head)} of {len(images)} images"]
        right = {f"{arm} right": head["both_right"] + head[f"only_{arm.lower()}_right"] for arm in "AB"}
        head = head.drop(columns=[*CASES]).assign(**right)
        if "file" in head and head["file"].equals(head["sample_id"]):
            head = head.drop(columns="file")
        lines += [frame_text(head, width, index=False)] if len(head) else []
    lines += ["", f"A right, B right: the number of backbones, of {found['backbones']}"]
    return "\n".join(lines)


def _arms(asked: str, root: Path) -> dict[Path, dict[Run, Artifact]]:
    """Return the finetunings of a label space, or the one with this name or id, by folder of transfer and network."""
    by_folder: dict[Path, dict[Run, Artifact]] = {}
    spaces: set[str] = set()
    results = list(trained(root, "finetune"))
    left = inspection.left_over((artifact.path for artifact, _ in results), root)
    for artifact, runs in results:
        spaces |= (own := {run.space for run in runs})
        named = {asked} - own if artifact.path in left else {asked}  # a run of earlier settings only by its name
        for run in (run for run in runs if not named.isdisjoint((run.space, run.id, run.name))):
            by_folder.setdefault(artifact.path.parent, {})[run] = artifact
    if not spaces:
        raise GranularityError(f"{root}: contains no finetuned runs; make them with: snakemake finetune")
    if not by_folder:
        names = ", ".join(sorted(spaces))
        raise GranularityError(f"{root}: has no finetuned run or label space '{asked}'; its label spaces are {names}")
    return by_folder


def _predicted(arm: dict[Run, Artifact], runs: list[Run]) -> tuple[pd.DataFrame, list[str], np.ndarray]:
    """Return the images that runs were validated on (`sample_id`, `file` if known, `class`), the names of the classes,
    and the predictions of each run, int [images, runs].
    """
    opened = {path: Artifact.open(path, "finetune") for path in dict.fromkeys(arm[run].path for run in runs)}
    tables = {path: job.table("predictions.parquet") for path, job in opened.items()}
    if lacking := [run for run in runs if run.id not in tables[arm[run].path]]:
        path, name = arm[lacking[0]].path, lacking[0].name
        raise GranularityError(f"{path}: predictions.parquet lacks {name}; recompute it")
    predicted = [tables[arm[run].path][run.id] for run in runs]
    job = opened[arm[runs[0]].path]
    ids, names = tables[job.path][["sample_id"]], job.table("classes.parquet", ["label", "name"]).sort_values("label")
    if (source := job.lineage().get("samples")) is None:
        raise GranularityError(f"{job.path}: the sample table that it was made from is gone; run snakemake again")
    table, target = Artifact.open(source.folder, "samples").table("samples.parquet"), job.params["target"]
    table = ids.merge(table, on="sample_id", how="left", validate="one_to_one")
    if table[target].isna().any() or any(not frame["sample_id"].equals(ids["sample_id"]) for frame in tables.values()):
        raise GranularityError(f"{job.path}: predictions.parquet is of other images than {source.path}; recompute it")
    if "row" in table:
        numbered = table["file"].astype("str") + ", row " + table["row"].astype("Int64").astype("str")
        table["file"] = numbered.where(table["row"].notna(), table["file"])
    table = table[[name for name in ("sample_id", "file", target) if name in table]].astype("str")
    return table.rename(columns={target: "class"}), names["name"].tolist(), np.stack(predicted, axis=1)
