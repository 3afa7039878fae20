"""World 1's settings: every parameter of the model, its default and its constraints."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, Natural, NonNegative, Positive
from granularity.stages.theory.statements import named, varied


class Settings(engine.Settings):
    """One arm: labels, data, network, length of training."""

    WORLD: ClassVar[str] = "label_granularity"

    # Class: superclass and c mod g. Random within: superclass and a random ID. Random: only random IDs.
    labels: Literal["class", "random_within", "random"] = "class"
    g: Count = 1  # labels per superclass: 1 is coarse, k is fine; divides k
    d: Count = 64  # dimensions of a patch
    k: Count = 8  # subclasses per superclass
    per_subclass: Count = 4  # samples of each of the 2k subclasses in a batch, so N = 2k times this
    fixed: bool = False  # the first batch, with its labels, is used at every step
    patches: Count = 32  # P, patches per sample
    signal: Positive = 8  # s*, the expected number of common patches
    equal_counts: bool = False  # exactly s* common and s* subclass patches, instead of Bernoulli
    iota: NonNegative = Field(0.05, lt=1)  # signal strength lies in [sqrt(1 - iota), sqrt(1 + iota)]
    gamma: NonNegative = 0.05  # largest strength of a feature in a noise patch
    noise_features: Count = 2  # s_f, features of the opposite superclass in a noise patch
    sigma_z: NonNegative = 0.005  # standard deviation of the noise on every coordinate
    sigma_0: Positive = 1e-3  # standard deviation of the initial weights
    c0: NonNegative = 0.1  # b(0) = -sigma_0 sqrt((4 + 2 c0) ln d) for g = 1, (2 + 2 c0) for g > 1
    threshold: Positive | None = None  # -b(0) / sigma_0, replaces the above
    # Above threshold for every feature; for v_+, v_-, own, sibling and opposite; or as drawn.
    neurons: Literal["full", "five", "gaussian"] = "full"
    # What is trained: neurons; or only the last layer, on sums of patches or on random neurons (see `fixed`).
    features: Literal["learnt", "patches", "random"] = "learnt"
    n_act: Count = 3  # neurons above threshold, for each class and such feature
    width: Count = 4000  # neurons per class, for `gaussian`; in total, for random features
    eta: Positive = 0.2  # step size; arms with g > 1 take g times it, because per-class batches are 1/g as large
    beta: NonNegative = 0.1  # bias rate; 1/ln^5 d in the paper
    clip: NonNegative = 0.1  # second bias bound, for g > 1
    steps: Count = 600  # most updates
    stop_loss: float | None = None  # stop at the first batch whose loss is at most this
    finetune_steps: Natural = 0  # coarse updates of the merged fine networks, afterwards
    finetune_eta: Positive = 0.2  # step size of these updates

    def rules(self) -> Iterator[tuple[bool, str]]:
        k, g, signal = self.k, self.g, self.signal
        yield 2 + 2 * k <= self.d, f"k: 2 + 2k <= d must hold, but k = {k} needs d >= {2 + 2 * k}, not {self.d}"
        yield self.labels != "class" or k % g == 0, f"g: must divide k = {k}, but {g} does not"
        half = self.patches / 2
        yield signal < half, f"signal: s* must lie below P / 2 = {half:g}, but is {signal:g}"
        whole = not self.equal_counts or signal == int(signal)
        yield whole, f"signal: with equal_counts s* must be a whole number, but is {signal:g}"
        five = self.neurons != "five" or (self.labels == "class" and g == k > 1)
        yield five, f"neurons: 'five' needs the fine labels, g = k = {k} > 1, but g is {g}"
        merged = not self.finetune_steps or g > 1
        yield self.features == "learnt" or not self.finetune_steps, "finetune_steps: needs features that are learnt"
        yield merged, "finetune_steps: only fine networks (g > 1) are merged and finetuned"

    @property
    def classes(self) -> int:
        return 2 * self.g

    @property
    def samples(self) -> int:
        """N, the samples of a batch."""
        return 2 * self.k * self.per_subclass

    @property
    def level(self) -> float:
        """-b(0) / sigma_0 (initialisation of the paper's Section on training, with c0)."""
        factor = 4 if self.g == 1 else 2
        return self.threshold or math.sqrt((factor + 2 * self.c0) * math.log(self.d))

    def slots(self) -> list[tuple[int, int]]:
        """Return (class, feature) of every neuron; feature -1 for Gaussian ones."""
        if self.neurons == "gaussian":
            return [(c, -1) for c in range(self.classes) for _ in range(self.width)]
        k, slots = self.k, []
        for label in range(self.classes):
            s, c = divmod(label, self.g)
            own, opposite = 2 + s * k, 2 + (1 - s) * k
            five = [0, 1, own + c, own + (c + 1) % k, opposite + c]
            for feature in five if self.neurons == "five" else range(2 + 2 * k):
                slots += [(label, feature)] * self.n_act
        return slots

    def conditions(self) -> dict[str, bool]:
        """Return the conditions of Theorems 5.1 and 5.2 (section 5, appendix E); polylog factors are powers of ln d."""
        d, ln, coarse = self.d, math.log(self.d), self.g == 1
        drawn = d ** (2 + 2 * self.c0) if coarse else d ** (1 + 2 * self.c0)
        return {
            "ln d <= k <= d^0.4": ln <= self.k <= d**0.4,
            "s* >= ln d": self.signal >= ln,
            "iota <= 1/ln d": self.iota <= 1 / ln,
            "sigma_z <= 1/(ln^10 d sqrt d)": self.sigma_z <= 1 / (ln**10 * math.sqrt(d)),
            "gamma <= 1/ln^10 d": self.gamma <= 1 / ln**10,
            "P sigma_z >= ln d": self.patches * self.sigma_z >= ln,
            "P <= d^2": self.patches <= d**2,
            "sigma_0 < 1/(d^3 ln d)": self.sigma_0 < 1 / (d**3 * ln),
            "eta <= sigma_0": self.eta <= self.sigma_0,
            "N >= d^2": self.samples >= d**2,
            "beta <= 1/ln^5 d": self.beta <= 1 / ln**5,
            "all of m neurons drawn, m >= d^(2+2c0) (coarse), d^(1+2c0) (fine)": self.neurons == "gaussian"
            and self.width >= drawn,
        }

    def shape(self) -> tuple:
        keys = "labels g d k per_subclass fixed patches neurons n_act width steps stop_loss finetune_steps features"
        return tuple(getattr(self, key) for key in keys.split())

    def work(self) -> float:
        if self.features != "learnt":
            return 1.0 * self.samples * self.patches * self.d * (self.width if self.features == "random" else 1)
        return 3.0 * self.samples * self.patches * self.d * len(self.slots())


SCALES: dict[str, dict[str, Any]] = {
    "A": {"d": 64, "k": 8, "per_subclass": 4},
    "B": {"d": 128, "k": 16, "per_subclass": 4},
    "C": {"d": 256, "k": 32, "per_subclass": 2},
    "D": {"d": 512, "k": 64, "per_subclass": 2, "patches": 64},
    "E": {"d": 1024, "k": 128, "per_subclass": 2, "patches": 64},
}
# A with the paper's own beta, sigma_z and gamma at d = 64
SCALES["P"] = SCALES["A"] | {"beta": math.log(64) ** -5, "gamma": math.log(64) ** -10}
SCALES["P"]["sigma_z"] = math.log(64) ** -10 / 8
COARSE, FINE = "{} coarse", "{} fine"
LONG, LONG_FINE = "equal counts, coarse", "equal counts, fine"
EARLY, EARLY_FINE = "phase I, coarse", "phase I, fine"
SWEEP = {g: f"granularity {g}" for g in (1, 2, 4, 8)}
WITHIN, RANDOM = "random IDs within superclasses", "random IDs"
EQUAL_STEP = {g: f"granularity {g}, equal step" for g in (2, 4, 8)}  # for g = 1 it is SWEEP's
EQUAL_LOSS = {g: f"granularity {g}, equal loss" for g in (1, 2, 4, 8)}
SLOW_WITHIN, SLOW_RANDOM = f"{WITHIN}, equal step", f"{RANDOM}, equal step"
MORE_DATA = "random IDs within superclasses, 16 samples a subclass"
FINITE = {
    "coarse labels": {"eta": 0.2},
    "fine labels": {"g": 8, "eta": 1.6},
    "random IDs within superclasses": {"g": 8, "eta": 1.6, "labels": "random_within"},
    "random IDs": {"g": 8, "eta": 1.6, "labels": "random"},
    "random IDs, equal step": {"g": 8, "labels": "random"},
    MORE_DATA: {"g": 8, "eta": 1.6, "labels": "random_within", "per_subclass": 16, "steps": 150},
}
FINITE_ARMS = {what: f"finite data, {what}" for what in FINITE}
# The parameters of the coarse baseline, varied one at a time from "A coarse".
BASELINE = {"sigma_0": (1e-4, 1e-2, 0.1), "n_act": (1, 6), "eta": (0.05, 0.8), "per_subclass": (16,)}
BASELINE["stop_loss"] = (0.1, 0.001)
VARIED = "coarse, {} = {:g}"
# Section 5.4. In 128 patches faint features add up; a linear model has no threshold to exclude them.
NOISY = {"patches": 128, "eta": 0.8, "steps": 300}
NETWORK_NOISY, LINEAR = "128 patches, network", {1: "128 patches, linear", 8: "128 patches, linear, fine"}
LAZY = {1: "lazy, coarse", 8: "lazy, fine"}
GAUSS, SLOW = "plain Gaussian draw, coarse", "fine, coarse step size"


def _scaled(scales: dict[str, int]) -> Iterator[dict[str, Any]]:
    for scale, count in scales.items():
        size = SCALES[scale] | {"seeds": count}
        own = {"g": size["k"], "eta": 0.2 * size["k"], "neurons": "five", "stop_loss": 0.03}
        yield {"name": COARSE.format(scale), **size, "stop_loss": 0.01}
        yield {"name": FINE.format(scale), **size, **own, "finetune_steps": 150 * (scale == "A")}


def _arms(scales: dict[str, int], seeds: int) -> list[Settings]:
    arms = list(_scaled(scales))
    equal, fine = {"equal_counts": True}, {"g": 8, "eta": 1.6, "neurons": "five"}
    start = {"sigma_0": 1e-5, "eta": 5e-4, "steps": 15}
    arms += [{"name": EARLY, **equal, **start}, {"name": EARLY_FINE, **equal, **fine, **start}]
    arms += [{"name": LONG, **equal, "steps": 2000}, {"name": LONG_FINE, **equal, **fine, "steps": 200}]
    sweep, stop = {"steps": 300}, {"steps": 1000, "stop_loss": 0.1}
    random, within = ({"g": 8, "labels": labels, **sweep} for labels in ("random", "random_within"))
    arms += [{"name": name, **sweep, "g": g, "eta": 0.2 * g} for g, name in SWEEP.items()]
    arms += [{"name": WITHIN, **within, "eta": 1.6}, {"name": RANDOM, **random, "eta": 1.6}]
    arms += named(EQUAL_STEP, "g", **sweep, eta=0.2)
    arms += [{"name": name, **stop, "g": g, "eta": 0.2 * g} for g, name in EQUAL_LOSS.items()]
    arms += [{"name": SLOW_WITHIN, **within}, {"name": SLOW_RANDOM, **random}]
    arms += [{"name": name, **sweep, **FINITE[what], "fixed": True} for what, name in FINITE_ARMS.items()]
    arms += varied(VARIED, BASELINE, **{**SCALES["A"], "steps": 2000, "stop_loss": 0.01})
    arms.append({"name": GAUSS, "neurons": "gaussian", "threshold": 3.0, "stop_loss": 0.025})
    arms.append({"name": SLOW, **fine, "eta": 0.2, "steps": 1500})
    arms.append({"name": NETWORK_NOISY, **NOISY})
    arms += [{"name": LINEAR[g], **NOISY, "features": "patches", "g": g, "eta": 0.8 * g} for g in LINEAR]
    lazy = {"features": "random", "width": 500, "threshold": 1.0, **sweep}
    arms += [{"name": LAZY[g], **lazy, "g": g, "eta": 0.2 * g} for g in LAZY]
    return [Settings(**{"seeds": seeds, **arm}) for arm in arms]


SIZES = {
    "quick": _arms({"A": 5, "B": 3, "C": 2}, seeds=3),
    "paper": _arms({"A": 10, "B": 10, "C": 10, "P": 5}, seeds=10),
    "grid": [Settings(**arm) for arm in _scaled({"D": 3, "E": 3})],
}
