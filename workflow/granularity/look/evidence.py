"""What label spaces were before training, and what they gained, of all finished results in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.seeds import seed_of
from granularity.claims import statistics
from granularity.claims.foresight import GROUP, PROPERTIES
from granularity.stages.hierarchy.embedded import MOST_IMAGES, directions, embedded
from granularity.stages.hierarchy.space import TARGET
from granularity.stages.report.partitions import first_alike
from granularity.store import artifacts
from granularity.store.artifacts import Artifact

GAIN = ["gain", "gain_low", "gain_high", "gain_even", "gain_odd", "backbones"]
COLUMNS = [*GROUP, "train_images", "space", "family", "meaningless", *PROPERTIES, *GAIN]
TEXT = [*GROUP, "space", "family"]
RUNS = dict.fromkeys(["run_id", "network", "space", "transfer"], "text")
RUNS |= {"val_error": "number", "pretrain_seed": "number"}
KEYS = ("granularity", "straddling_share", "mutual_information_bits", "nmi")


def found(root: Path) -> pd.DataFrame:
    """The evidence of all conditions below a folder of results: a row per label space that was trained on.

    Returns:
        `COLUMNS`. `gain`: validation error of the target, trained on twice, minus that of the label space, in points,
        mean over `backbones` of one seed; `gain_low`, `gain_high`: Student's 95 % interval of it alone; `gain_even`,
        `gain_odd`: of every other backbone. Label spaces that part the images alike are one row, with the mean of their
        errors, seed by seed. Conditions without a label space that was trained on beside the target are left out, and
        results that are damaged or of other label spaces than lie beside them are named and left out.

    Raises:
        GranularityError: there is no such folder.
    """
    conditions: dict[Path, list[Path]] = {}
    for folder in artifacts.find(root):
        if folder.name == "samples":
            conditions.setdefault(folder.parent, [])
        elif "finetune" in folder.parts[-4:]:
            conditions.setdefault(folder.parents[3], []).append(folder)
    frames = [pd.DataFrame(columns=COLUMNS)]
    for condition, finetuned in conditions.items():
        if finetuned and (condition / "hierarchy").is_dir():
            try:
                frames.append(_condition(condition, finetuned))
            except GranularityError as error:
                say(f"left out: {error}")
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    return pd.concat(frames, ignore_index=True)[COLUMNS]


def read(file: Path) -> pd.DataFrame:
    """Evidence from a CSV file that `granularity recommend` wrote.

    Raises:
        GranularityError: it cannot be read, or lacks columns.
    """
    with artifacts.readable(file, "a CSV file"):
        table = pd.read_csv(file, dtype=dict.fromkeys(TEXT, "str"), keep_default_na=False, na_values=[""])
    if missing := [column for column in COLUMNS if column not in table]:
        raise GranularityError(f"{file}: has no column {missing[0]}; give a file that `granularity recommend` wrote")
    for column in COLUMNS if len(table) else ():
        values = table[column]
        if column in TEXT and values.isna().any():
            raise GranularityError(f"{file}: column '{column}' must not be empty")
        if column == "meaningless" and not pd.api.types.is_bool_dtype(values):
            raise GranularityError(f"{file}: column '{column}' must be True or False")
        if column in (*PROPERTIES, *GAIN) and not pd.api.types.is_numeric_dtype(values):
            raise GranularityError(f"{file}: column '{column}' must be numbers")
    return table[COLUMNS]


def properties(condition: Path, spaces: list[Path]) -> pd.DataFrame:
    """What is known of label spaces before training, a row each: `space`, `family`, `meaningless`, and `PROPERTIES`.

    Numbers that need the embedding are NaN where the condition has none.
    """
    samples = Artifact.open(condition / "samples", "samples")
    target, finest = samples.facts["target"], samples.facts["ranks"][-1]
    frame = samples.table("samples.parquet", {"sample_id": "text", "split": "text", target: "text"})
    place = np.flatnonzero(frame["split"] == "train")
    embedding = condition / "embed"
    seen = None
    if (embedding / artifacts.MANIFEST).exists():
        vectors = Artifact.open(embedding, "embed").array("embedding.npy", (len(frame), None), np.float32)
        kept = np.arange(0, len(place), max(1, -(-len(place) // MOST_IMAGES)))
        codes = pd.factorize(frame[target].astype("str").iloc[place[kept]])[0]
        seen = kept, codes, np.asarray(vectors[place[kept]]), directions(vectors[place[kept]], codes)
    opened = [Artifact.open(folder, "hierarchy") for folder in spaces]
    return pd.DataFrame([_known(one, samples, target, finest, seen) for one in opened])


def data_set(samples: Artifact) -> str:
    """The images that a sample table is of, in one word: that of the folder or the repository, or the source."""
    options = samples.manifest["options"]
    where = options.get("root") or (options.get("hub") or "").partition("@")[0]
    return Path(where).name if where else options["source"]


def _known(space: Artifact, samples: Artifact, target: str, finest: str, seen: Any) -> dict[str, Any]:
    measured, options = space.json("properties.json", *KEYS), space.manifest["options"]
    sizes = space.table("classes.parquet", {"size": "whole"})["size"].to_numpy(float)
    share = sizes[sizes > 0] / sizes.sum()
    about = measured["mutual_information_bits"]
    row = {
        "space": options["space"],
        "family": options["family"],
        "meaningless": _by_chance(options["family"]),
        "G": measured["granularity"],
        "nmi_finest": measured["nmi"][finest],
        "evenness": float(-(share * np.log(share)).sum() / np.log(len(sizes))) if len(sizes) > 1 else 1.0,
        "refinement": 1 - measured["straddling_share"],
        "target_information": about[target],
        "finest_information": about[finest] - about[target],
        **dict.fromkeys(("compactness", "signal", "weakest"), np.nan),
        "random": seed_of(0, "random", data_set(samples), options["space"]) / 2**63,
    }
    if seen is not None:
        kept, codes, vectors, leading = seen
        label = space.table("labels.parquet", ["label"])["label"].iloc[kept]
        image = np.arange(len(label))
        if len(label) and np.ndim(label.iloc[0]):  # several labels: an image counts with each of them
            image = np.repeat(image, label.map(len).to_numpy())
            label = label.explode()
            codes, vectors = codes[image], vectors[image]
            leading = directions(vectors, codes)
        row |= embedded(pd.factorize(label.to_numpy(np.int64))[0], codes, vectors, leading)
    return row


def _by_chance(family: str) -> bool:
    known = extensions.names("family")
    return bool(family in known and getattr(extensions.find("family", family), "MEANINGLESS", False))


def _condition(condition: Path, finetuned: list[Path]) -> pd.DataFrame:
    samples = Artifact.open(condition / "samples", "samples")
    spaces = {folder.name: folder for folder in artifacts.find(condition / "hierarchy")}
    shown = {"hierarchy": {Artifact.peek(folder).digest for folder in spaces.values()}, "samples": {samples.digest}}
    runs = _runs(finetuned, shown)
    alike = _alike([Artifact.open(spaces[name], "hierarchy") for name in {*runs["space"]} & {*spaces} - {TARGET}])
    gains = pd.DataFrame(list(_gains(runs.assign(space=runs["space"].replace(alike)))))
    if gains.empty:
        return pd.DataFrame(columns=COLUMNS)
    trained = [folder for name, folder in spaces.items() if name in set(gains["space"])]
    gains = gains.merge(properties(condition, trained), on="space", how="inner")  # no label space: no property
    where = {"data": data_set(samples), "configuration": condition.parent.name, "condition": condition.name}
    return gains.assign(**where, train_images=samples.summary["images"].get("train", 0))


def _alike(spaces: list[Artifact]) -> dict[str, str]:
    """For each label space the one that stands for all that part the images alike: a human rank where there is one."""

    def place(space: Artifact) -> tuple:
        options = space.manifest["options"]
        return options["family"] != "manual", options["family"], options["space"]

    named = {space.manifest["options"]["space"]: space for space in sorted(spaces, key=place)}
    return first_alike(named, {name: space.table("classes.parquet", ["size"]) for name, space in named.items()})


def _runs(finetuned: list[Path], shown: dict[str, set[str]]) -> pd.DataFrame:
    tables = [pd.DataFrame(columns=list(RUNS))]
    for folder in finetuned:
        job = Artifact.open(folder, "finetune")
        if job.manifest["options"].get("other_data"):
            continue
        made = [job, *(one for one in job.lineage().values() if one.kind == "pretrain")]
        used = [entry for one in made for entry in one.manifest["inputs"].values()]
        if any(entry["digest"] not in shown.get(entry["kind"], {entry["digest"]}) for entry in used):
            say(f"left out: {folder}: was made from another sample table or label space than lie beside it")
            continue
        tables.append(job.table("runs.parquet", RUNS))
    return pd.concat([table for table in tables if len(table)] or tables)


def _gains(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for (transfer, network), group in runs.groupby(["transfer", "network"], sort=False):
        errors = group.groupby(["space", "pretrain_seed"], sort=False)["val_error"].mean().unstack().sort_index(axis=1)
        for space in errors.index if TARGET in errors.index else ():
            if space != TARGET:
                gained = (errors.loc[TARGET] - errors.loc[space]).dropna().to_numpy(float)
                if len(gained):
                    one = statistics.mean_of(gained)
                    low, high = statistics.interval(*one, 1)
                    halves = [half.mean() if len(half) else np.nan for half in (gained[::2], gained[1::2])]
                    values = [one.difference, low, high, *halves, one.pairs]
                    yield {
                        "transfer": transfer,
                        "network": network,
                        "space": space,
                        **dict(zip(GAIN, values, strict=True)),
                    }
