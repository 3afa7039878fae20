"""World 2's settings: the two models' parameters with their constraints."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, NonNegative, Positive

SHARED = {"name", "seeds", "base", "model"}
THEOREM = {"dimension", "samples", "units", "separation", "start", "horizon", "clock_step", "settle", "coordinates"}


class Settings(engine.Settings):
    """One arm of the Gaussian mixture (Appendix B), or of the setting of Theorem 7.1."""

    WORLD: ClassVar[str] = "neural_collapse"

    model: Literal["mixture", "theorem"] = Field("mixture", description="Which of the two models.")
    # the mixture
    clusters: Count = Field(8, description="Gaussian clusters, the natural classes.")
    per_cluster: Annotated[int, Field(ge=2)] = Field(64, description="Samples of each cluster.")
    d_in: Count = Field(64, description="Input dimensions.")
    hidden: Count = Field(64, description="Hidden units; features are their outputs.")
    sigma2: NonNegative = Field(2.0, description="Variance of the cluster means, by coordinate (noise: 1).")
    tau2: NonNegative | None = Field(
        None, description="Half of the pairs become similar: two means with this variance about one centre."
    )
    labels: Count = Field(
        4,
        description="Given labels: a divisor G of `clusters` merges, c mod G; a multiple splits at random.",
    )
    lr: Positive = Field(0.1, description="Step size of full-batch gradient descent.")
    init: Positive = Field(1.0, description="Factor on the initial weights and biases.")
    decay: NonNegative = Field(0.0, description="Weight decay, coupled: gradient + decay * parameter.")
    steps: Annotated[int, Field(ge=0)] = Field(1000, description="Gradient steps.")
    scaling: Literal["standard", "mean-field"] = Field(
        "standard",
        description="`standard`: biases, uniform +-1/sqrt(fan_in). `mean-field`: no biases, W1 ~ N(0, 1/d), "
        "W2 ~ N(0, 1/h^2), step size times h and 1/h.",
    )
    # the theorem
    dimension: Positive = Field(4096, ge=8, description="d of Theorem 7.1.")
    samples: Count | None = Field(None, description="n; by default d^0.32, to a multiple of 4.")
    units: Count | None = Field(None, description="m; by default ln d, rounded.")
    separation: Positive | None = Field(
        None, description="Norm of the means over noise, tau / (kappa sqrt d) = 8/c; by default d^0.02."
    )
    start: Positive | None = Field(None, description="tau * omega; by default d^-0.01.")
    horizon: Positive = Field(5.0, description="Length of a run on the clock s = eta tau^3 omega t / 8.")
    clock_step: Positive = Field(0.02, description="s of one step; eta = 8 clock_step / (tau^3 omega).")
    settle: NonNegative = Field(
        0.0, description="Longest time on the clock, after the horizon, until all units are linear: see theorem.later."
    )
    coordinates: Literal["reduced", "full"] = Field(
        "reduced", description="The n + 4 coordinates in which anything happens, or all d of them."
    )

    @model_validator(mode="after")
    def _consistent(self):
        for key in sorted(self.model_fields_set - SHARED):
            owner = "theorem" if key in THEOREM else "mixture"
            if owner != self.model:
                raise ValueError(f"{key}: belongs to model = '{owner}', but model is '{self.model}'")
        if self.clusters % 4:
            raise ValueError(
                f"clusters: must be a multiple of 4 (pairs c, c + clusters/2; half of them may be similar), "
                f"but is {self.clusters}"
            )
        if self.clusters % self.labels and self.labels % self.clusters:
            raise ValueError(
                f"labels: must divide clusters = {self.clusters} or be a multiple of it, but is {self.labels}"
            )
        if self.labels < 2:
            raise ValueError("labels: at least 2 are needed for a loss, but is 1")
        if self.n % 4:
            raise ValueError(f"samples: must be a multiple of 4, one share a cluster, but is {self.n}")
        if self.n < 8:
            raise ValueError(f"samples: at least 8, two a cluster, must exist, but is {self.n}")
        if self.n + 4 > self.dimension:
            raise ValueError(
                f"samples: n + 4 <= dimension must hold, but n = {self.n} and dimension = {self.dimension:g}"
            )
        if self.coordinates == "full" and (self.dimension > 1e5 or self.dimension % 1):
            raise ValueError(f"coordinates: 'full' needs a whole dimension of at most 1e5, not {self.dimension:g}")
        return self

    # ------------------------------------------------------------ Theorem 7.1: the paper's example, Section 7

    @property
    def n(self) -> int:
        return self.samples or max(8, 4 * round(self.dimension**0.32 / 4))

    @property
    def m(self) -> int:
        return self.units or round(math.log(self.dimension))

    @property
    def tau(self) -> float:
        """Norm of the cluster means; the noise has kappa = 1."""
        return (self.separation or self.dimension**0.02) * math.sqrt(self.dimension)

    @property
    def omega(self) -> float:
        """Standard deviation of the initial weights."""
        return (self.start or self.dimension**-0.01) / self.tau

    @property
    def eta(self) -> float:
        return 8 * self.clock_step / (self.tau**3 * self.omega)

    @property
    def theorem_steps(self) -> float:
        """T = 1 / (eta omega^3) of Theorem 7.1, its Theta taken as 1: s = tau^3 / (8 omega^2) on the clock."""
        return 1 / (self.eta * self.omega**3)

    @property
    def c(self) -> float:
        """c = 8 kappa sqrt(d) / tau, the noise in units of the separation."""
        return 8 * math.sqrt(self.dimension) / self.tau

    def conditions(self) -> dict[str, bool]:
        """What Theorem 7.1 supposes, and last what its proof does: a run of positive length (not the theorem's T)."""
        if self.model != "theorem":
            return {}
        d, n, c, start = self.dimension, self.n, self.c, self.tau * self.omega
        step = min(c**3 / self.tau**4, c**2 * self.omega / self.tau**3, c**2 * self.omega * self.tau)
        return {
            "n^(1/2) d^(-1/4) < c": n**0.5 * d**-0.25 < c,
            "c < n^(1/2) d^(-1/6)": c < n**0.5 * d ** (-1 / 6),
            "n < d^(1/3)": n < d ** (1 / 3),
            "d^(-1/4) n^(1/2) / c < tau omega": d**-0.25 * n**0.5 / c < start,
            "tau omega < log(m)^(-1/2)": start < math.log(self.m) ** -0.5,
            "eta <= min(c^3 / tau^4, c^2 omega / tau^3, c^2 omega tau)": self.eta <= step,
            "4 tau omega log(4m)^(1/2) < 1 (the proof's time exists)": 4 * start * math.log(4 * self.m) ** 0.5 < 1,
        }

    @property
    def bound(self) -> float:
        """Least ratio of distances by (A.15), with its constants L = L' = 1."""
        c = self.c
        small = c / 2 + 10 / math.sqrt(8) * c**3 * math.sqrt(self.dimension) * self.n**-1.5
        return small**-3 / math.sqrt(24)

    # ------------------------------------------------------------ for the engine

    @property
    def updates(self) -> int:
        return self.steps if self.model == "mixture" else round(self.horizon / self.clock_step)

    @property
    def width(self) -> int:
        """Coordinates of a sample of the theorem's model."""
        return self.n + 4 if self.coordinates == "reduced" else round(self.dimension)

    def shape(self) -> tuple:
        if self.model == "theorem":
            keys = ("model", "n", "m", "width", "coordinates", "clock_step", "updates", "settle")
            return tuple(getattr(self, key) for key in keys)
        keys = ("model", "clusters", "per_cluster", "d_in", "hidden", "labels", "steps", "scaling")
        return (*(getattr(self, key) for key in keys), self.tau2 is None)

    def work(self) -> float:
        if self.model == "theorem":
            return 4.0 * self.n * self.width * self.m  # float64 counts twice
        return 2.0 * self.clusters * self.per_cluster * self.hidden * (self.d_in + self.labels)
