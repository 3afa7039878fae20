"""World 4's settings: every parameter of the model, its default and its constraints."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, NonNegative, Positive

SCALARS = ("lr", "momentum", "decay", "bg_low", "init_scale", "temperature")  # may differ between runs of one program


class Settings(engine.Settings):
    """One arm: which task, which background, which network, which optimiser, how long."""

    WORLD: ClassVar[str] = "feature_contamination"

    task: Literal["classification", "regression", "shells", "granularity"] = Field(
        "classification",
        description="`classification`: core times the class, hinge. `regression`: core onto itself, squared "
        "error. `shells`: core on spheres of radius 1 and 2, logistic loss. `granularity`: `classification` "
        "with subclasses and 2g labels, multi-class hinge.",
    )
    activation: Literal["relu", "identity", "leaky_relu", "gelu", "sigmoid", "tanh"] = Field(
        "relu", description="phi; the leaky one has slope 0.1 below zero, GELU is the exact one."
    )
    d: Count = Field(256, description="Dimensions of an input; the initial weights have variance 1/d.")
    d_core: Count = Field(32, description="Core features: they decide the label.")
    d_bg: Count = Field(32, description="Background features: independent of the label and of the core.")
    m: Count = Field(256, description="Hidden neurons.")
    bg_low: float = Field(
        0.0, ge=-1, le=1, description="Training background is U[bg_low, bg_low + 1]; -0.5 is centred."
    )
    coordinates: Literal["reduced", "full"] = Field(
        "reduced",
        description="`reduced`: only the weights' projections on the d_core + d_bg features, exact in law "
        "for Gaussian weights and SGD. `full`: all d, with a random dictionary.",
    )
    init: Literal["gaussian", "framework"] = Field(
        "gaussian",
        description="`gaussian`: weights N(0, 1/d), no biases. `framework`: U[-1/sqrt(d), 1/sqrt(d)] and "
        "biases, as a framework's default layer has them.",
    )
    init_scale: Positive = Field(1.0, description="Factor on the initial hidden weights.")
    optimiser: Literal["sgd", "adamw"] = Field("sgd", description="Coupled L2 for SGD, decoupled for AdamW.")
    lr: Positive = Field(0.5, description="Step size.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of SGD (heavy ball).")
    decay: NonNegative = Field(1e-3, description="lambda, weight decay.")
    batch: Count = Field(256, description="N, samples per step.")
    data: Literal["fresh", "fixed"] = Field(
        "fresh", description="New samples each step, or one set with equal classes for all steps."
    )
    steps: Count = Field(1000, description="Updates.")
    project: bool = Field(False, description="Drop the background part of the gradient (a control).")
    target: Literal["z", "z_given_yz", "yz"] = Field(
        "yz",
        description="Regression. `z`: input core z, target z. `z_given_yz`: input y z, target z. `yz`: y z twice.",
    )
    subclasses: Count = Field(4, description="K, subclasses per class (task granularity).")
    g: Count = Field(1, description="Labels per class (task granularity): 1 is coarse, K is fine. Divides K.")
    labels: Literal["class", "random", "background"] = Field(
        "class",
        description="Which of the g labels of its class a sample has: by its subclass, at random, or by "
        "which of g blocks of background features is strongest.",
    )
    objective: Literal["hinge", "softmax"] = Field(
        "hinge", description="Multi-class hinge, or cross-entropy (task granularity)."
    )
    temperature: Positive = Field(
        1.0, description="T of the cross-entropy, whose loss is T CE(F / T): small T looks at the strongest rival only."
    )
    head: Literal["own", "shared"] = Field(
        "own",
        description="Task granularity. `own`: each label reads m/(2g) neurons of its own. `shared`: every label reads "
        "all of them, with random signs and the same norm.",
    )
    train_head: bool = Field(False, description="Task granularity: train the readout too, in units of its size g/m.")
    neurons: int = Field(0, ge=0, description="Number of neurons whose mean pre-activations are recorded.")

    @model_validator(mode="after")
    def _consistent(self):
        if self.d_core + self.d_bg > self.d:
            raise ValueError(
                f"d: must be at least d_core + d_bg = {self.d_core + self.d_bg} orthonormal features, but is {self.d}"
            )
        if self.coordinates == "reduced" and (self.init != "gaussian" or self.optimiser != "sgd"):
            raise ValueError(
                "coordinates: 'reduced' is exact for Gaussian weights and SGD only; set 'full' for "
                f"init '{self.init}' with optimiser '{self.optimiser}'"
            )
        if self.optimiser == "adamw" and self.momentum:
            raise ValueError(f"momentum: AdamW has betas of its own, so it must be 0, not {self.momentum:g}")
        if self.lr * self.decay >= 1:
            raise ValueError(f"decay: lr decay < 1 must hold, but it is {self.lr * self.decay:g}")
        if self.data == "fixed" and self.batch % 2:
            raise ValueError(f"batch: a fixed set has equal classes, so it must be even, not {self.batch}")
        if self.neurons > self.m:
            raise ValueError(f"neurons: there are m = {self.m}, so {self.neurons} cannot be recorded")
        if self.task == "granularity":
            self._consistent_labels()
        elif self.objective != "hinge":
            raise ValueError("objective: can be chosen for task 'granularity' only")
        elif self.head != "own" or self.train_head:
            raise ValueError("head: can be chosen for task 'granularity' only")
        elif self.g != 1 or self.labels != "class":
            raise ValueError("g: labels finer than the two classes are for task 'granularity' only")
        return self

    def _consistent_labels(self) -> None:
        if self.d_core % (2 * self.subclasses):
            raise ValueError(
                f"subclasses: half of d_core = {self.d_core} is split between them, which {self.subclasses} "
                "does not divide"
            )
        if self.subclasses % self.g:
            raise ValueError(f"g: must divide subclasses = {self.subclasses}, but {self.g} does not")
        if self.m % (2 * self.g):
            raise ValueError(f"g: each of the 2g = {2 * self.g} labels needs as many of the m = {self.m} neurons")
        if self.temperature != 1 and self.objective != "softmax":
            raise ValueError("temperature: is that of objective 'softmax'")
        if self.labels == "background" and self.d_bg % self.g:
            raise ValueError(f"g: must divide d_bg = {self.d_bg} for labels of the background, {self.g} does not")
        if self.init != "gaussian":
            raise ValueError("init: task 'granularity' has Gaussian weights and no biases")

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
        """What Theorems 4.1 to 4.4 suppose (section 4.1), every constant taken as 1, ~O and Theta as bounds.

        That d and N are polynomial in d0 and d says nothing of one size, and is not listed.
        """
        if self.task != "classification":
            return {}
        d0, m = self.d0, self.m
        return {
            "phi is ReLU, or for Theorem 4.4 the identity": self.activation in ("relu", "identity"),
            "weights N(0, I/d), no biases": self.init == "gaussian" and self.init_scale == 1,
            "SGD on the whole gradient, without momentum": self.optimiser == "sgd"
            and self.momentum == 0
            and not self.project,
            "fresh samples at each step": self.data == "fresh",
            "training background in [0, 1]": self.bg_low == 0,
            "d >= d0^2.01": self.d >= d0**2.01,
            "d_bg <= d0/ln d0": self.d_bg <= d0 / math.log(d0),
            "d0 <= m <= d": d0 <= m <= self.d,
            "lambda <= d0/m^1.01": self.decay <= d0 / m**1.01,
        }

    def shape(self) -> tuple:
        known = self.model_dump(exclude={"name", "seeds", "base", *SCALARS})
        return (*known.values(), self.momentum > 0)

    def work(self) -> float:
        samples = self.batch * self.m * (2 * self.d0 + 3 * self.outputs)
        return samples + (2.0 * self.m * self.d0 * self.d if self.coordinates == "full" else 0)
