"""World 2's settings: the two models' parameters with their constraints, and the arms of each size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, NonNegative, Positive

SHARED = {"name", "seeds", "base", "model"}
THEOREM = {"dimension", "samples", "units", "separation", "start", "horizon", "clock_step", "coordinates"}


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
    def bound(self) -> float:
        """Least ratio of distances by (A.15), with its constants L = L' = 1."""
        c = 8 * math.sqrt(self.dimension) / self.tau
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
            return (self.model, self.n, self.m, self.width, self.coordinates, self.clock_step, self.updates)
        keys = ("model", "clusters", "per_cluster", "d_in", "hidden", "labels", "steps", "scaling")
        return (*(getattr(self, key) for key in keys), self.tau2 is None)

    def work(self) -> float:
        if self.model == "theorem":
            return 4.0 * self.n * self.width * self.m  # float64 counts twice
        return 2.0 * self.clusters * self.per_cluster * self.hidden * (self.d_in + self.labels)


# ---------------------------------------------------------------- arms

JUDGED = (2, 4, 8)  # sigma^2 at which trends in d_in and in the width are judged
SIMILAR_AT = 4.0  # sigma^2 of the similarity experiment
LITERAL = {"dimension": 1e30, "samples": 8, "units": 8, "separation": 8e5, "start": 0.12, "horizon": 1.0}


def _mixtures(
    sigma2: Iterable[float],
    sweeps: dict[str, Iterable[float]],
    partial: dict[str, Iterable[float]],
    mean_field_widths: Iterable[int],
    mean_field: dict[str, Any],
    tau2: Iterable[float],
    seeds: dict[str, int],
    **size: Any,
) -> list[dict[str, Any]]:
    """Appendix B: one key varied at a time; `partial` values at JUDGED sigma^2 only."""
    sigma2 = list(sigma2)
    arms = [{"name": f"default, sigma2 {s:g}", "sigma2": s, "seeds": seeds["labels"], **size} for s in sigma2]
    for swept, at in ((sweeps, sigma2), (partial, JUDGED)):
        arms += [
            {"name": f"{key} {value:g}, sigma2 {s:g}", **size, key: value, "sigma2": s}
            | {"seeds": seeds["labels" if key == "labels" else "sweep"]}
            for key, values in swept.items()
            for value in values
            for s in at
        ]
    arms += [
        {"name": f"mean-field {h}, sigma2 {s:g}", **size, **mean_field, "hidden": h, "sigma2": s}
        | {"scaling": "mean-field", "seeds": seeds["mean-field"]}
        for h in mean_field_widths
        for s in (1, *JUDGED)
    ]
    arms += [
        {"name": f"similar {t:g}, {count} labels", **size, "sigma2": SIMILAR_AT, "tau2": t, "labels": count}
        | {"seeds": seeds["similar"]}
        for count in (4, 8)
        for t in tau2
    ]
    inputs = {"d_in": 512, "per_cluster": 500, "hidden": 16, "sigma2": 4, "steps": 0, "seeds": 20}
    return [*arms, {"name": "inputs only", **inputs}]


def _theorems(dimensions: dict[float, int], seeds: int) -> list[dict[str, Any]]:
    common = {"model": "theorem"}
    arms = [{"name": f"theorem, d {d:g}", **common, "dimension": d, "seeds": n} for d, n in dimensions.items()]
    arms.append({"name": "theorem, d 4096, full", **common, "coordinates": "full", "seeds": seeds})
    sweep = {"samples": 16, "units": 8, "start": 0.3, "horizon": 20.0, "seeds": seeds}
    arms += [{"name": f"separation {s:g}", **common, **sweep, "separation": float(s)} for s in (1, 2, 4, 8)]
    return [*arms, {"name": "literal (A.15) regime", **common, **LITERAL, "seeds": seeds}]


# quick: the sizes at which the specification's numbers were measured; paper: 8 x 500 samples, d = h = 512.
ARMS: dict[str, list[dict[str, Any]]] = {
    "quick": _mixtures(
        (0.1, 0.5, 1, 2, 4, 8),
        {
            "d_in": (16, 256),
            "hidden": (16, 256),
            "decay": (5e-4, 5e-3, 5e-2),
            "lr": (0.01, 1.0),
            "labels": (2, 8, 16),
        },
        {"hidden": (32, 128)},
        mean_field_widths=(8, 16, 32, 64, 128),
        mean_field={"per_cluster": 32, "steps": 600},
        tau2=(0.05, 0.25, 1, 2, 4, 8),
        seeds={"sweep": 3, "labels": 5, "mean-field": 6, "similar": 4},
    )
    + _theorems({4096: 10, 1e4: 10, 1e6: 10, 1e8: 10}, seeds=10),
    "paper": _mixtures(
        (0.02, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 4, 6, 8, 12, 16),
        {
            "d_in": (64, 128, 256, 1024),
            "hidden": (64, 128, 256, 1024),
            "decay": (5e-5, 5e-4, 5e-3, 5e-2),
            "lr": (0.01, 1.0),
            "labels": (2, 8, 16),
        },
        {},
        mean_field_widths=(64, 128, 256, 512, 1024),
        mean_field={},
        tau2=(0.05, 0.25, 1, 2, 4, 8),
        seeds={"sweep": 10, "labels": 10, "mean-field": 10, "similar": 10},
        per_cluster=500,
        d_in=512,
        hidden=512,
    )
    + _theorems({4096: 20, 1e4: 20, 1e6: 20, 1e8: 20, 1e10: 10}, seeds=20),
}
