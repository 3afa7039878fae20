"""Section 4 of Yang, Steinhardt and Hu 2023 on images: collapse on coarse labels, and the structure left within.

For networks pretrained on the target's labels, by the measures `collapse`, `cluster_probe` and `accuracy` with the
target as the coarse rank and the finest rank below it; claims and bands are in `claims/words/`. No claim is tested for
networks that have not fitted their training labels.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from granularity.claims import preregistered
from granularity.claims.claim import Claim, unmet
from granularity.stages.verdicts.arms import BASELINE, Frame, Tables, corrected

READS = ("measure/values.parquet", "measure/runs.parquet")
COLUMNS = ("condition", "target", "run", "network", "space", "family", "pretrain_seed")
COLUMNS += ("epoch", "split", "measure", "key", "value")
PUBLISHED = ("neural_collapse",)
WORDS = preregistered.words("neural_collapse_images")
FITTED = 1.0  # percent of training error; above it nothing is tested
EARLY = {"A1-nc1": ("nc1", 10), "A1-nc2": ("nc2", 1)}  # the epochs that the end is compared with


def judge(tables: Tables) -> list[Claim]:
    return corrected(_judged(tables))


def _judged(tables: Tables) -> Iterator[Claim]:
    targets = tables["samples"].set_index("condition")["target"].to_dict()
    values, runs = (tables[read] for read in READS)
    table = values.merge(runs, on=["condition", "run"], suffixes=("", "_of"))
    baseline = table[table["space"] == BASELINE]
    if baseline.empty:
        yield from claims("no such networks", "", baseline, table)
    for (condition, network), part in baseline.groupby(["condition", "network"], sort=False):
        others = table[(table["condition"] == condition) & (table["network"] == network) & (table["space"] != BASELINE)]
        yield from claims(f"{condition}, {network}", targets[condition], part, others)


def claims(where: str, target: str, own: Frame, others: Frame) -> Iterator[Claim]:
    """Yield every claim on networks with the target's labels; `others`: networks with other labels."""
    last = own["epoch"] == own["epoch"].max()
    train, end = own[own["split"] == "train"], own[last]
    ratios = sorted(key.removesuffix("/r1") for key in set(train["key"]) if key.endswith("/r1"))
    depth = Counter(key.split("/")[1] for key in ratios)  # by rank: how many coarser ranks it divides
    pairs = [key for key in ratios if key.split("/")[0] == target]
    pair = max(pairs, key=lambda key: depth[key.split("/")[1]], default="")

    def of(rows: Frame, key: str, split: str) -> np.ndarray:
        kept = rows[(rows["key"] == key) & (rows["split"] == split)]
        return kept.groupby("pretrain_seed")["value"].mean().to_numpy(float)

    error = of(end[end["measure"] == "accuracy"], "error", "train")
    fitted = unmet(
        (len(error) > 0, "no measure `accuracy` of the training split"),
        (
            bool(len(error)) and error.mean() < FITTED,
            f"a training error of {error.mean() if len(error) else np.nan:.1f} %",
        ),
        (bool(pair), "no measure `collapse` of the target and a finer rank on the training split"),
    )

    def claim(id: str, found: np.ndarray, untested: str = fitted) -> Claim:
        words = {"reason": "", **WORDS[id]}
        return Claim(id, values=list(found), untested=untested, **words | {"quantity": f"{where}: {words['quantity']}"})

    for id, (key, epoch) in EARLY.items():
        early = of(train[train["epoch"] == epoch], f"{target}/{key}", "train")
        late = of(train[last.reindex(train.index)], f"{target}/{key}", "train")
        equal = len(early) == len(late) > 0
        yield claim(id, late / early if equal else np.empty(0), fitted or unmet((equal, f"epoch {epoch} was not kept")))
    r1, null, r2 = (of(end, f"{pair}/{key}", "train") for key in ("r1", "r1_null", "r2"))
    yield claim("A2-null", r1 - null)
    yield claim("A2-r1", r1)
    yield claim("A2-r2", r2)
    probe, raw = end[end["measure"] == "cluster_probe"], own[own["epoch"] == 0]
    best, labels, majority = (of(probe, key, "val") for key in ("error", "error_of_labels", "error_of_majority"))
    none = fitted or unmet((len(best) > 0, "no measure `cluster_probe` on val"))
    yield claim("A5", of(probe, "purity", "train"), none)
    yield claim("A6-labels", best - labels, none)
    finer = others[(others["measure"] == "cluster_probe") & (others["epoch"] == others["epoch"].max())]
    # Only networks on the finest rank have the labels that the clusters' probe is judged by.
    ordinary = of(finer[finer["space"] == f"manual-{pair.split('/')[-1]}"], "error_of_labels", "val")
    paired = len(ordinary) == len(best) > 0
    why = none or unmet((paired, "no network on the finest labels for each of them"))
    yield claim("A6-ordinary", best - ordinary if paired else np.empty(0), why)
    yield claim("A6-majority", majority - best, none)
    untrained = of(raw[raw["measure"] == "cluster_probe"], "error", "val")
    paired = len(untrained) == len(best) > 0
    why = none or unmet((paired, "no untrained network was measured for each of them"))
    yield claim("A6-untrained", untrained - best if paired else np.empty(0), why)
