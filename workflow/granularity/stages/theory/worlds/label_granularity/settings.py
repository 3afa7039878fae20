"""World 1's settings: every parameter of the model, its default and its constraints."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, NonNegative, Positive


class Settings(engine.Settings):
    """One arm: which labels, which data, which network, how long."""

    WORLD: ClassVar[str] = "label_granularity"

    labels: Literal["class", "random_within", "random"] = Field(
        "class",
        description="`class`: superclass and c mod g. `random_within`: superclass and a random ID. `random`.",
    )
    g: Count = Field(1, description="Labels per superclass: 1 is coarse, k is fine. Divides k.")
    d: Count = Field(64, description="Dimensions of a patch.")
    k: Count = Field(8, description="Subclasses per superclass.")
    per_subclass: Count = Field(4, description="Samples of each of the 2k subclasses in a batch: N = 2k times this.")
    fixed: bool = Field(False, description="The first batch is all the data there is, with its labels, at every step.")
    patches: Count = Field(32, description="P, patches per sample.")
    signal: Positive = Field(8, description="s*, the expected number of common patches.")
    equal_counts: bool = Field(False, description="Exactly s* common and s* subclass patches, instead of Bernoulli.")
    iota: NonNegative = Field(0.05, lt=1, description="Signal strength lies in [sqrt(1 - iota), sqrt(1 + iota)].")
    gamma: NonNegative = Field(0.05, description="Largest strength of a feature in a noise patch.")
    noise_features: Count = Field(2, description="s_f, features of the opposite superclass in a noise patch.")
    sigma_z: NonNegative = Field(0.005, description="Standard deviation of the noise on every coordinate.")
    sigma_0: Positive = Field(1e-3, description="Standard deviation of the initial weights.")
    c0: NonNegative = Field(0.1, description="b(0) = -sigma_0 sqrt((4 + 2 c0) ln d) for g = 1, (2 + 2 c0) for g > 1.")
    threshold: Positive | None = Field(None, description="-b(0) / sigma_0, instead of the above.")
    neurons: Literal["full", "five", "gaussian"] = Field(
        "full",
        description="`full`: for each class, n_act neurons above threshold for every feature. `five`: only "
        "for v_+, v_-, the own subclass, a sibling and an opposite one. `gaussian`: `width` Gaussian ones.",
    )
    n_act: Count = Field(3, description="Neurons above threshold, for each class and feature.")
    width: Count = Field(4000, description="Neurons per class, for `gaussian`.")
    eta: Positive = Field(0.2, description="Step size; per-class batches are 1/g as large, so g times it for g > 1.")
    beta: NonNegative = Field(0.1, description="Bias rate; 1/ln^5 d in the paper.")
    clip: NonNegative = Field(0.1, description="Second bias bound, for g > 1.")
    steps: Count = Field(600, description="Updates at most.")
    stop_loss: float | None = Field(None, description="Stop at the first batch whose loss is not above this.")
    finetune_steps: int = Field(0, ge=0, description="Coarse updates of the merged fine networks, afterwards.")
    finetune_eta: Positive = Field(0.2, description="Step size of these updates, `finetune_steps`.")

    @model_validator(mode="after")
    def _consistent(self):
        if 2 + 2 * self.k > self.d:
            raise ValueError(f"k: 2 + 2k <= d must hold, but k = {self.k} needs d >= {2 + 2 * self.k}, not {self.d}")
        if self.labels == "class" and self.k % self.g:
            raise ValueError(f"g: must divide k = {self.k}, but {self.g} does not")
        if self.signal >= self.patches / 2:
            raise ValueError(f"signal: s* must lie below P / 2 = {self.patches / 2:g}, but is {self.signal:g}")
        if self.equal_counts and self.signal != int(self.signal):
            raise ValueError(f"signal: with equal_counts s* must be a whole number, but is {self.signal:g}")
        if self.neurons == "five" and (self.labels != "class" or self.g != self.k or self.k < 2):
            raise ValueError(f"neurons: 'five' is for the fine labels, g = k = {self.k} > 1, but g is {self.g}")
        if self.finetune_steps and self.g == 1:
            raise ValueError("finetune_steps: only fine networks (g > 1) are merged and finetuned")
        return self

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
        """(class, feature) of every neuron; feature -1 for Gaussian ones."""
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
        """What Theorems 5.1 and 5.2 suppose (section 5 and appendix E), every polylog factor a power of ln d."""
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
        keys = (
            "labels",
            "g",
            "d",
            "k",
            "per_subclass",
            "fixed",
            "patches",
            "neurons",
            "n_act",
            "width",
            "steps",
            "stop_loss",
        )
        return (*(getattr(self, key) for key in keys), self.finetune_steps)

    def work(self) -> float:
        return 3.0 * self.samples * self.patches * self.d * len(self.slots())
