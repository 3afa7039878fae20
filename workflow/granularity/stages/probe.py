"""Stage `probe`: what a frozen backbone's features say about the target and the finer human ranks.

A linear probe (multinomial logistic regression, several L2 penalties along one warm-started path) and a kNN probe
(cosine similarity, votes weighted by exp(similarity / temperature)), on the pooled features before the head.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from granularity.base.errors import GranularityError
from granularity.base.progress import track
from granularity.base.seeds import seed_of
from granularity.config.options import Augment, Device, Probe, Recipe
from granularity.learning import train as loop
from granularity.learning.backbones import Backbones
from granularity.learning.dataset import Data
from granularity.learning.runs import Run
from granularity.machine.device import torch_device
from granularity.store import artifacts
from granularity.store.artifacts import Artifact
from granularity.store.checkpoints import read_state, write_state

EMBEDDING = "embedding"


def run(
    params: Probe,
    augment: Augment,
    runs: list[Run],
    seed: int,
    samples: Path,
    pixels: Path,
    embedding: Path,
    pretrained: list[Path],
    output: Path,
    device: Device = "auto",
    threads: int = 1,
) -> None:
    """Probe the backbones of one job, and the CLIP embedding itself beside them.

    `runs.parquet`: `run_id`, `space`, `family`, `granularity`, `pretrain_seed`, `probe` (linear, knn), `rank`, `l2`
    (null for knn), `val_error` (percent). The embedding is the space "embedding" of the family "encoder".

    Args:
        augment: the pretraining's, for the centre crop that its evaluation sees.
    """
    place = torch_device(device, threads)
    table, images = Artifact.open(samples, "samples"), Artifact.open(pixels, "pixels")
    vectors = Artifact.open(embedding, "embedding")
    backbones = Backbones(pretrained)
    resolved = {"seed": seed, **params.model_dump(), "runs": [run.name for run in runs]}
    resolved["probed"] = params.ranks or table.params["ranks"]
    resolved |= {"augment": augment.model_dump(), "threads": threads, "device": place.type}
    inputs = {"samples": table, "pixels": images, "embedding": vectors, **backbones.inputs}
    with artifacts.create(output, "probe", "granularity.stages.probe", inputs, resolved, resumable=True) as out:
        data = Data(table, images, place)
        frame = table.table("samples.parquet", resolved["probed"])
        recipe = Recipe(augment=augment)

        def finished(name: str, features: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> list[dict]:
            """The rows of one backbone, which outlive a kill."""
            place = out.work / f"{name}.done"
            if (state := read_state(place)) is None:
                state = {}, {"rows": _probe(*features(), frame, data, params, seed)}
                write_state(place, *state)
            return state[1]["rows"]

        rows = []
        values = vectors.array("embedding.npy", (len(frame), None), np.float32)
        if not np.isfinite(values).all():
            raise GranularityError(
                f"{vectors.path / 'embedding.npy'}: row {np.argmin(np.isfinite(values).all(1))} is not finite"
            )
        whole = torch.from_numpy(values)
        known = {"run_id": EMBEDDING, "space": EMBEDDING, "family": "encoder"}
        known |= {"granularity": None, "pretrain_seed": None}
        found = finished(EMBEDDING, lambda: (whole[data.train], whole[data.val]))
        rows += [known | measured for measured in found]
        for one in track(runs, len(runs), "probing", "backbones"):
            row = backbones.find(one.space, one.pretrain_seed)

            def features(row=row) -> tuple[torch.Tensor, torch.Tensor]:
                model = backbones.load(row, data.channels).to(place)

                def pooled(batch: torch.Tensor) -> torch.Tensor:
                    return model.forward_head(model.forward_features(batch), pre_logits=True)

                train, val = (loop.predict(pooled, data, part, recipe) for part in (data.train, data.val))
                return train, val

            known = {key: row[key] for key in ("run_id", "space", "family", "granularity", "pretrain_seed")}
            rows += [known | measured for measured in finished(one.name, features)]
        result = pd.DataFrame(rows)
        result[["granularity", "pretrain_seed"]] = result[["granularity", "pretrain_seed"]].astype("Int64")
        out.table("runs.parquet", result)
        out.summary["backbones"] = len(runs)


def _probe(train, val, frame: pd.DataFrame, data: Data, params: Probe, seed: int) -> list[dict]:
    """Of every rank, what both probes measure."""
    rows = []
    for rank in frame:
        names = np.unique(frame[rank].to_numpy(dtype=str)[data.train])
        codes = pd.Index(names).get_indexer(frame[rank])
        truth, labels = codes[data.val], torch.from_numpy(codes[data.train])
        predicted, l2 = linear_probe(train, labels, val, len(names), params.l2, seed_of(seed, "probe", rank))
        wrong = loop.percent_wrong(predicted.numpy(), truth)
        rows.append({"probe": "linear", "rank": rank, "l2": l2, "val_error": wrong})
        predicted = knn_probe(train, labels, val, len(names), params.neighbours, params.temperature)
        wrong = loop.percent_wrong(predicted.numpy(), truth)
        rows.append({"probe": "knn", "rank": rank, "l2": None, "val_error": wrong})
    return rows


def linear_probe(
    train: torch.Tensor,
    labels: torch.Tensor,
    test: torch.Tensor,
    classes: int,
    penalties: list[float],
    seed: int,
) -> tuple[torch.Tensor, float]:
    """Predictions of a logistic regression whose penalty was chosen on a fifth of the training images.

    Args:
        train, test: features float [N, D], [M, D]; standardised here by the training features' moments.
        labels: int64 [N].

    Returns:
        predicted classes int64 [M], and the penalty chosen.
    """
    mean, std = train.double().mean(0), train.double().std(0, correction=0)
    scale = torch.where(std > 1e-8, std, torch.ones_like(std))
    train, test = ((part.double() - mean) / scale for part in (train, test))
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(train)))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    best, best_wrong = max(penalties), float("inf")
    if len(penalties) > 1 and len(held):
        weights = None
        for l2 in sorted(penalties, reverse=True):  # each starts where the stronger one before it ended
            weights = logistic_regression(train[kept], labels[kept], classes, l2, weights)
            wrong = float((_scores(train[held], weights).argmax(1) != labels[held]).double().mean())
            if wrong < best_wrong:  # so ties go to the stronger penalty
                best, best_wrong = l2, wrong
    weights = logistic_regression(train, labels, classes, best)
    return _scores(test, weights).argmax(1), best


def logistic_regression(
    features: torch.Tensor, labels: torch.Tensor, classes: int, l2: float, start: torch.Tensor | None = None
) -> torch.Tensor:
    """Weights [D + 1, C] (the last row is the bias) that minimise mean cross-entropy + l2 / 2 * |W|^2.

    The bias is not penalised. This is scikit-learn's LogisticRegression(C=1 / (l2 * N)), to its tolerance.
    """
    size = (features.shape[1] + 1, classes)
    weights = torch.zeros(size, dtype=features.dtype, device=features.device) if start is None else start.clone()
    weights.requires_grad_(True)
    limits = {"max_iter": 500, "tolerance_grad": 1e-6, "tolerance_change": 1e-12}
    solver = torch.optim.LBFGS([weights], history_size=20, line_search_fn="strong_wolfe", **limits)

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(_scores(features, weights), labels) + l2 / 2 * weights[:-1].square().sum()
        loss.backward()
        return loss

    solver.step(closure)
    return weights.detach()


def _scores(features: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return features @ weights[:-1] + weights[-1]


def knn_probe(
    train: torch.Tensor,
    labels: torch.Tensor,
    test: torch.Tensor,
    classes: int,
    neighbours: int,
    temperature: float,
) -> torch.Tensor:
    """Predicted classes int64 [M] by the weighted vote of the nearest training images."""
    train, test = F.normalize(train.double(), dim=1), F.normalize(test.double(), dim=1)
    found = []
    for part in test.split(1024):
        similarity, index = (part @ train.T).topk(min(neighbours, len(train)), dim=1)
        votes = torch.zeros(len(part), classes, dtype=torch.float64)
        votes.scatter_add_(1, labels[index], (similarity / temperature).exp())
        found.append(votes.argmax(1))
    return torch.cat(found)
