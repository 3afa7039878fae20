"""An atlas of networks that differ in their labels: what is measured of each, and how it relates to labels and error.

A backbone is one repetition (a folder of results and a pretraining seed) of one arm: a label space, plus the network's
name if several networks have it. Arms are compared within repetitions; this is only meaningful if they share a budget.
Each of several networks that were pretrained on the target is compared with its own; others with the first. Values are
raw measurements; differences are from the target's own labels.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from scipy import stats

from granularity.base.errors import GranularityError
from granularity.base.revision import revision
from granularity.claims.statistics import Difference, holm, interval, mean_of, p_value, paired
from granularity.look import api, repetitions
from granularity.look import folder as pages
from granularity.look.explore.found import NOT_ONE
from granularity.stages.report import drawing
from granularity.stages.report import stage as report
from granularity.store import place

BASELINE, UNTRAINED, ENDS, OF = "target", "untrained", "error", " ({})"
BY = ["condition", "repetition", "arm", "key"]
LABELS = ("G", "learnt", "meaning")  # properties of an arm's labels; G: number of classes; the others: see `_of_labels`


def read(folders: Sequence[Path], split: str = "val") -> pd.DataFrame:
    """Return everything measured of all backbones in some folders of results: one row per backbone and number.

    Columns: `condition` (with the network, if several were pretrained on the target), `repetition` (FOLDER/SEED),
    `arm`, `key`, `value` (float64). Keys are MEASURE/KEY for what was measured on a split; `error` after finetuning
    (mean over finetunings); those of :mod:`granularity.look.repetitions`; and, for the labels, `G`, `learnt` (the share
    of their entropy removed by pretraining, from its training loss; absent if that is no cross-entropy of one label)
    and `meaning` (normalised mutual information with the last human rank). Keys of errors end in ` (TRANSFER)` if there
    are several transfers. Raises GranularityError: nothing was measured.
    """
    names = [folder.name for folder in folders]
    if alike := [str(folder) for folder in folders if names.count(folder.name) > 1]:
        raise GranularityError(f"{', '.join(alike)}: have the same name; name one by a link with another name")
    parts, arms, homes = [], {}, {}
    for folder in folders:
        part, arms[folder], own = _of_folder(folder, split)
        parts.append(part)
        homes |= dict.fromkeys(own)
    more = [*repetitions.agreement(arms, split), *repetitions.hardness(arms)]
    measurements = pd.concat([*parts, pd.DataFrame(more, columns=[*BY, "value"])], ignore_index=True)
    ends = measurements["key"][measurements["key"].str.startswith(ENDS + " (")].str.removeprefix(ENDS).unique()
    if len(ends) == 1:
        measurements["key"] = measurements["key"].str.removesuffix(ends[0])
    for home in homes:
        own = measurements["arm"].str.endswith(OF.format(home))
        measurements.loc[own, "condition"] += f", {home}"
        measurements["arm"] = measurements["arm"].str.removesuffix(OF.format(home))
    return measurements.groupby(BY, as_index=False)["value"].mean()


def _of_folder(folder: Path, split: str) -> tuple[pd.DataFrame, pd.Series, list[str]]:
    """Return what :func:`read` finds in one folder, the arm of each run, and networks with baselines of their own, if
    several; arms of these end in their names.
    """
    runs = api.runs(folder)
    if not all(place.is_plain(condition, "[^/]+") for condition in runs["condition"]):
        raise GranularityError(NOT_ONE.format(folder))
    runs["repetition"] = folder.name + "/" + runs["pretrain_seed"].astype("str")
    several = runs.groupby("space")["network"].transform("nunique") > 1
    homes = [*runs.loc[runs["space"] == BASELINE, "network"].unique()]
    at_home = runs["network"].isin(homes)
    named = runs["network"].map(OF.format)
    runs["arm"] = runs["space"].where(at_home | ~several, runs["space"] + named)
    homes = homes if len(homes) > 1 else []
    runs["home"] = named.where(at_home, OF.format(homes[0])) if homes else ""
    runs["arm"] += runs["home"]
    measured = runs[(runs["stage"] == "measure") & runs["transfer"].isna()]
    measured = measured.dropna(subset=["epoch"])  # networks only, not the embedding
    if measured.empty:
        raise GranularityError(f"{folder}: contains no measured networks; make them with: snakemake measure")
    if split not in (splits := measured["split"].unique()):
        raise GranularityError(f"--split: '{split}' was not measured in {folder}; there are {', '.join(splits)}")
    measured = measured[measured["split"] == split]
    measured = measured.assign(key=measured["measure"] + "/" + measured["key"])
    last = measured.groupby("run")["epoch"].transform("max")
    untrained = measured[measured["epoch"] == 0]  # the same for all labels
    untrained = untrained.assign(arm=UNTRAINED + untrained["home"])
    parts = [measured[(measured["epoch"] == last) & (last > 0)], untrained]
    ends = runs[(runs["stage"] == "finetune") & (runs["measure"] == "val_error")]
    parts += [ends.assign(key=ENDS + " (" + ends["transfer"] + ")"), _of_labels(folder, runs)]
    measurements = pd.concat(parts)[[*BY, "value"]]
    return measurements, runs.drop_duplicates("run").set_index("run")["arm"], homes


def _of_labels(folder: Path, runs: pd.DataFrame) -> pd.DataFrame:
    trained = runs[(runs["stage"] == "pretrain") & (runs["measure"] == "train_loss")]
    rows, entropies = [], set()  # runs whose loss is a conditional entropy
    for _, job in api.of_kinds(folder, "pretrain"):
        options = job.manifest["options"]
        if options["objective"]["name"] == "labels" and options["recipe"]["loss"] in ("auto", "softmax"):
            entropies |= {*job.table("runs.parquet", ["run_id"])["run_id"]}
    for condition, space in api.of_kinds(folder, "hierarchy"):
        about = space.json("properties.json", "space", "granularity", "nmi", "multi_label")
        entropy = stats.entropy(space.table("classes.parquet", ["size"])["size"])
        losses = trained[(trained["condition"] == condition) & (trained["space"] == about["space"])]
        values = {"G": about["granularity"], "meaning": list(about["nmi"].values())[-1]}
        rows += [losses.assign(key=key, value=value) for key, value in values.items()]
        if not about["multi_label"]:
            known = losses[losses["run"].isin(entropies)]
            rows.append(known.assign(key="learnt", value=1 - known["value"] / entropy))
    return pd.concat(rows)


def tables(found: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return for each key a table with a column per arm, and a row per unit: a backbone or, of several folders, the
    mean over a folder's backbones, because these share images and labels.
    """
    folder = found["repetition"].str.rpartition("/")[0]
    found = found.assign(unit=folder if folder.nunique() > 1 else found["repetition"])
    return {
        key: part.pivot_table("value", "unit", "arm", aggfunc="mean", sort=False).reindex(found["unit"].unique())
        for key, part in found.groupby("key")
    }


