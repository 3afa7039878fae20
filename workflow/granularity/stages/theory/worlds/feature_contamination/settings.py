"""World 4's settings: every parameter of the model, its default, its constraints, and the arms of each size."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, Natural, NonNegative, Positive
from granularity.stages.theory.statements import named, varied


class Settings(engine.Settings):
    """One arm: which task, which background, which network, which optimiser, how long."""

    WORLD: ClassVar[str] = "feature_contamination"
    FREE: ClassVar = frozenset({"lr", "momentum", "decay", "bg_low", "init_scale", "temperature"})

    # Classification: core times the class, hinge. Regression: core onto itself, squared error. Shells: core on spheres
    # of radius 1 and 2, logistic loss. Granularity: classification with subclasses and 2g labels, multi-class hinge.
    task: Literal["classification", "regression", "shells", "granularity"] = "classification"
    # phi; the leaky one has slope 0.1 below zero, GELU is the exact one
    activation: Literal["relu", "identity", "leaky_relu", "gelu", "sigmoid", "tanh"] = "relu"
    d: Count = 256  # dimensions of an input; the initial weights have variance 1/d
    d_core: Count = 32  # core features: they decide the label
    d_bg: Count = 32  # background features: independent of the label and of the core
    m: Count = 256  # hidden neurons
    bg_low: float = Field(0.0, ge=-1, le=1)  # training background is U[bg_low, bg_low + 1]; -0.5 is centred
    # Reduced: only the weights' projections on the d_core + d_bg features, exact in law for Gaussian weights and SGD.
    # Full: all d, with a random dictionary.
    coordinates: Literal["reduced", "full"] = "reduced"
    # Gaussian: weights N(0, 1/d), no biases. Framework: U[-1/sqrt(d), 1/sqrt(d)] and biases, as a framework's layer.
    init: Literal["gaussian", "framework"] = "gaussian"
    init_scale: Positive = 1.0  # factor on the initial hidden weights
    optimiser: Literal["sgd", "adamw"] = "sgd"  # coupled L2 for SGD, decoupled for AdamW
    lr: Positive = 0.5  # step size
    momentum: float = Field(0.0, ge=0, lt=1)  # of SGD (heavy ball)
    decay: NonNegative = 1e-3  # lambda, weight decay
    batch: Count = 256  # N, samples per step
    data: Literal["fresh", "fixed"] = "fresh"  # new samples each step, or one set with equal classes for all steps
    steps: Count = 1000  # updates
    project: bool = False  # drop the background part of the gradient (a control)
    target: Literal["z", "z_given_yz", "yz"] = "yz"  # regression: z from z, z from y z, y z from y z
    subclasses: Count = 4  # K, subclasses per class (task granularity, as all that follow)
    g: Count = 1  # labels per class: 1 is coarse, K is fine; divides K
    # Which of the g labels of its class a sample has: by its subclass, at random, or by which of g blocks of background
    # features is strongest.
    labels: Literal["class", "random", "background"] = "class"
    objective: Literal["hinge", "softmax"] = "hinge"  # multi-class hinge, or cross-entropy,
    temperature: Positive = 1.0  # whose loss is T CE(F / T): small T looks at the strongest rival only
    # Each label reads m/(2g) neurons of its own, or every label all of them, with random signs and the same norm.
    head: Literal["own", "shared"] = "own"
    train_head: bool = False  # train the readout too, in units of its size g/m
    neurons: Natural = 0  # number of neurons whose mean pre-activations are recorded (in every task)

    def rules(self) -> Iterator[tuple[bool, str]]:
        d0, m, g = self.d0, self.m, self.g
        yield d0 <= self.d, f"d: must be at least d_core + d_bg = {d0} orthonormal features, but is {self.d}"
        exact = self.coordinates == "full" or (self.init == "gaussian" and self.optimiser == "sgd")
        how = f"init '{self.init}' with optimiser '{self.optimiser}'"
        yield exact, f"coordinates: 'reduced' is exact for Gaussian weights and SGD only; set 'full' for {how}"
        heavy = self.optimiser != "adamw" or not self.momentum
        yield heavy, f"momentum: AdamW has its own betas, so momentum must be 0, not {self.momentum:g}"
        yield self.lr * self.decay < 1, f"decay: lr decay < 1 must hold, but it is {self.lr * self.decay:g}"
        even = self.data == "fresh" or self.batch % 2 == 0
        yield even, f"batch: a fixed set has equal classes, so it must be even, not {self.batch}"
        yield self.neurons <= m, f"neurons: there are m = {m}, so {self.neurons} cannot be recorded"
        if self.task != "granularity":
            yield self.objective == "hinge", "objective: can be set only for task 'granularity'"
            yield self.head == "own" and not self.train_head, "head: can be set only for task 'granularity'"
            coarse = g == 1 and self.labels == "class"
            yield coarse, "g: only task 'granularity' has labels finer than the two classes"
            return
        split = f"must divide half of d_core = {self.d_core}, but {self.subclasses} does not"
        yield self.d_core % (2 * self.subclasses) == 0, f"subclasses: {split}"
        yield self.subclasses % g == 0, f"g: must divide subclasses = {self.subclasses}, but {g} does not"
        yield m % (2 * g) == 0, f"g: the 2g = {2 * g} labels need equally many of the m = {m} neurons each"
        yield self.temperature == 1 or self.objective == "softmax", "temperature: needs objective 'softmax'"
        blocks = self.labels != "background" or self.d_bg % g == 0
        yield blocks, f"g: must divide d_bg = {self.d_bg} for labels of the background, but {g} does not"
        yield self.init == "gaussian", "init: task 'granularity' has Gaussian weights and no biases"

    @property
    def d0(self) -> int:
        """Features: core first, then background."""
        return self.d_core + self.d_bg

    @property
    def width(self) -> int:
        """Coordinates of a weight vector."""
        return self.d if self.coordinates == "full" else self.d0

    @property
    def outputs(self) -> int:
        return {"regression": self.d_core, "granularity": 2 * self.g}.get(self.task, 1)

    @property
    def trained(self) -> tuple[str, ...]:
        """Parameters that move: hidden weights w, biases b; the readout a, c is frozen in classification."""
        readout = self.task in ("regression", "shells") or self.train_head
        biases = self.init == "framework"
        return ("w", *("b",) * biases, *("a",) * readout, *("c",) * (readout and biases))

    def conditions(self) -> dict[str, bool]:
        """What Theorems 4.1 to 4.4 suppose (section 4), every constant taken as 1, ~O and Theta as bounds."""
        if self.task != "classification":
            return {}
        d0, m = self.d0, self.m
        plain = self.optimiser == "sgd" and self.momentum == 0 and not self.project
        return {
            "phi is ReLU, or for Theorem 4.4 the identity": self.activation in ("relu", "identity"),
            "weights N(0, I/d), no biases": self.init == "gaussian" and self.init_scale == 1,
            "SGD on the whole gradient, without momentum": plain,
            "fresh samples at each step": self.data == "fresh",
            "training background in [0, 1]": self.bg_low == 0,
            "d >= d0^2.01": self.d >= d0**2.01,
            "d_bg <= d0/ln d0": self.d_bg <= d0 / math.log(d0),
            "d0 <= m <= d": d0 <= m <= self.d,
            "lambda <= d0/m^1.01": self.decay <= d0 / m**1.01,
        }

    def shape(self) -> tuple:
        return (*super().shape(), self.momentum > 0)

    def work(self) -> float:
        samples = self.batch * self.m * (2 * self.d0 + 3 * self.outputs)
        return samples + (2.0 * self.m * self.d0 * self.d if self.coordinates == "full" else 0)


# ---------------------------------------------------------------- arms: what is trained at each size

RELU, LINEAR = "ReLU", "identity"
CENTRED, PROJECTED = "ReLU, centred background", "ReLU, core gradient only"
QUARTER, LEAKY, AGAIN = "ReLU, background mean 0.25", "leaky ReLU", "ReLU, again"
FULL, SLOW, LONG = "ReLU, all 256 coordinates", "ReLU, lr 0.1", "ReLU, lr 0.1, long"
LETTER, MOMENTUM, SCRIPT = "lr 0.001, N = 1000", "lr 0.001, momentum 0.9, N = 1000", "authors' script"
WIDE = {48: "ReLU, 48 background", 64: "ReLU, 64 background", 96: "ReLU, 96 background"}
WIDE_LINEAR = {n: name.replace("ReLU", LINEAR) for n, name in WIDE.items()}
ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "sigmoid": "sigmoid", "tanh": "tanh"}
SHELLS = {key: f"shells, {name}" for key, name in ACTIVATIONS.items()}
SHELLS_CENTRED = {key: f"shells, {ACTIVATIONS[key]}, centred background" for key in ("relu", "gelu")}
SHELLS_FIXED = {key: f"shells, {name}, 1000 fixed samples" for key, name in ACTIVATIONS.items()}
TARGETS = {"z": "z from z", "z_given_yz": "z from yz", "yz": "yz from yz"}
REGRESSION = {
    (target, phi): f"regression {words}, {'ReLU' if phi == 'relu' else LINEAR}"
    for target, words in TARGETS.items()
    for phi in ("relu", "identity")
}
PACED = {key: f"{name}, lr 0.001" for key, name in REGRESSION.items()}
PRINTED = {phi: f"{PACED['yz', phi]}, no momentum" for phi in ("relu", "identity")}
SMALL = {phi: f"regression yz from yz, {name}, small start" for phi, name in (("relu", RELU), (LINEAR, LINEAR))}
LABELS = {1: "2 labels (coarse)", 2: "4 labels", 4: "8 labels (fine)"}
LONGER = {g: f"{name}, decay 0.0001, 6000 steps" for g, name in LABELS.items() if g != 2}
LABELS_LINEAR = {g: f"{name}, identity" for g, name in LABELS.items() if g != 2}
SOFTMAX = {g: f"{name}, cross-entropy" for g, name in LABELS.items()}
RANDOM_SOFTMAX = "8 labels, random IDs in classes, cross-entropy"
RANDOM, OF_BACKGROUND = "8 labels, random IDs in classes", "8 labels, by background"

# What the baselines rest on, one key varied at a time: of the paper's network, and of the crossing by labels per class.
VARIED, VARIED_LABELS = "ReLU, {} = {:g}", {1: "2 labels, {} = {:g}", 4: "8 labels, {} = {:g}"}
SWEPT = {"init_scale": (0.1, 0.3, 3.0), "m": (64,), "lr": (0.05, 2.0), "steps": (200,)}
SWEPT_LABELS = {"init_scale": (0.1, 3.0), "m": (64,), "lr": (0.1,)}
MORE, MORE_LABELS = {"m": (1024,), "steps": (5000,)}, {"m": (512,), "lr": (1.0,)}  # those of the size `paper` alone


def _arms(paper: bool) -> list[dict[str, Any]]:
    five, few, many = {"seeds": 5}, {"seeds": 5 if paper else 3}, {"seeds": 10 if paper else 3}
    arms: list[dict[str, Any]] = [
        {"name": RELU, **five, "neurons": 10},
        {"name": LINEAR, **five, "activation": "identity"},
        {"name": CENTRED, **five, "bg_low": -0.5},
        {"name": PROJECTED, **five, "project": True},
        {"name": QUARTER, **five, "bg_low": -0.25},
        {"name": LEAKY, **five, "activation": "leaky_relu"},
        {"name": AGAIN, "seeds": 1, "neurons": 10},
        {"name": FULL, **five, "coordinates": "full"},
        {"name": SLOW, **five, "lr": 0.1, "steps": 5000},
    ]
    for n in WIDE:
        arms += [{"name": WIDE[n], **five, "d_bg": n}]
        arms += [{"name": WIDE_LINEAR[n], **five, "d_bg": n, "activation": "identity"}]
    letter = {"lr": 1e-3, "batch": 1000}
    script = {**letter, "momentum": 0.9, "seeds": 5 if paper else 1}
    default = {"coordinates": "full", "init": "framework"}
    arms += [
        {"name": LETTER, **letter, "steps": 100_000 if paper else 20_000, "seeds": 3 if paper else 1},
        {"name": SCRIPT, **script, **default, "data": "fixed", "steps": 20_000 if paper else 3000},
    ]
    if paper:
        arms.append({"name": MOMENTUM, **script, "steps": 20_000})
        arms.append({"name": LONG, **five, "lr": 0.1, "steps": 20_000, "batch": 1000})
    shells = {"task": "shells", **default, **letter, "optimiser": "adamw", "steps": 2000, **few}
    fixed = {"data": "fixed", "steps": 20_000 if paper else 2000, "seeds": 3 if paper else 1}
    arms += named(SHELLS, "activation", **shells) + named(SHELLS_CENTRED, "activation", **shells, bg_low=-0.5)
    arms += named(SHELLS_FIXED, "activation", **shells | fixed)
    regression = {"task": "regression", "lr": 0.01, "momentum": 0.9, "batch": 1000, "steps": 2000, **few}
    for (target, phi), name in REGRESSION.items():
        arms.append({"name": name, **regression, "target": target, "activation": phi})
    paced = regression | {"lr": 1e-3, "seeds": 1, "steps": 20_000 if paper else 2000}  # 20,000 as the authors' script
    for (target, phi), name in PACED.items():
        arms.append({"name": name, **paced, "target": target, "activation": phi})
    arms += named(PRINTED if paper else {}, "activation", **paced | {"momentum": 0.0})
    arms += named(SMALL if paper else {}, "activation", **regression, init_scale=0.1)
    labels = {"task": "granularity", "steps": 3000, **five}
    arms += named(LABELS, "g", **labels) + named(LONGER, "g", **labels | few | {"decay": 1e-4, "steps": 6000})
    arms += named(LABELS_LINEAR, "g", **labels, activation="identity")
    arms.append({"name": RANDOM, **labels, "g": 4, "labels": "random"})
    arms.append({"name": OF_BACKGROUND, **labels, "g": 4, "labels": "background"})
    arms += named(SOFTMAX, "g", **labels, objective="softmax")
    arms.append({"name": RANDOM_SOFTMAX, **labels, "g": 4, "labels": "random", "objective": "softmax"})
    arms += varied(VARIED, SWEPT, MORE if paper else {}, **many)
    for g, words in VARIED_LABELS.items():
        arms += varied(words, SWEPT_LABELS, MORE_LABELS if paper else {}, **labels | many, g=g)
    return arms


ARMS = {"quick": _arms(False), "paper": _arms(True)}
SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}
