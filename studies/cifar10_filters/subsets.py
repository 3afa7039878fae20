"""Some classes of a data set in Parquet, or another data set's images beside it, as the split `others`.

`samples.classes`: only images of these classes, of the first rank that is asked for. `samples.others`: the folder of
the other data set, whose training split is read where `extra_splits` names `others`; its images are of a class `other`.
"""

import os
from pathlib import Path

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.stages.samples.source import Source
from granularity.stages.samples.sources import parquet

EXTENDS, NEEDS_ROOT = "source", True
OPTIONS = {
    "classes": (list[str], Field([], description="Only images of these classes ([]: all).")),
    "others": (Path | None, Field(None, description="The folder of another data set in Parquet: split `others`.")),
}
files = parquet.files


def folders(params):
    return params.root, params.others


def check(params, conditions):
    if (params.others is None) == ("others" in params.extra_splits):
        yield "others: needs the split 'others' among extra_splits, and that needs a data set; name both or neither"


def read(params, threads: int = 1) -> Source:
    """The images of the splits asked for, those of `others` last."""
    import pandas as pd

    extra = [split for split in params.extra_splits if split != "others"]
    frame = parquet.read(params.model_copy(update={"extra_splits": extra}), threads).frame
    rank = params.ranks[0]
    if unknown := {*params.classes} - {*frame.get(rank, pd.Series(dtype="category")).cat.categories}:
        raise GranularityError(f"samples.classes: there is no class {sorted(unknown)[0]!r} of the rank '{rank}'")
    if params.classes:
        frame = frame[frame[rank].isin(params.classes)].reset_index(drop=True)
        frame[rank] = frame[rank].cat.set_categories(params.classes)
    if params.others is None:
        return Source(frame)
    root = Path(os.path.commonpath([params.root.absolute(), params.others.absolute()]))
    beside = parquet.read(params.model_copy(update={"root": params.others, "val": None, "extra_splits": []}), threads)
    others = beside.frame[beside.frame["split"] == (params.train or "train")]
    others = others[["sample_id", "split", "file", "row"]].assign(split="others", **{rank: "other"})
    parts = []
    for folder, part in ((params.root, frame), (params.others, others)):
        within = folder.absolute().relative_to(root).as_posix()
        ids = part["sample_id"] if part is frame else "others/" + part["sample_id"].astype(str)
        parts.append(part.assign(file=f"{within}/" + part["file"].astype(str), sample_id=ids).astype({rank: str}))
    names = [*frame[rank].cat.categories, "other"]
    whole = pd.concat([part.astype({"split": str}) for part in parts], ignore_index=True)[[*others.columns]]
    return Source(whole.assign(**{rank: pd.Categorical(whole[rank], names)}), root=root)
