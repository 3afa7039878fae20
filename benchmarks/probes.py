"""The probes beside scikit-learn's: logistic regressions of 3 ranks x 5 penalties to an equal loss, and neighbours.

Features are ReLU units of random networks on random clusters, 256 of them; ranks have 2, 20 and 100 classes. Ours is
what a probe fits to choose penalties: all 15 regressions at once, with the axes. The peer is LogisticRegression, by
lbfgs, each regression with the loosest `tol` that brings its loss within 1e-6 of the lowest known; to find these is not
counted. Ours must be as low, or the work fails. On a GPU neighbours alone are compared.
"""

import warnings
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from common import clock_of, in_turns, rated

from granularity.stages.measure import logistic
from granularity.stages.measure.logistic import Axes, Problem
from granularity.stages.measure.measures import probe

PENALTIES, RANKS = [1.0, 1e-1, 1e-2, 1e-3, 1e-4], [2, 20, 100]
EQUAL, NEIGHBOURS = 1e-6, 10
normalize = partial(torch.nn.functional.normalize, dim=1)


def features(images: int, width: int, device: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Features float32 [N, width], and which of 1,000 clusters each image is of."""
    generator = torch.Generator(device).manual_seed(seed)
    made = partial(torch.randn, generator=generator, device=device)
    centres, first, second = made(1000, 32), made(32, 512) / 32**0.5, made(512, width) / 512**0.5
    cluster = torch.randint(1000, (images,), generator=generator, device=device)
    parts = [((0.7 * centres[part] + made(len(part), 32)) @ first).relu() @ second for part in cluster.split(2**16)]
    return torch.cat([part.relu_() for part in parts]), cluster


def fitted(values: torch.Tensor, labels: list[torch.Tensor], problems: list[Problem]) -> list[torch.Tensor]:
    """Our weights [D + 1, C] of each problem, for standardised features and a one."""
    axes = Axes.of(values, values.device)
    found = logistic.fit(axes.all(values, torch.arange(len(values))), labels, problems, axes.variance)
    scale = values.double().std(0, correction=0)[:, None]
    parts = found.split([problem.classes for problem in problems])
    return [torch.cat([scale * (axes.turn @ one[:, :-1].T), one[:, -1:].T]) for one in parts]


def scikit_learns(values: np.ndarray, labels: np.ndarray, problem: Problem, tol: float) -> torch.Tensor:
    from sklearn.linear_model import LogisticRegression

    two = problem.classes == 2  # for which it has one vector of weights, the difference of ours
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=(1 + two) / (problem.l2 * len(values)), tol=tol, max_iter=10_000)
        model.fit(values, labels)
    weights = torch.from_numpy(np.vstack([model.coef_.T, model.intercept_]).astype(np.float64))
    return torch.cat([-weights, weights], 1) / 2 if two else weights


def loss_of(values: torch.Tensor, labels: torch.Tensor, problem: Problem, weights: torch.Tensor) -> float:
    scores, penalty = values @ weights[:-1] + weights[-1], problem.l2 / 2 * weights[:-1].square().sum()
    return float(torch.nn.functional.cross_entropy(scores, labels) + penalty)


def regressions(images: int, turns: int, ranks: list[int], penalties: list[float]) -> dict:
    values, cluster = features(images, 256, "cpu")
    scaled = values.double()
    scaled = (scaled - scaled.mean(0)) / scaled.std(0, correction=0)
    labels = [cluster % classes for classes in ranks]
    problems = [Problem(i, classes, l2) for i, classes in enumerate(ranks) for l2 in penalties]
    theirs = []
    for problem, weights in zip(problems, fitted(values, labels, problems), strict=True):
        truth = labels[problem.labels]
        here = loss_of(scaled, truth, problem, weights)
        for tol in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
            work = partial(scikit_learns, scaled.numpy(), truth.numpy(), problem, tol)
            there = loss_of(scaled, truth, problem, work())
            if there <= here * (1 + EQUAL):
                break
        if here > there * (1 + EQUAL):
            raise SystemExit(f"{problem}: our loss is {here / there - 1:.0e} above scikit-learn's")
        theirs.append(work)
    sides = {"ours": lambda: fitted(values, labels, problems), "peer": lambda: [work() for work in theirs]}
    work = f"{len(problems)} regressions of {', '.join(map(str, ranks))} classes on {images:,} x 256"
    seconds = in_turns(sides, turns, clock_of("cpu"))
    return rated(f"{work} (per s; LogisticRegression)", seconds, len(problems), 1.0)


def searches(images: int, turns: int, device: str) -> Iterator[dict]:
    values, _ = features(images, 256, device)
    train, test = values.cpu().split([images - images // 10, images // 10])
    unit = normalize(train), normalize(test)

    def product() -> None:
        there = unit[0].to(device)
        for part in unit[1].to(device).split(512):
            (part @ there.T).topk(NEIGHBOURS)

    sides = {"ours": lambda: probe.neighbours(train, test, NEIGHBOURS, torch.device(device)), "peer": product}
    work = f"{NEIGHBOURS} of {len(train):,} neighbours, 256 wide, {device} (images/s; torch)"
    yield rated(work, in_turns(sides, 3 * turns, clock_of(device)), len(test), 1.0)


def rows(quick: bool, device: str, images: int = 4000, turns: int = 2) -> Iterator[dict]:
    images, turns = (300, 1) if quick else (images, turns)
    if device == "cuda":
        yield from searches(100 * images, turns, device)
        return
    yield regressions(images, turns, RANKS[: 1 if quick else None], PENALTIES[: 2 if quick else None])
    yield from searches(images, turns, device)
