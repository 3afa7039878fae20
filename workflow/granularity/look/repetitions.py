"""Numbers of an atlas that need several repetitions: similarity of features between them, and errors on hard images.

Features come from the measure `features`, for the first `IMAGES` of a split that is the same in all repetitions.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from granularity.look import api

IMAGES, NEIGHBOURS, SHARE = 2000, 10, 0.1
Arms = Mapping[Path, pd.Series]  # for each folder of results, the arm of each run
Row = tuple[str, str, str, str, float]  # condition, repetition, arm, key, value


def agreement(arms: Arms, split: str) -> Iterator[Row]:
    """Yield `agreement/cka`, `/knn`, `/procrustes` of each repetition: means over its arm's other repetitions."""
    features_by_arm = defaultdict(dict)
    for folder, arm_of in arms.items():
        images = {name: tuple(_images(samples, split)) for name, samples in api.of_kinds(folder, "samples")}
        for condition, job in api.of_kinds(folder, "measure"):
            for run in job.table("runs.parquet").dropna(subset="pretrain_seed").itertuples():
                files = sorted((job.folder / "arrays").glob(f"*{run.run}@*/{split}/features.npy"), key=_epoch)
                for file in {files[0], files[-1]} if files else ():
                    arm = arm_of[run.run] if _epoch(file) else "untrained"
                    features = job.array(str(file.relative_to(job.folder)))[:IMAGES].astype(np.float64)
                    features_by_arm[condition, images[condition], arm][f"{folder.name}/{run.pretrain_seed}"] = features
    for (condition, _, arm), by_repetition in features_by_arm.items():
        values_by_key = defaultdict(list)
        for (first, features_a), (second, features_b) in combinations(by_repetition.items(), 2):
            for key, value in alike(features_a, features_b).items():
                values_by_key[first, key].append(value)
                values_by_key[second, key].append(value)
        for (repetition, key), values in values_by_key.items():
            yield condition, repetition, arm, f"agreement/{key}", float(np.mean(values))


def _images(samples, split: str) -> pd.Series:
    table = samples.table("samples.parquet", ["sample_id", "split"])
    return table.loc[table["split"] == split, "sample_id"].iloc[:IMAGES]


def _epoch(file: Path) -> int:
    return int(file.parent.parent.name.rpartition("@")[2])


def alike(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Return the similarity of two networks' features [N, D] of the same images; the largest value is 1.

    `cka`: linear, with unbiased HSIC (Song et al. 2012; the biased estimate is high for random features of few images:
    arXiv 2405.01012); `knn`: the share of 10 nearest neighbours (cosine) that both have; `procrustes`: the nuclear norm
    of the product of centred features of norm 1, which is 1 if one is a rotation of the other.
    """
    parts = [features - features.mean(0) for features in (ours, theirs)]
    grams = [part @ part.T for part in parts]
    cka = unbiased_hsic(*grams) / np.sqrt(unbiased_hsic(grams[0], grams[0]) * unbiased_hsic(grams[1], grams[1]))
    search = NearestNeighbors(n_neighbors=NEIGHBOURS, metric="cosine")
    near = [search.fit(features).kneighbors(return_distance=False) for features in (ours, theirs)]
    shared = np.mean([len(np.intersect1d(*neighbours)) for neighbours in zip(*near, strict=True)]) / NEIGHBOURS
    product = parts[0].T @ parts[1] / np.prod([np.linalg.norm(part) for part in parts])
    return {"cka": float(cka), "knn": float(shared), "procrustes": float(np.linalg.norm(product, "nuc"))}


def unbiased_hsic(first: np.ndarray, second: np.ndarray) -> float:
    """Return the unbiased estimate of HSIC from two Gram matrices [N, N] (Song et al. 2012, eq. 5)."""
    first, second = (gram - np.diag(np.diag(gram)) for gram in (first, second))
    n = len(first)
    sums = first.sum() * second.sum() / ((n - 1) * (n - 2)) - 2 * first.sum(0) @ second.sum(0) / (n - 2)
    return float(((first * second).sum() + sums) / (n * (n - 3)))


def hardness(arms: Arms) -> Iterator[Row]:
    """Yield `error/hardest tenth (TRANSFER)` and `error/other images (TRANSFER)` after finetuning. Images are ranked by
    how many networks of this transfer in the other repetitions are wrong on them, so hardness is independent of the
    networks compared.
    """
    wrong = []  # condition, transfer, repetition, arm, and the images that a network gets wrong
    for folder, arm_of in arms.items():
        made = api.of_kinds(folder, "samples", "finetune")
        samples = {condition: job for condition, job in made if job.kind == "samples"}
        for condition, job in made:
            if job.kind != "finetune":
                continue
            target = samples[condition].facts["target"]
            truth = samples[condition].table("samples.parquet", ["sample_id", target]).set_index("sample_id")[target]
            codes, names = job.table("predictions.parquet").set_index("sample_id"), job.table("classes.parquet")
            if not codes.index.isin(truth.index).all():  # a transfer to other data
                continue
            for run in job.table("runs.parquet").itertuples():
                missed = names["name"].to_numpy()[codes[run.run_id]] != truth[codes.index].astype(str)
                repetition = f"{folder.name}/{run.pretrain_seed}"
                wrong.append(((condition, run.transfer), repetition, arm_of[run.run_id], missed))
    for of, repetition, arm, missed in wrong:
        judges = [misses for setting, peer, _, misses in wrong if setting == of and peer != repetition]
        if judges:
            order = pd.concat(judges, axis=1).mean(axis=1).sort_values(ascending=False, kind="stable").index
            cut = round(SHARE * len(order))
            for key, images in {"hardest tenth": order[:cut], "other images": order[cut:]}.items():
                yield of[0], repetition, arm, f"error/{key} ({of[1]})", float(100 * missed.reindex(images).mean())
