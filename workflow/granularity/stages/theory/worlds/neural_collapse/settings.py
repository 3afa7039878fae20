"""World 2's settings: the parameters of the two models with their constraints."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, Natural, NonNegative, Positive
from granularity.stages.theory.statements import varied

SHARED = {"name", "seeds", "base", "model"}
THEOREM = {"dimension", "samples", "units", "separation", "start", "horizon", "clock_step", "settle", "coordinates"}


class Settings(engine.Settings):
    """One arm of the Gaussian mixture (Appendix B), or of the setting of Theorem 7.1."""

    WORLD: ClassVar[str] = "neural_collapse"

    model: Literal["mixture", "theorem"] = "mixture"  # which of the two
    # the mixture
    clusters: Count = 8  # Gaussian clusters, the natural classes
    per_cluster: Annotated[int, Field(ge=2)] = 64  # samples of each cluster
    d_in: Count = 64  # input dimensions
    hidden: Count = 64  # hidden units; features are their outputs
    sigma2: NonNegative = 2.0  # variance of each coordinate of the cluster means (noise: 1)
    tau2: NonNegative | None = None  # half of the pairs have means with this variance about a common centre
    labels: Count = 4  # G; a divisor of `clusters` merges, c mod G; a multiple splits at random
    lr: Positive = 0.1  # step size of full-batch gradient descent
    init: Positive = 1.0  # factor on the initial weights and biases
    decay: NonNegative = 0.0  # weight decay, coupled: gradient + decay * parameter
    steps: Natural = 1000  # gradient steps
    # Mean-field: no biases, W1 ~ N(0, 1/d), W2 ~ N(0, 1/h^2), step size times h and 1/h.
    scaling: Literal["standard", "mean-field"] = "standard"
    # the theorem
    dimension: Positive = Field(4096, ge=8)  # d of Theorem 7.1
    samples: Count | None = None  # n; by default d^0.32, rounded to a multiple of 4
    units: Count | None = None  # m; by default ln d, rounded
    separation: Positive | None = None  # norm of the means over that of the noise, tau / sqrt d; by default d^0.02
    start: Positive | None = None  # tau * omega; by default d^-0.01
    horizon: Positive = 5.0  # length of a run on the clock s = eta tau^3 omega t / 8
    clock_step: Positive = 0.02  # s per step; eta = 8 clock_step / (tau^3 omega)
    settle: NonNegative = 0.0  # longest further time on the clock until all units are linear
    coordinates: Literal["reduced", "full"] = "reduced"  # the n + 4 that matter, or all d

    def rules(self) -> Iterator[tuple[bool, str]]:
        for key in sorted(self.model_fields_set - SHARED):
            owner = "theorem" if key in THEOREM else "mixture"
            yield owner == self.model, f"{key}: belongs to model = '{owner}', but model is '{self.model}'"
        n, d, labels, K = self.n, self.dimension, self.labels, self.clusters
        pairs = "pairs c, c + clusters/2, half of them similar"
        yield K % 4 == 0, f"clusters: must be a multiple of 4 ({pairs}), but is {K}"
        divided = K % labels == 0 or labels % K == 0
        yield divided, f"labels: must divide clusters = {K} or be a multiple of it, but is {labels}"
        yield labels >= 2, "labels: must be at least 2 for a loss, but is 1"
        yield n % 4 == 0, f"samples: must be a multiple of 4, an equal share per cluster, but is {n}"
        yield n >= 8, f"samples: must be at least 8, two per cluster, but is {n}"
        yield n + 4 <= d, f"samples: n + 4 <= dimension must hold, but n = {n} and dimension = {d:g}"
        all_of_them = self.coordinates == "reduced" or (d <= 1e5 and d % 1 == 0)
        yield all_of_them, f"coordinates: 'full' needs a whole dimension of at most 1e5, not {d:g}"

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
        """T = 1 / (eta omega^3) of Theorem 7.1, taking its Theta as 1: s = tau^3 / (8 omega^2) on the clock."""
        return 1 / (self.eta * self.omega**3)

    @property
    def c(self) -> float:
        """c = 8 kappa sqrt(d) / tau, the noise in units of the separation."""
        return 8 * math.sqrt(self.dimension) / self.tau

    def conditions(self) -> dict[str, bool]:
        """Return the conditions of Theorem 7.1, and last its proof's: a run of positive length (unlike T)."""
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
        """Smallest ratio of distances by (A.15), with its constants L = L' = 1."""
        c = self.c
        small = c / 2 + 10 / math.sqrt(8) * c**3 * math.sqrt(self.dimension) * self.n**-1.5
        return small**-3 / math.sqrt(24)

    @property
    def updates(self) -> int:
        return self.steps if self.model == "mixture" else round(self.horizon / self.clock_step)

    @property
    def width(self) -> int:
        """Coordinates of a sample in the theorem's model."""
        return self.n + 4 if self.coordinates == "reduced" else round(self.dimension)

    def shape(self) -> tuple:
        keys = "model clusters per_cluster d_in hidden labels steps scaling"
        if self.model == "theorem":
            keys = "model n m width coordinates clock_step updates settle"
        return (*(getattr(self, key) for key in keys.split()), self.model == "theorem" or self.tau2 is None)

    def work(self) -> float:
        if self.model == "theorem":
            return 4.0 * self.n * self.width * self.m  # float64 counts twice
        return 2.0 * self.clusters * self.per_cluster * self.hidden * (self.d_in + self.labels)