def of_pairs(key: str, numbers: Difference) -> Difference:
    """Widen the error if each unit's number is its mean over pairs with the others, because units then share pairs.

    The error is the jackknife's, which leaves out a unit with its pairs; two units have none. For correlations with
    errors, which units do not share, it is too wide, never too narrow.
    """
    n = numbers.pairs
    factor = 2 * (n - 1) / (n - 2) if n > 2 else np.nan
    return numbers._replace(error=factor * numbers.error) if key.startswith("agreement/") else numbers


def differences(found: pd.DataFrame, keys: Iterable[str]) -> pd.DataFrame:
    """Return each arm's differences from the target; intervals jointly hold over all keys and arms (Bonferroni).

    Index: key, arm. Columns: `mean` (of the arm), `difference`, `low`, `high`, `p` (Holm's), `units` (see
    :func:`tables`).
    """
    by_key, rows = tables(found), {}
    sizes = by_key["G"].mean().sort_values() if "G" in by_key else pd.Series(dtype=float)
    for key in keys:
        table = by_key[key]
        for arm in [*(arm for arm in sizes.index if arm in table), *table.columns.difference(sizes.index)]:
            told = paired(table[arm], table[BASELINE]) if BASELINE in table else Difference(np.nan, np.nan, 0)
            rows[key, arm] = (table[arm].mean(), *of_pairs(key, told))
    summary = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", *Difference._fields])
    summary.index = pd.MultiIndex.from_tuples(summary.index, names=["key", "arm"])
    return _judged(summary)


