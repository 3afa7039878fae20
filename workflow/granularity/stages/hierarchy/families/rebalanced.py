"""k-means in each superclass, as fine as possible without small classes. Source: Hong et al., section 4, appendix."""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from granularity.base.section import ONCE, Count, Natural, Section
from granularity.stages.hierarchy.checks import NOTE, Check, compare, in_one_target_class
from granularity.stages.hierarchy.labels import Frame, Labels, Training
from granularity.stages.hierarchy.space import Space, fewer_than_images
from granularity.store.artifact import Artifact


class Rebalanced(Section):
    clusters: Annotated[list[Count], ONCE] = Field(
        [2, 4, 8, 16], min_length=1, description="The grid of cluster counts per superclass."
    )
    thresholds: Annotated[list[Natural], ONCE] = Field(
        [],
        description="One label space per threshold: each superclass takes the largest count of the grid whose "
        "smallest cluster has more images than this.",
    )
    granularity: Annotated[list[Count], ONCE] = Field(
        [],
        description="One label space per number of classes G, in all superclasses together: the threshold whose G is "
        "nearest, found by lowering it step by step.",
    )


OPTION = (Rebalanced, Field(Rebalanced()))
WORDS = "rebalanced k-means"
STYLE = ("#0e9db0", "P")


def spaces(option: Rebalanced, samples: Any) -> Iterator[Space]:
    grid = [f"superclass-{clusters}" for clusters in sorted(option.clusters)]
    for threshold in option.thresholds:
        yield Space(f"rebalanced-{threshold}", "rebalanced", {"clusterings": grid, "threshold": threshold})
    for classes in option.granularity:
        yield Space(f"rebalanced-G{classes}", "rebalanced", {"clusterings": grid, "classes": classes})


def check(option: Rebalanced, config: Any) -> Iterator[str]:
    yield from fewer_than_images("rebalanced.clusters", option.clusters, config)
    yield from fewer_than_images("rebalanced.granularity", option.granularity, config)


def elsewhere(
    training: Training, images: Frame, clusterings: list[str], threshold: int | None = None, classes: int = 0
) -> Labels | None:
    """For each superclass, take the finest clustering whose smallest cluster has over `threshold` images, or none."""
    clusters = {name: training.clusters(name, images) for name in clusterings}
    if any(assignment is None for assignment in clusters.values()):
        return None
    threshold = threshold_for(training, clusterings, classes) if threshold is None else threshold
    codes, target_names = training.coded(training.target)
    superclass, chosen = images[training.target].to_numpy(dtype=str), _chosen(grid(training, clusterings), threshold)
    values, names, counts = np.full(len(images), -1, dtype=np.int32), [], {}
    for number, name in enumerate(target_names):
        members, of_part = superclass == name, [str(name)]
        if name not in chosen.index:
            values[members] = len(names)
        else:
            clustering = chosen.at[name, "clustering"]
            kept = np.unique(training.clusterings[clustering].assignment[codes == number])
            values[members] = len(names) + np.searchsorted(kept, clusters[clustering][members])
            of_part = [f"{name}, cluster {i}" for i in range(len(kept))]
        names += of_part
        counts[str(name)] = len(of_part)
    return Labels(values, names, notes={"clusters_of_superclass": counts, "threshold": threshold})


def grid(training: Training, clusterings: list[str]) -> Frame:
    """Return a row per superclass and clustering, finest first: `superclass`, `clustering`, `clusters`, `smallest`."""
    import pandas as pd

    superclass, target_names = training.coded(training.target)
    tables = []
    for name in sorted(clusterings, key=lambda name: -int(name.rsplit("-", 1)[1])):
        sizes = pd.Series(training.clusterings[name].assignment).groupby(superclass).value_counts(sort=False)
        of_superclass = sizes.groupby(level=0).agg(["size", "min"]).to_numpy()
        columns = {"superclass": target_names, "clustering": name}
        tables.append(pd.DataFrame({**columns, "clusters": of_superclass[:, 0], "smallest": of_superclass[:, 1]}))
    return pd.concat(tables, ignore_index=True)


def _chosen(table: Frame, threshold: int) -> Frame:
    """Return the row of :func:`grid` that each superclass takes; superclasses that stay whole have none."""
    return table[table["smallest"] > threshold].drop_duplicates("superclass").set_index("superclass")


def threshold_sweep(training: Training, clusterings: list[str]) -> Frame:
    """Return the `granularity` for each range of equivalent thresholds: `threshold_from`, `threshold_to` (or null)."""
    import pandas as pd

    table = grid(training, clusterings)
    superclasses, steps = table["superclass"].nunique(), np.unique([0, *table["smallest"]])
    chosen = [_chosen(table, threshold)["clusters"] for threshold in steps]
    granularity = np.array([clusters.sum() + superclasses - len(clusters) for clusters in chosen], dtype=np.int64)
    table = pd.DataFrame({"threshold_from": steps, "granularity": granularity})
    table = table[table["granularity"].ne(table["granularity"].shift())].reset_index(drop=True)
    table.insert(1, "threshold_to", (table["threshold_from"].shift(-1) - 1).astype("Int64"))
    return table


def threshold_for(training: Training, clusterings: list[str], classes: int) -> int:
    """Return the largest threshold whose G is nearest to `classes`, as a ratio; ties: the smaller G."""
    sweep = threshold_sweep(training, clusterings)[::-1]
    row = sweep.loc[np.log(sweep["granularity"] / classes).abs().idxmin()]
    return int(row["threshold_from" if row.isna()["threshold_to"] else "threshold_to"])


def more_files(training: Training, clusterings: list[str], **_: int) -> dict[str, Frame]:
    return {"threshold_sweep.parquet": threshold_sweep(training, clusterings)}


def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
    """L5, and L7 (class sizes), computed from the label files, independently of how they were made."""
    yield in_one_target_class(space)
    name, target = space.params["space"], samples.params["target"]
    threshold = space.params["threshold"] if "threshold" in space.params else space.summary["threshold"]
    superclass = samples.table("samples.parquet", ["split", target]).query("split == 'train'")[target].astype("str")
    superclass = superclass.reset_index(drop=True)
    ours = space.table("labels.parquet", ["label"])["label"]
    sizes = ours.groupby(superclass).agg(lambda part: (part.nunique(), part.value_counts().min()))
    wrong = [
        f"{target_class}: a class of {least}"
        for target_class, (many, least) in sizes.items()
        if many > 1 and least <= threshold
    ]
    sources = space.lineage()
    for clustering in space.params["clusterings"]:
        assignment = sources[clustering].table("assignment.parquet", ["cluster"])["cluster"]
        for target_class, part in assignment.groupby(superclass):
            if part.nunique() > sizes[target_class][0] and part.value_counts().min() > threshold:
                wrong.append(f"{target_class}: {clustering} would do")
    subject = f"{name}: the finest grid with more than {threshold} images per class"
    yield compare("L7", subject, "in every superclass", "; ".join(wrong) or "in every superclass")
    if "classes" in space.params:
        granularity = f"{space.summary['granularity']}, at the threshold {threshold}"
        yield Check("L7", f"{name}: G", str(space.params["classes"]), granularity, NOTE)
