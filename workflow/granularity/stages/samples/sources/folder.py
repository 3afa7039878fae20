"""Your own images: one folder level per rank, coarse to fine, then the files.

root/animal/dog/1.jpg                  ranks: [kind, species]
root/train/dog/1.jpg, root/test/...    ranks: [species]; the publisher's own splits are kept

The folders at the top are splits where all of them are called train, val, validation, valid or test, where `train` and
another of these are among them, or where samples.train, val or extra_splits name one. A rank that a taxonomy or WordNet
adds has no folder level: with a taxonomy of columns `digit,loops`, root/eight/1.png has the ranks [loops, digit].
"""

from __future__ import annotations

import re

from granularity.base.errors import GranularityError
from granularity.data.endings import ENDINGS
from granularity.stages.samples.formats import image_files
from granularity.stages.samples.options import Samples
from granularity.stages.samples.published import VALIDATION, named, wanted
from granularity.stages.samples.source import Source

SPLITS = ("train", *VALIDATION)
LIKE_SPLITS = {*SPLITS, "training", "dev", "testing", "eval", "evaluation"}


def read(params: Samples, threads: int = 1) -> Source:
    """All images; where there are splits, those of the splits that are asked for.

    Raises:
        GranularityError: no images, an image at another depth than the ranks say, folders of which one cannot tell
            whether they are splits, or a name that is not UTF-8.
    """
    import pandas as pd

    ranks = _levels(params)
    found = [file.relative_to(params.root).parts for file in image_files.below(params.root)]
    if not found:
        raise GranularityError(f"{params.root}: holds no images ({', '.join(sorted(ENDINGS))})")
    splits = _splits(sorted({parts[0] for parts in found if len(parts) > 1}), params)
    asked = wanted(splits, params)
    depth = len(ranks) + bool(splits)
    rows = []
    for parts in found:
        if splits and parts[0] in splits and parts[0] not in asked:
            continue
        if len(parts) - 1 != depth:
            hint = "; a rank that has no folder comes from samples.taxonomy"
            if len(parts) - 2 == depth and not splits:
                hint = "; if the first is a split, name it in samples.train, val or extra_splits"
            raise GranularityError(
                f"{params.root.joinpath(*parts)}: lies {len(parts) - 1} folders below samples.root, but the ranks "
                f"{ranks}{' and the split' if splits else ''} ask for {depth}{hint}"
            )
        rows.append({"file": "/".join(parts), "split": parts[0], "names": parts[bool(splits) : -1]})
    frame = pd.DataFrame(rows)
    frame.insert(0, "sample_id", frame["file"])
    for level, rank in enumerate(ranks):
        paths = frame["names"].map(lambda names, level=level: names[: level + 1])
        # "other" below two parents is two classes, and only then needs its parents in its name
        parents_of_name = paths.groupby(paths.str[-1]).nunique()
        frame[rank] = [path[-1] if parents_of_name[path[-1]] == 1 else "/".join(path) for path in paths]
    return Source(frame.drop(columns=["names"] if splits else ["names", "split"]))


def _levels(params: Samples) -> list[str]:
    """The ranks that are folder levels: those that nothing else adds."""
    from granularity.stages.samples.ranks import LIVING, read_taxonomy

    added = {LIVING} if params.wordnet is not None else set()
    if params.taxonomy is None:
        return [rank for rank in params.ranks if rank not in added]
    key, *more = read_taxonomy(params.taxonomy).columns
    return [rank for rank in params.ranks if rank not in added.union(more)] or [key]


def _splits(top: list[str], params: Samples) -> list[str]:
    """Those of the folders at the top that are splits: all of them, or none.

    Raises:
        GranularityError: one cannot tell.
    """
    told = named(params)
    for key, name in told.items():
        if name not in top:
            raise GranularityError(f"samples.{key}: {params.root} has no folder '{name}', but {_listed(top) or 'none'}")
    known = [name for name in top if name in {*SPLITS, *told.values()}]
    if told or known == top or ("train" in known and len(known) > 1):
        if other := next((name for name in top if name not in known), None):
            raise GranularityError(
                f"{params.root / other}: lies beside {_listed(known)}, but is none of the splits that samples.train, "
                "val and extra_splits name; name it there, or move it elsewhere"
            )
        return known
    alike = [name for name in top if LIKE_SPLITS.intersection(re.split("[^a-z]+", name.lower()))]
    if alike == top or len([name for name in alike if name.lower() in LIKE_SPLITS]) > 1:
        raise GranularityError(
            f"{params.root}: its folders {_listed(alike)} look like splits; name them in samples.train and samples.val "
            "(or in extra_splits), or, if they are classes, call them otherwise"
        )
    return []


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)
