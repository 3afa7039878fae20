"""The pages, and the files that they load."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.look import folder
from granularity.look.explore import duplicates, found, images, plots
from granularity.look.explore.found import Result
from granularity.look.text import megabytes, seconds, size_text
from granularity.stages.report import stage as report
from granularity.stages.report.conditions import ShownSpace
from granularity.store import place
from granularity.store.artifact import Artifact, by_stage

HERE = Path(__file__).parent
INDEX = "index.html"
VIEWS = {"map": "Map", "cluster": "Clusters", "compare": "Compare", "training": "Training", "duplicates": "Duplicates"}
SAID = ("<h1>(.*?)</h1>", '<p class="headline">(.*?)</p>')  # question and answer on the report's page
NOTHING = {"condition": "", "lost": [], "plots": {}, "trees": [], "legend": {}, "shown": None, "note": "", "twins": {}}


def write(root: Path, to: Path | None, most: int) -> tuple[Path, list[str]]:
    """Write the pages about the results in `root`; return the first, and a line for each result not used."""
    to = root / "explore" if to is None else to
    before = folder.made_before(to, "explore")
    results = found.read(root)
    pages = report.environment(HERE)
    pages.filters |= {"seconds": seconds, "megabytes": megabytes, "size": size_text}
    pages.policies["json.dumps_kwargs"] = {}  # unsorted, because Bokeh needs definitions before references
    conditions = list(dict.fromkeys(result.condition for result in results if result.condition))
    whole = root.resolve()  # named with its study, if it is a cell of one
    name = os.path.relpath(whole, place.store_of(whole).parent)
    pages.globals |= {"run": name, "views": VIEWS, "conditions": conditions}
    template = pages.get_template("page.html.j2")

    def page(view: str, up: str, **values: Any) -> bytes:
        return template.render(NOTHING | values, view=view, up=up, title=VIEWS.get(view, "Run")).encode()

    files = {"bokeh.min.js": plots.SCRIPT.read_bytes(), "explore.js": (HERE / "explore.js").read_bytes()}
    files["explore.css"] = b"\n".join((home / "page.css").read_bytes() for home in (report.HERE, HERE))
    for name in conditions:
        selected = [result for result in results if result.condition == name]
        data, sheets, values = _condition([result.artifact for result in selected if result.artifact], most)
        values |= {"condition": name, "lost": [result for result in selected if not result.artifact]}
        files[f"{name}/data.js"] = b"window.DATA = " + json.dumps(data).encode() + b";\n"
        files |= {f"{name}/{file}": sheet for file, sheet in zip(data["sheets"], sheets, strict=True)}
        if data["places"]:
            files[f"{name}/map.parquet"] = _table(data)
        for view in VIEWS:
            files[f"{name}/{view}.html"] = page(view, "../", **values | {"plots": values["plots"].get(view, {})})
    files[INDEX] = page("index", "", results=results, **_stages(results), **_report(results, to))
    folder.put(to, files, before, "explore")
    return to / INDEX, [f"{result.state}: {result.why}" for result in results if not result.artifact]


def _table(data: dict[str, Any]) -> bytes:
    """Return the map as Parquet for other viewers: per image its place in each map, and its name by each labelling."""
    named = {}
    for one in data["columns"]:  # an arm's prediction is named as its label space
        plain = one["group"] in ("rank", "label space") and one["name"] not in named
        name = one["name"] if plain else f"{one['group']}: {one['name']}"
        named[name] = pd.Series(one["codes"]).map(dict(enumerate(one["names"])))
    axes = {
        f"{kind} {axis}": each for kind, both in data["places"].items() for axis, each in zip("xy", both, strict=True)
    }
    return pd.DataFrame({"sample_id": data["ids"]} | axes | named).to_parquet(index=False)


def _stages(results: list[Result]) -> dict[str, Any]:
    """Return what the first page shows of each stage: the states of its results, their size and cost."""
    whole = [one.artifact for one in results if one.artifact]
    cost = {row["stage"]: row for row in by_stage(whole)}
    stages: dict[str, dict[str, Any]] = {}
    for one in results:
        row = stages.setdefault(one.kind, {"states": Counter(), "bytes": 0, "cost": cost.get(one.kind, {})})
        row["states"][one.state] += 1
        row["bytes"] += one.artifact.size if one.artifact else 0
    return {"stages": stages, "gpu": any("gpu_seconds" in row for row in cost.values())}


def _report(results: list[Result], to: Path) -> dict[str, Any]:
    """Return the report, the path to its page from these pages, and that page's question and answer as text."""
    for own in (one.artifact for one in results if one.artifact and one.kind == "report"):
        html, path = (own.folder / "report.html").read_text("utf-8", "replace"), own.place / "report.html"
        said = [Markup("".join(re.findall(pattern, html, re.DOTALL)[:1])).striptags() for pattern in SAID]
        return {"report": own, "path": os.path.relpath(path, to), "said": said}
    return {"report": None}


