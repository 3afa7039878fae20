"""Study: does learning parity take longer if coordinates show only one after another (docs/findings/parity.md)?

A label holds the parity of five fair coins and a noisy bit z of them, E[z | x] = c (a sum of products of coordinates),
x in {-1, 1}^5; with two such bits, a label names one and holds its value. Networks see fresh samples at every step.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from staircase import EMERGED, RESAMPLES, ZERO
from torch import Tensor

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import engine, nets
from granularity.stages.theory import figures as draw
from granularity.stages.theory.engine import Count, Natural, Positive, Rows, State, Trial
from granularity.stages.theory.worlds.feature_emergence import spaces

EXTENDS, NAME = "world", "stairs"
SAID = strict_yaml.read(Path(__file__).with_suffix(".yaml"))
Product = tuple[Natural, ...]  # of coordinates


class Online(engine.Settings):
    """A network with one hidden layer, on fresh samples of d fair coins, of which the first k are relevant."""

    d: Count = 100  # inputs
    k: Count = 5  # relevant ones
    m: Count = 100  # hidden neurons
    batch: Count = 250  # fresh samples per step
    steps: Count = 2000  # most weight updates: a run ends when parity has emerged
    rate: Positive = 0.3  # step size of SGD
    start: Positive = 0.1  # size of the initial weights: s.d. start / sqrt(fan-in)
    test: Count = 1000  # test samples
    every: Count = 10  # steps between tests

    def rules(self) -> Iterator[tuple[bool, str]]:
        yield self.k <= self.d, f"k: must be at most d = {self.d} inputs, but is {self.k}"

    def work(self) -> float:
        return 3.0 * self.batch * self.d * self.m


def learn(runs: Sequence[Trial], chance: np.ndarray, device: torch.device) -> Rows:
    """Train runs on labels with probabilities `chance` (B, 2^k, C) until parity emerges; odd labels have odd parity.

    ReLU, cross-entropy, plain SGD. A run's last row is at the first test with `EMERGED` per cent right on parity, by
    the summed probabilities of its labels; event `seen` is at the first test where every relevant input has larger
    weights (mean square) than any other.
    """
    cfg: Online = runs[0].settings
    bits = 2 ** torch.arange(cfg.k, device=device)
    edges = torch.tensor(chance, dtype=torch.float32, device=device).cumsum(2)[:, :, :-1]
    of_run = [(run.settings.base, run.seed) for run in runs]  # arms with equal seeds share their samples
    streams = {key: run.generator("samples", device) for key, run in zip(of_run, runs, strict=True)}

    def sample(count: int) -> tuple[Tensor, Tensor]:
        drawn = {
            key: (
                torch.randint(2, (count, cfg.d), generator=stream, device=device),
                torch.rand(count, 1, generator=stream, device=device),
            )
            for key, stream in streams.items()
        }
        x, level = (engine.joined([drawn[key][i] for key in of_run]) for i in (0, 1))
        above = engine.picked(edges, (x[:, :, : cfg.k] * bits).sum(2))
        return 2.0 * x - 1, (level > above).sum(2)

    def initial(run: Trial) -> State:
        normal = partial(torch.randn, generator=run.generator("init", device), device=device)
        w, a = normal(cfg.m, cfg.d) / cfg.d**0.5, normal(chance.shape[2], cfg.m) / cfg.m**0.5
        return {"w": run.settings.start * w, "b": 0 * w[:, 0], "a": run.settings.start * a, "c": 0 * a[:, 0]}

    def outputs(state: State, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return nets.two_layer(x, state["w"], state["a"], nets.RELU, state["b"], state["c"])

    def direction(state: State, t: int) -> tuple[Tensor, State]:
        x, y = sample(cfg.batch)
        f, h, u = outputs(state, x)
        loss, residual = nets.softmax_residual(f, y)
        return loss, nets.two_layer_gradient(x, nets.RELU.slope(u), h, state["a"], residual)

    def step(state: State, t: int) -> tuple[State, State]:
        if t % cfg.every == 0:
            odd = torch.softmax(outputs(state, x_test)[0], 2)[:, :, 1::2].sum(2) > 0.5
            measures["test_acc"] = 100 * (odd == (y_test % 2 == 1)).float().mean(1)
            size = state["w"].square().mean(1)
            measures["learnt"] = measures["test_acc"] >= EMERGED
            measures["seen"] = size[:, : cfg.k].amin(1) > size[:, cfg.k :].amax(1)
        new, info = update(state, t)
        return new, info | measures

    (x_test, y_test), measures = sample(cfg.test), {}
    update = engine.sgd(direction, engine.column(runs, "rate", device))
    state = engine.collated(map(initial, runs))
    return engine.train(runs, state, step, lambda *_: {}, steps=cfg.steps, stop_event="learnt")[0]


def times(table: pd.DataFrame, event: str = "end") -> pd.Series:
    """Return the step of an event, by setting and seed; all steps for runs without it, or that diverged."""
    rows = table[table["event"].str.contains(event)].groupby(["setting", "seed"])["step"].first()
    most = table.groupby(["setting", "seed"])["steps"].first()
    return rows.reindex(most.index).fillna(most).astype(float)


# ---------------------------------------------------------------- label spaces


class Settings(Online):
    """A label space of a triple, and how it is trained."""

    WORLD: ClassVar[str] = NAME
    FREE: ClassVar = frozenset({"condition", "triple", "stairs", "products", "signal", "rate", "start"})

    condition: str = ""  # how it is trained, in words
    triple: Natural = 0  # label spaces of one triple have equal R
    stairs: Natural = 0
    products: tuple[tuple[Product, ...], ...] = (((0,), (1,), (2,), (3,), (4,)),)  # for each bit
    signal: Positive = 0.08  # R of every product

    def rules(self) -> Iterator[tuple[bool, str]]:
        yield from super().rules()
        yield self.k == spaces.K, f"k: label spaces have {spaces.K} coordinates, not {self.k}"
        most = max(map(len, self.products)) * self.strength
        yield (
            most <= 1,
            "signal: probabilities leave the range 0 to 1, because the products of a bit "
            f"have a total weight of {most:g}",
        )

    @property
    def strength(self) -> float:
        return 2 * self.signal * len(self.products)

    def shape(self) -> tuple:
        return len(self.products), *super().shape()


def chance(one: Settings) -> np.ndarray:
    """Return each label's probability for each pattern, (32, 4 bits); label 4 i + 2 z + parity tells z of bit i."""
    x, table = 2 * spaces.PATTERNS - 1, np.zeros((2**spaces.K, 4 * len(one.products)))
    for i, products in enumerate(one.products):
        mean = one.strength * sum(x[:, list(product)].prod(1) for product in products)
        for z in (0, 1):
            table[np.arange(len(x)), 4 * i + 2 * z + spaces.PARITY] = (1 + (2 * z - 1) * mean) / 2 / len(one.products)
    return table


