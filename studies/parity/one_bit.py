"""Study: one more bit in the labels makes parity learnable (docs/findings/parity.md). Extends the world `stairs`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
import stairs
import torch
from staircase import RESAMPLES

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import figures as draw
from granularity.stages.theory.engine import Rows, Trial

EXTENDS, NAME = "world", "one_bit"
SAID = strict_yaml.read(Path(__file__).with_suffix(".yaml"))
BITS = {"none": "parity alone", "majority": "majority", "random": "random balanced", "one": "one coordinate"}


class Settings(stairs.Online):
    """A number of relevant inputs, and the bit that labels tell besides their parity."""

    WORLD: ClassVar[str] = NAME
    FREE: ClassVar = frozenset({"rate", "start"})

    bit: Literal[tuple(BITS)] = "majority"


SIZES = {
    size: [
        Settings(name=f"{BITS[bit]}, k = {k}", bit=bit, k=k, seeds=seeds, **arms["setting"])
        for bit, seeds in arms["seeds"].items()
        for k in arms["k"]
    ]
    for size, arms in SAID["arms"].items()
}


def chance(run: Trial) -> np.ndarray:
    """Return (2^k, 2 or 4), one-hot: the label of each pattern, 2 bit + parity."""
    k = run.settings.k
    patterns = np.arange(2**k)[:, None] >> np.arange(k) & 1
    ones = patterns.sum(1)
    bits = {"none": 0 * ones, "majority": (2 * ones > k).astype(int), "one": patterns[:, 0]}
    if run.settings.bit == "random":
        bits["random"] = torch.randperm(2**k, generator=run.generator(f"random bit of {k}")).numpy() % 2
    label = 2 * bits[run.settings.bit] + ones % 2
    return np.eye(label.max() + 1)[label]


def correlation(chance: np.ndarray) -> float:
    """Return the smallest R(v | nothing) of a relevant coordinate."""
    x = 2 * (np.arange(len(chance))[:, None] >> np.arange(int(np.log2(len(chance)))) & 1) - 1
    return float(np.sqrt(np.square(x.T @ chance / len(chance)).sum(1)).min())


def simulate(runs: Sequence[Trial], device: torch.device) -> Rows:
    """Train a group of runs; each row has the smallest R of a coordinate, given nothing."""
    of_run = [chance(run) for run in runs]
    correlations = {(run.settings.name, run.seed): correlation(table) for run, table in zip(runs, of_run, strict=True)}
    rows = stairs.learn(runs, np.stack(of_run), device)
    return [row | {"correlation": correlations[row["setting"], row["seed"]]} for row in rows]


# ---------------------------------------------------------------- what is judged


def steps(table: pd.DataFrame, bit: str, event: str = "end") -> pd.DataFrame:
    """Return steps until an event (rows: k; columns: seeds), censored at the last step."""
    rows = table[table["bit"] == bit]
    k = rows.drop_duplicates("setting").set_index("setting")["k"]
    times = stairs.times(rows, event).rename("steps").reset_index()
    return times.assign(k=times["setting"].map(k)).pivot(index="k", columns="seed", values="steps")


def slope(found: pd.DataFrame, drawn: np.ndarray, power: bool = False) -> np.ndarray:
    """Return (resamples,) growth of log2 mean steps per relevant input, for seeds `drawn` (resamples, seeds); `power`:
    per log2 of k, the exponent of a power law."""
    k = found.index.to_numpy(dtype=float)
    k = np.log2(k) if power else k
    mean = np.log2(found.to_numpy()[:, drawn].mean(2))
    return ((k - k.mean()) @ mean) / np.square(k - k.mean()).sum()


def growth(table: pd.DataFrame, event: str) -> dict[str, tuple[float, float, float]]:
    """Return growth per relevant input and its 95 % interval over seeds, by bit and for `random` minus `majority`."""
    tables = {bit: steps(table, bit, event) for bit in ("majority", "random")}
    seeds = tables["majority"].shape[1]
    all_seeds, drawn = np.arange(seeds)[None], np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    slopes = {bit: (slope(one, all_seeds)[0], slope(one, drawn)) for bit, one in tables.items()}
    slopes["difference"] = tuple(a - b for a, b in zip(slopes["random"], slopes["majority"], strict=True))
    return {name: (float(one), *np.quantile(many, (0.025, 0.975)).tolist()) for name, (one, many) in slopes.items()}


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the preregistered predictions."""
    measured: dict[str, Sequence[float]] = {name: [] for name in SAID["predictions"]}
    if set(table["bit"]) == set(BITS):
        for name, event in (("parity", "end"), ("coordinates", "seen")):
            result = growth(table, event)
            measured[f"growth, {name}"] = [result["difference"][1]]
            measured |= {f"growth, {name}, {bit}": [result[bit][0]] for bit in result}
        of_bit = {bit: steps(table, bit) for bit in BITS}
        learnt = {bit: (result < table["steps"].max()).astype(float) for bit, result in of_bit.items()}
        for bit in ("none", "one"):
            measured[f"learnt, {bit}"] = [float(learnt[bit].iloc[1:].to_numpy().mean())]
            measured[f"learnt, {bit}, least k"] = [float(learnt[bit].iloc[0].mean())]
        measured["learnt, majority"] = learnt["majority"].iloc[-1].tolist()
        measured["learnt, random"] = [float(learnt["random"].iloc[-1].mean())]
        all_seeds = np.arange(of_bit["majority"].shape[1])[None]
        measured["power, majority"] = [float(slope(of_bit["majority"], all_seeds, power=True)[0])]
    seeds = table.groupby("bit")["seed"].nunique().to_dict()
    counts = {name: seeds.get(name.split(", ")[1], seeds.get("majority", 0)) for name in measured}
    return preregistered.claims(SAID, measured, counts)


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw steps until parity and until all coordinates are learnt, and R of coordinates, against k."""

    def panel(title: str, ylabel: str, values_of: Callable[[str], pd.DataFrame]) -> Callable:
        points = [draw.Points(dict(values_of(bit).T.items()), words) for bit, words in BITS.items()]
        return draw.panel(*points, log="y", dodge=0.15, xlabel="relevant inputs k", ylabel=ylabel, title=title)

    def shown(bit: str) -> pd.DataFrame:
        rows = table[(table["bit"] == bit) & table["event"].str.contains("end|diverged")]
        return rows.pivot(index="k", columns="seed", values="correlation").clip(lower=1e-3)

    panels = [
        panel("until parity is learnt", f"steps (at most {table['steps'].max()})", partial(steps, table)),
        panel("until all coordinates are learnt", "steps", partial(steps, table, event="seen")),
        panel("what labels show of coordinates", "least R (0.001: none)", shown),
    ]
    draw.draw(folder, NAME, *panels, width=10, legend=4)