def _condition(whole: list[Artifact], most: int) -> tuple[dict[str, Any], list[bytes], dict[str, Any]]:
    """Return the data that the pages of a condition load (`data.js`), its sheets of images, and template values."""
    by_kind: defaultdict[str, list[Artifact]] = defaultdict(list)
    for item in whole:
        by_kind[item.kind].append(item)
    data: dict[str, Any] = {"ids": [], "outside": [], "columns": [], "places": {}, "trees": [], "sheets": []}
    values, sheets = {"plots": {}}, []
    values["plots"]["training"], values["legend"] = _trainings(by_kind)
    if by_kind["samples"]:
        shown, (data["tiles"], sheets) = _images(by_kind, most)
        features = shown.features(*by_kind["embed"])
        columns = [
            *shown.ranks(),
            *map(shown.space, by_kind["hierarchy"]),
            *shown.predictions(by_kind["finetune"]),
        ]
        for column, described in (item for job in by_kind["cluster"] for item in images.clusters(shown, features, job)):
            data["trees"].append({"column": len(columns), "clusters": described})
            columns.append(column)
        data |= {"digest": by_kind["samples"][0].digest, "originals": shown.originals()}
        data |= {"outside": shown.frame.index[shown.frame["split"] != "train"].tolist()}
        data |= {"ids": shown.ids.tolist(), "columns": [item.as_json() for item in columns]}
        data |= {"target": [item.name for item in columns].index(shown.target)}
        data |= {"sheets": [f"sheet-{number}.png" for number in range(len(sheets))]}
        values |= {"shown": shown, "trees": data["trees"]}
        if by_kind["duplicates"] and shown.pictures is not None:
            values["twins"] = duplicates.pairs(*by_kind["duplicates"], *by_kind["samples"], *by_kind["pixels"])
        if features is not None and len(features) > 2:
            places, share = images.pca(features)
            data["places"]["PCA"] = places.round(5).T.tolist()
            source = "embedding" if by_kind["embed"] else "pixels"
            values["note"] = f"The first two principal components of the {source} explain {share:.0%} of the variance."
            if len(features) <= images.NEIGHBOURS:
                data["places"]["t-SNE"] = images.tsne(features).round(3).T.tolist()
            values["plots"]["map"] = {"Images": plots.scatter(len(features))}
    return data, sheets, values


def _images(of: Mapping[str, list[Artifact]], most: int) -> tuple[images.Images, tuple]:
    """Return the images and their sheets; no sheets if the pixels are missing or corrupt."""
    for pixels in (*of["pixels"], None):
        try:
            shown = images.Images(of["samples"][0], pixels, most)
            return shown, shown.sheets()
        except GranularityError as error:  # an image in a shard; everything else was verified
            if pixels is None:
                raise
            say(f"explore: without images: {error}")


def _trainings(of: Mapping[str, list[Artifact]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the plots of trainings by heading, and the colours of the series of label spaces by name."""
    planned = [entry.manifest["options"] for entry in of["hierarchy"]]
    spaces = {entry["space"]: ShownSpace(entry["space"], entry["family"], entry["params"]) for entry in planned}
    drawn, legend = {}, {}
    for kind, words in (("finetune", "Finetuning"), ("pretrain", "Pretraining")):
        if of[kind]:
            files = ("runs.parquet", "history.parquet")
            runs, history = (pd.concat([job.table(file) for job in of[kind]], ignore_index=True) for file in files)
            runs = plots.styled(runs, spaces)
            legend |= dict(zip(runs["words"], runs["colour"], strict=True))
            several = [key for key in ("transfer", "network") if key in runs and runs[key].nunique() > 1]
            for names, part in runs.groupby(several) if several else [((), runs)]:
                of_these = "".join(f" ({name})" for name in names)
                if kind == "finetune" and part["granularity"].notna().any():
                    drawn[f"Error after finetuning against G, a dot per run{of_these}"] = plots.dots(part)
                for loss in (name for name in history if name.endswith(("_loss", "_error"))):
                    told = history[history["run_id"].isin(part["run_id"]) & history[loss].notna()]
                    if told["epoch"].nunique() > 1:  # one point is no line
                        heading = f"{words}: {loss.replace('_', ' ')} by epoch, a line per run{of_these}"
                        drawn[heading] = plots.curves(part, history, loss)
    return drawn, legend