def levels(chance: np.ndarray) -> list[int]:
    """Return how many coordinates show at first, how many given all of these, and so on; stairs are one fewer."""
    known: list[int] = []
    counts = []
    while new := [v for v in range(spaces.K) if v not in known and spaces.signal(chance, v, known) > ZERO]:
        known, counts = known + new, [*counts, len(new)]
    return counts


def staircase(chance: np.ndarray) -> float:
    """Return the smallest R on the way."""
    return min(spaces.climb(lambda known: [spaces.signal(chance, v, known) for v in range(spaces.K)])[1])


# Coordinates shown first, after these, and after those. Other shapes are impossible: with the parity, labels also show
# the product of all other coordinates, which is a shorter way.
SHAPES = ((2, 2, 1), (1, 1, 3), (1, 2, 2), (1, 3, 1))


def matched(number: int, seed: int, signals: Sequence[float]) -> list[list[Settings]]:
    """Return triples of label spaces with 0, 1 and 2 stairs, of equal R and number of labels.

    A coordinate that is not shown at first is shown in a product with one of the level before. With 1 and 2 stairs
    equally many are shown at first. All triples are distinct.
    """
    draw, triples = np.random.default_rng(seed), {}
    while len(triples) < number:
        first, *later = SHAPES[draw.integers(len(SHAPES))]
        bits, signal = int(draw.integers(1, 3)), float(draw.choice(signals))
        split = draw.permutation(np.arange(spaces.K) % bits)
        triple = []
        for stairs, sizes in enumerate(((spaces.K,), (first, sum(later)), (first, *later))):
            ends = np.cumsum((0, *sizes))
            level = np.repeat(np.arange(len(sizes)), sizes)
            pairs = [(v,) if i == 0 else (int(draw.integers(*ends[i - 1 : i + 1])), v) for v, i in enumerate(level)]
            products = tuple(tuple(pairs[v] for v in np.flatnonzero(split == bit)) for bit in range(bits))
            triple.append(Settings(triple=len(triples), stairs=stairs, products=products, signal=signal))
            if levels(chance(triple[-1])) != list(sizes):
                break
        else:
            triples.setdefault((signal, *(space.products for space in triple)), triple)
    return list(triples.values())