def relations(found: pd.DataFrame, keys: Iterable[str]) -> pd.DataFrame:
    """Relate each key to the error after finetuning and to the labels, by ranks over arms within each unit.

    Index: key, `with`. For the error of each transfer: Spearman's correlation. For G, `learnt`, `meaning`: coefficients
    of a regression of the key's ranks on the ranks of these three, all standardised. `difference` is the mean over
    units, with intervals as in :func:`differences`, for these arms only. A unit needs five arms.
    """
    by_key, rows = tables(found), {}
    ends = [key for key in by_key if key == ENDS or key.startswith(ENDS + " (")]
    for key in keys:
        for unit, values in by_key[key].iterrows():
            for end in ends:
                ended = pd.concat([values, by_key[end].loc[unit]], axis=1).dropna()
                if len(ended) >= 5:
                    rows.setdefault((key, end), []).append(stats.spearmanr(*ended.to_numpy().T).statistic)
            known = [by_key[item].loc[unit] for item in LABELS if item in by_key]
            about = pd.concat([values, *known], axis=1).dropna()
            if len(known) == len(LABELS) and len(about) >= 5 and about.nunique().min() > 1:
                ranks = stats.zscore(about.rank().to_numpy())
                solved = np.linalg.lstsq(ranks[:, 1:], ranks[:, 0])[0]
                for label, item in zip(LABELS, solved, strict=True):
                    rows.setdefault((key, label), []).append(item)
    index = pd.MultiIndex.from_tuples(rows or [(0, 0)], names=["key", "with"])[: len(rows)]
    numbers = [of_pairs(key, mean_of(item)) for (key, _), item in rows.items()]
    summary = pd.DataFrame(numbers, columns=Difference._fields, index=index)
    return _judged(summary)


def _judged(made: pd.DataFrame) -> pd.DataFrame:
    numbers = list(made[list(Difference._fields)].itertuples(index=False))
    compared = sum(not np.isnan(one.error) for one in numbers)
    reach = pd.DataFrame([interval(*one, compared) for one in numbers], columns=["low", "high"], index=made.index)
    return (
        made.join(reach)
        .assign(p=holm([p_value(*one) for one in numbers]))
        .rename(columns={"pairs": "units"})
        .drop(columns="error")
    )


def gridded(values: pd.Series) -> pd.DataFrame:
    """Return a row per key and a column per arm (or `with`), in the order of the table."""
    key, column = (values.index.unique(level) for level in values.index.names)
    return values.unstack().reindex(index=key, columns=column)


