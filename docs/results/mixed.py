"""Whom the class helps, if images are judged by networks of both kinds: the study cifar10_hardness_mixed."""

import functools

import numpy as np
import pandas as pd
from scipy import optimize, special, stats
from tables import SCORED, compared, lines, predictions, read, scored, signed

NAME, JUDGES = "cifar10_hardness_mixed", 5  # of each kind
BINS = {"0 of 10": (0, 0), "1 to 3 of 10": (1, 3), "4 to 6 of 10": (4, 6), "7 to 10 of 10": (7, 10)}
NODES = np.linspace(-5, 5, 81)  # of both parts of an image's difficulty
WEIGHTS = stats.norm.pdf(NODES) / stats.norm.pdf(NODES).sum()


def errors() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Errors in percent by bin and draw of the target and the class, and their differences, by bin."""
    table = read(NAME)
    number = table["target_judges"] + table["class_judges"]
    labels = pd.Series(pd.cut(number, [-1, *(high for _, high in BINS.values())], labels=[*BINS]), name="hardness")
    found = table.groupby([labels, "draw"], observed=True)[["images", "target_wrong", "class_wrong"]].sum()
    for arm in ("target", "class"):
        found[arm] = 100 * found[f"{arm}_wrong"] / found["images"]
    return found, compared({name: (found.loc[name, "class"], found.loc[name, "target"]) for name in BINS})


def chances(level: np.ndarray, mean: float, slope: float) -> tuple[np.ndarray, np.ndarray]:
    """Of networks of one kind, by difficulty: the chance to be wrong, and that of each number of wrong judges."""
    p = special.ndtr(mean + slope * level).clip(1e-12, 1 - 1e-12)
    return p, stats.binom.pmf(np.arange(JUDGES + 1), JUDGES, p[..., None])


def cells(at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of images by numbers of wrong judges of both kinds, and in each the errors of both kinds of networks.

    A network is wrong with probability Phi(a + b z). Difficulties z of both kinds are normal with a correlation r, and
    have one slope b: the class makes all images easier by one amount. `at`: a of both kinds, b, and atanh(r).
    """
    target, own, slope, r = *at[:3], np.tanh(at[3])
    p, judged = chances(NODES, target, slope)
    q, others = chances(r * NODES[:, None] + np.sqrt(1 - r**2) * NODES, own, slope)
    weighed = WEIGHTS[:, None] * judged
    share = weighed.T @ np.einsum("e,zel->zl", WEIGHTS, others)
    wrong = (weighed * p[:, None]).T @ np.einsum("e,zel->zl", WEIGHTS, others)
    other_wrong = weighed.T @ np.einsum("e,zel->zl", WEIGHTS, others * q[..., None])
    return share, wrong / share, other_wrong / share


@functools.cache
def alike() -> tuple[dict[str, float], float]:
    """Differences by bin if the class helps all images alike, and the correlation of difficulties, both fitted to the
    judges' numbers alone (maximum likelihood)."""
    counts = read(NAME).groupby(["target_judges", "class_judges"])["images"].sum().unstack(fill_value=0)
    counts = counts.reindex(index=range(JUDGES + 1), columns=range(JUDGES + 1), fill_value=0).to_numpy()
    start = np.array([-4.0, -4.5, 3.0, 2.0])
    found = optimize.minimize(lambda at: -(counts * np.log(cells(at)[0])).sum(), start, method="Nelder-Mead")
    share, target, own = cells(found.x)
    number = np.add.outer(np.arange(JUDGES + 1), np.arange(JUDGES + 1))
    bins = {name: (number >= low) & (number <= high) for name, (low, high) in BINS.items()}
    differences = {name: 100 * ((own - target) * share)[one].sum() / share[one].sum() for name, one in bins.items()}
    return differences, float(np.tanh(found.x[3]))


def hardness() -> str:
    """What was predicted, what came out, and what one saving for all images gives."""
    said, (table, found), (null, _) = predictions(NAME), errors(), alike()
    gained = (table["target_wrong"] - table["class_wrong"]).groupby(level=0, observed=True).sum()
    rows = []
    for name, row in found.iterrows():
        images = f"{table.loc[name, 'images'].mean():,.0f}"
        share = f"{100 * gained[name] / gained.sum():.0f} %".replace("-", "−")
        rows.append(
            [
                name,
                images,
                f"{table.loc[name, 'target'].mean():.1f}",
                share,
                *scored(row, said[name]),
                signed(null[name]),
            ]
        )
    return lines(["wrong", "images", "error, target", "share of the gain", *SCORED, "alike"], rows)