def _arms(triples: dict, seeds: int, setting: dict, conditions: dict) -> list[Settings]:
    drawn = matched(**triples)
    return [
        arm.model_copy(update={**setting, **fields, "condition": words, "seeds": seeds, "name": f"{words}, {name}"})
        for words, fields in conditions.items()
        for triple in drawn
        for arm in triple
        for name in (f"triple {arm.triple}, {arm.stairs} stairs",)
    ]


SIZES = {size: _arms(**arms) for size, arms in SAID["arms"].items()}


def simulate(runs: Sequence[Trial], device: torch.device) -> Rows:
    """Train a group of runs; each row has the smallest R on the way of its label space."""
    of_run = [chance(run.settings) for run in runs]
    staircases = {run.settings.name: staircase(table) for run, table in zip(runs, of_run, strict=True)}
    return [row | {"staircase": staircases[row["setting"]]} for row in learn(runs, np.stack(of_run), device)]


# ---------------------------------------------------------------- what is judged

EVENTS = {"parity": "end", "all coordinates": "seen"}  # what is learnt, and its event


def restricted(table: pd.DataFrame, condition: str, what: str) -> pd.DataFrame:
    """Return restricted mean steps of each label space (rows: triples; columns: stairs); `rest`: after `seen`."""
    rows = table[table["condition"] == condition]
    steps = times(rows) - times(rows, "seen") if what == "rest" else times(rows, EVENTS[what])
    keys = rows.drop_duplicates("setting").set_index("setting")[["triple", "stairs"]]
    mean = keys.join(steps.groupby("setting").mean().rename("steps"))
    return mean.pivot(index="triple", columns="stairs", values="steps")


def ratio(found: pd.DataFrame, more: int, fewer: int) -> dict[str, float]:
    """Return steps with `more` over `fewer` stairs: geometric mean over triples, 95 % bootstrap interval."""
    log = np.log(found[more] / found[fewer]).to_numpy()
    drawn = np.random.default_rng(0).choice(log, (RESAMPLES, len(log))).mean(1)
    ends = np.exp([log.mean(), *np.quantile(drawn, (0.025, 0.975))]).tolist()
    return dict(zip(("mean", "lower end", "upper end"), ends, strict=True))


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the preregistered predictions; ids name the comparison: "parity, small start, 2 / 0: lower end"."""
    measured: dict[str, list[float]] = {name: [] for name in SAID["predictions"]}
    for name in measured if len(table) else ():
        if name == "censored":
            ends = table[table["event"].str.contains("end|diverged")]
            measured[name] = [float((~ends["outcome"].str.startswith("stopped")).mean())]
        else:
            what, condition, more, fewer, end = re.split(", | / |: ", name)
            measured[name] = [ratio(restricted(table, condition, what), int(more), int(fewer))[end]]
    return preregistered.claims(SAID, measured, dict.fromkeys(measured, int(table["seed"].nunique())))


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw steps against stairs, relative to none: until parity, until all coordinates, from these to parity."""

    def points(condition: str, what: str) -> draw.Points:
        steps = restricted(table, condition, what)
        return draw.Points({n: steps[n] / steps[0] for n in steps}, condition, median=True)

    words = {"parity": "until parity is learnt", "all coordinates": "until all coordinates are"}
    words |= {"rest": "from these to parity"}
    panels = [
        draw.panel(
            *(points(condition, what) for condition in table["condition"].unique()),
            **{"log": "y", "ticks": (0, 1, 2), "dodge": 0.08, "xlabel": "stairs", "title": title},
            **{"ylabel": "steps / those without stairs", "yticks": {n: f"{n:g}" for n in (0.5, 1, 2, 5)}},
        )
        for what, title in words.items()
    ]
    note = "restricted mean steps of ten networks; medians over triples, bars: quartiles"
    draw.draw(folder, NAME, *panels, width=10, legend=3, note=note)