def picture(made: pd.DataFrame) -> str:
    """Draw differences from the target as SVG, each row scaled by its largest; crosses: the interval excludes zero."""
    grid = gridded(made["difference"]).drop(columns=[BASELINE, UNTRAINED], errors="ignore")
    stands = gridded((made["low"] > 0) | (made["high"] < 0)).reindex_like(grid)
    with drawing.styled():
        width = max(drawing.WIDTH, 3 + 0.15 * grid.shape[1])
        figure, axis = plt.subplots(figsize=(width, 1.6 + 0.17 * len(grid)), layout="constrained")
        scaled = grid.div(grid.abs().max(axis=1), axis=0)
        image = axis.imshow(scaled, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        axis.plot(*np.argwhere(stands.to_numpy() == True).T[::-1], "x", color=drawing.INK, markersize=3)  # noqa: E712
        axis.set_xticks(range(grid.shape[1]), map(drawing.shorten, grid), rotation=90)
        axis.set_yticks(range(len(grid)), map(drawing.shorten, grid.index))
        figure.colorbar(image, fraction=0.05, label="share of the row's largest")
        text = drawing.svg(figure, "atlas", "Differences of measures from the target, by label space")
        plt.close(figure)
    return text


def starred(made: pd.DataFrame, column: str) -> pd.Series:
    """Format values, with a star if the interval excludes zero."""
    stands = (made["low"] > 0) | (made["high"] < 0)
    return made[column].map("{:.3g}".format) + stands.map({True: "*", False: ""})


def write(folders: Sequence[Path], to: Path | None = None, keys: Sequence[str] = (), split: str = "val") -> Path:
    """Write `atlas.csv` (see :func:`read`), `differences.csv`, `relations.csv`, `CONDITION.svg` and `index.html`.

    Default folder: `atlas` in the folder of results, or beside several. Raises GranularityError: nothing was measured,
    or a requested key was not; or the folder has other files.
    """
    folders = [Path(folder) for folder in folders]
    homes = {folder.parent for folder in folders} if len(folders) > 1 else {*folders}
    if to is None and len(homes) > 1:
        raise GranularityError(
            f"{', '.join(map(str, folders))}: lie in several folders; name one for the page with --to"
        )
    to = to or homes.pop() / "atlas"
    before = pages.made_before(to, "atlas")
    measurements = read(folders, split)
    available = [key for key in measurements["key"].unique() if key not in LABELS]
    if unknown := [key for key in keys if key not in available]:
        raise GranularityError(f"--key: '{unknown[0]}' was not measured; there are {', '.join(available)}")
    parts, units = {}, {}
    for condition, part in measurements.groupby("condition"):
        chosen = list(keys or [key for key in available if key in set(part["key"])])
        measures = [key for key in chosen if not key.startswith(ENDS)]
        parts[condition] = differences(part, chosen), relations(part, measures)
        units[condition] = max(map(len, tables(part).values()))
    files = {"atlas.csv": measurements.to_csv(index=False, float_format="%.6g").encode()}
    bodies = [
        f'<p><a href="{quote(os.path.relpath(page, to))}">The report of {escape(folder.resolve().name)}</a></p>'
        for folder in folders
        if (page := folder / "report/report.html").is_file()
    ]
    for i, name in enumerate(("differences", "relations")):
        made = pd.concat({item: pair[i] for item, pair in parts.items()}, names=["condition"])
        files[f"{name}.csv"] = made.to_csv().encode()
    for condition, (difference_table, relation_table) in parts.items():
        drawn = picture(difference_table)
        files[f"{condition}.svg"] = drawn.encode()
        words = (
            "Figure: differences from the target. First table: means. Second table, over arms: rank correlations with"
        )
        words += " errors, and coefficients of a regression of ranks on those of G, learnt and meaning. "
        tested = "Crosses and stars: significantly different from the target, or from zero, by intervals over"
        tested += (
            f" {units[condition]} units (backbones or, of several folders, their means), corrected for all numbers of"
        )
        tested += " the table."
        words += tested if units[condition] > 1 else "There are no intervals, because there is only one backbone."
        grids = (gridded(starred(difference_table, "mean")), gridded(starred(relation_table, "difference")))
        plain = [item.rename_axis(index=None, columns=None).to_html(na_rep="", border=0) for item in grids]
        shown = f'<figure style="min-width: max-content">{drawn}</figure>', f"<p>{words}</p>", *plain
        html = "".join(f'<div class="scroll">{item}</div>' for item in shown)
        bodies.append(f"<h2>{escape(condition)}</h2>{html}")
    style, page = (report.HERE / "page.css").read_text(encoding="utf-8"), Markup("".join(bodies))
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Atlas</title><style>{style}</style>'
    foot = f'<footer class="run">Made by granularity, {revision()}.</footer>'
    files["index.html"] = f"{head}<main><h1>Atlas</h1>{page}{foot}</main></html>".encode()
    pages.put(to, files, before, "atlas")
    return to / "index.html"
