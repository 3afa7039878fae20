"""Fixed features for world 3's Corollary 3, by scikit-learn: kernel ridge regression, and ridge on random features."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from sklearn.kernel_approximation import RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from granularity.base.seeds import seed_of
from granularity.stages.theory import engine
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.worlds.feature_emergence.data import SPLITS
from granularity.stages.theory.worlds.feature_emergence.learners import correct
from granularity.stages.theory.worlds.feature_emergence.settings import Settings

DEGREES = (2, 3, 5)  # of (<x, x'> + 1)^degree; parity of k = 5 patterns is a polynomial of degree 5
WIDTHS = (0.1, 1.0)  # gamma of exp(-gamma |x - x'|^2), where |x|^2 is 1 on average
PENALTIES = (0.1, 1.0, 10.0)
FOLDS = (1, 5)  # number of random features, as a multiple of the network's neurons


def _candidates(run: Trial) -> Iterator[tuple[str, float, Any]]:
    """Yield phase, penalty and model; in each phase the model that is best on validation data counts."""
    cfg: Settings = run.settings
    seed = seed_of(cfg.base, "theory", cfg.WORLD, "random features", run.seed) % 2**32
    for penalty in PENALTIES:
        for degree in DEGREES:
            options = {"kernel": "polynomial", "degree": degree, "gamma": 1.0, "coef0": 1.0}
            yield f"polynomial kernel of degree {degree}", penalty, KernelRidge(alpha=penalty, **options)
        for width in WIDTHS:
            yield "Gaussian kernel", penalty, KernelRidge(alpha=penalty, kernel="rbf", gamma=width)
            for fold in FOLDS:
                count = fold * 2 * cfg.m
                features = RBFSampler(gamma=width, n_components=count, random_state=seed)
                yield f"{count} random Fourier features", penalty, make_pipeline(features, Ridge(penalty))


def kernels(runs: Sequence[Trial], data: State) -> Rows:
    """Return a row per run and phase, with accuracies and the penalty; all models fit the training signs +-1."""
    rows = []
    for i, run in enumerate(runs):
        sets = {name: (data[f"{name} x"][i].double().cpu().numpy(), data[f"{name} y"][i : i + 1]) for name in SPLITS}
        best: dict[str, dict[str, float]] = {}
        for phase, penalty, model in _candidates(run):
            model.fit(sets["train"][0], sets["train"][1][0].cpu().numpy())
            measures = {"penalty": penalty}
            for name, (x, y) in sets.items():
                g = torch.from_numpy(model.predict(x)).to(y).view(1, -1, 1)
                measures[f"{name}_acc"] = correct(g, y, data["parity"]).item()
            if phase not in best or measures["val_acc"] > best[phase]["val_acc"]:
                best[phase] = measures
        rows += [engine.row(run, measures, run.settings.steps, phase) for phase, measures in best.items()]
    return rows