JUDGED = (2, 4, 8)  # sigma^2 at which trends in d_in and in the width are judged
LITERALLY, INSIDE = "literal (A.15) regime", "inside the conditions, d 1e12"
SMALL_STEPS = "theorem, d 4096, small steps"
# Meets all conditions of Theorem 7.1 except on the step, which LITERAL misses too; LITERAL has the proof's time.
WITHIN = {"dimension": 1e12, "samples": 64, "units": 28, "separation": 267.0, "start": 0.4, "horizon": 2.0}
WITHIN["settle"] = 3000.0
LITERAL = {"dimension": 1e30, "samples": 8, "units": 8, "separation": 8e5, "start": 0.12, "horizon": 1.0}
Sweeps, Arm = dict[str, tuple[float, ...]], dict[str, Any]


def _mixtures(
    sigma2: tuple[float, ...],
    sweeps: Sweeps,
    judged: Sweeps,
    mean_field: Arm,
    seeds: dict[str, int],
    similar: tuple[int, ...] = (4, 8),
    **size: int,
) -> list[Settings]:
    """Return the arms of Appendix B: one key varied at a time; values of `judged` only at JUDGED sigma^2."""
    arms = varied("default, sigma2 {1:g}", {"sigma2": sigma2}, seeds=seeds["default"])
    for swept, at in ((sweeps, sigma2), (judged, JUDGED)):
        for key, values in swept.items():
            fields = {"seeds": seeds["labels" if key == "labels" else "sweep"]}
            for value in values:
                arms += varied(f"{key} {value:g}, sigma2 {{1:g}}", {"sigma2": at}, **fields, **{key: value})
    for h in mean_field["hidden"]:
        fields = mean_field | {"hidden": h, "seeds": seeds["mean-field"]}
        arms += varied(f"mean-field {h}, sigma2 {{1:g}}", {"sigma2": (1, *JUDGED)}, **fields)
    for labels in similar:
        fields = {"sigma2": 4.0, "labels": labels, "seeds": seeds["similar"]}
        arms += varied(f"similar {{1:g}}, {labels} labels", {"tau2": (0.05, 0.25, 1, 2, 4, 8)}, **fields)
    inputs = {"name": "inputs only", "d_in": 512, "per_cluster": 500, "hidden": 16, "sigma2": 4, "steps": 0}
    return [Settings(**arm) for arm in (*(size | arm for arm in arms), inputs | {"seeds": 20})]


def _theorems(dimensions: dict[float, int], seeds: int) -> list[Settings]:
    late = {"settle": 100.0, "seeds": seeds}
    arms: list[Arm] = [{"name": f"theorem, d {d:g}", "dimension": d, **late, "seeds": n} for d, n in dimensions.items()]
    arms.append({"name": "theorem, d 4096, full", "coordinates": "full", **late})
    sweep = {"samples": 16, "units": 8, "start": 0.3, "horizon": 20.0, "seeds": seeds}
    arms += varied("separation {1:g}", {"separation": (1, 2, 4, 8)}, **sweep)
    arms.append({"name": SMALL_STEPS, "clock_step": 6.25e-4, "horizon": 1.0, **late})
    arms += [{"name": INSIDE, **WITHIN, "seeds": seeds}, {"name": LITERALLY, **LITERAL, "seeds": seeds}]
    return [Settings(model="theorem", **arm) for arm in arms]


# quick: the sizes at which the specification's numbers were measured; paper: 8 x 500 samples, d = h = 512 (Figures 15
# to 18), with three seeds instead of ten.
SIZES = {
    "quick": _mixtures(
        (0.1, 0.5, 1, 2, 4, 8),
        {"d_in": (16, 256), "hidden": (16, 256), "decay": (5e-4, 5e-3, 5e-2), "lr": (0.01, 1.0), "init": (0.3, 3.0)}
        | {"steps": (300, 3000), "labels": (2, 8, 16)},
        judged={"hidden": (32, 128)},
        mean_field={"scaling": "mean-field", "hidden": (8, 16, 32, 64, 128), "per_cluster": 32, "steps": 600},
        seeds={"default": 10, "sweep": 3, "labels": 5, "mean-field": 6, "similar": 8},
    )
    + _theorems({4096: 10, 1e4: 10, 1e6: 10, 1e8: 10}, seeds=10),
    "paper": _mixtures(
        (1, *JUDGED),
        {"d_in": (64, 128, 256), "hidden": (64, 128, 256), "decay": (5e-3,)},
        judged={},
        mean_field={"hidden": ()},
        seeds={"default": 3, "sweep": 3, "similar": 3},
        similar=(4,),
        per_cluster=500,
        d_in=512,
        hidden=512,
    )
    + _theorems({4096: 20, 1e4: 20, 1e6: 20, 1e8: 20, 1e10: 10}, seeds=20),
}
