"""Settings of mask reconstruction: every parameter of the model, its default and its constraints."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, NonNegative, Positive

Steps = Annotated[int, Field(ge=0)]
# What may differ between runs that share a tensor program.
SCALARS = {"theta", "kappa", "gain", "tau_extra", "ema", "eta", "eta_1", "eta_2", "probe_eta", "block_eta", "beta"}
SCALARS |= {"sigma_0", "mu", "rho", "gamma", "noise", "distractors", "name", "seeds", "base"}


class Settings(engine.Settings):
    """One arm: the data, how the encoder is pretrained, and what is trained on it afterwards."""

    WORLD: ClassVar[str] = "mask_reconstruction"

    task: Literal["train", "identities"] = Field(
        "train", description="`identities`: the model's exact identities in float64, without any training."
    )
    k: Annotated[int, Field(ge=2)] = Field(10, description="Classes; each has two semantics.")
    d: Count = Field(64, description="Dimensions of a patch.")
    patches: Count = Field(14, description="P, patches per sample.")
    copies: Count = Field(1, description="C_p, patches of a semantic in a sample.")
    distractors: NonNegative = Field(3.0, description="s: another class's semantic is shown with rate s/k.")
    rho: Positive = Field(0.1, description="Weak view of a single-view sample: strength rho to 1.5 rho.")
    mu: NonNegative = Field(0.01, le=1, description="Share of single-view samples in training.")
    gamma: NonNegative = Field(0.01, description="Largest feature noise alpha in a patch.")
    noise: NonNegative = Field(1.0, description="Factor on the Gaussian noise of all patches; 0: none.")
    samples: Count = Field(1000, description="N, unlabelled samples; fine-tuning uses them with labels.")
    test_samples: Count = Field(1000, description="Samples in each of the two test sets.")
    few: Steps = Field(0, description="Number of labels to fine-tune with as well; 0: none.")

    q: Annotated[int, Field(ge=3)] = Field(8, description="Power of the smoothed ReLU.")
    width: Positive = Field(
        0.28, description="Threshold of the smoothed ReLU (the paper's varrho), where it becomes linear."
    )
    m: Count = Field(20, description="Kernels per class: k m in all.")
    sigma_0: Positive = Field(0.08, description="Standard deviation of the initial kernels.")

    pretrain: Literal["masked", "average", "labels", "none"] = Field(
        "masked",
        description="`masked`: mask reconstruction, teacher tau times the student. `average`: with a moving "
        "average as teacher. `labels`: supervised, with the labels below. `none`.",
    )
    theta: Positive = Field(0.5, le=1, description="Probability that a patch is kept; 1 - mask ratio.")
    kappa: NonNegative = Field(0.3, description="tau = 1 + kappa (1 - theta)/(C_p theta) + ...; paper: 1.")
    gain: NonNegative | None = Field(
        None, description="tau = 1 + gain + ..., instead: the teacher's lead without the masks that it belongs to."
    )
    tau_extra: NonNegative = Field(0.5, description="... + tau_extra / (t + 1).")
    ema: NonNegative = Field(0.99, lt=1, description="Moving-average teacher: share of it that is kept.")
    eta: Positive = Field(0.1, description="Step size of mask reconstruction.")
    pretrain_steps: Count = Field(1500, description="Updates at most.")
    early_stop: bool = Field(
        True, description="Stop mask reconstruction when every semantic is captured (needs to know them)."
    )
    labels: Literal["class", "view", "random"] = Field(
        "class",
        description="For `labels`: classes merged into `granularity` groups; class and stronger view; class "
        "and a random bit.",
    )
    granularity: Count = Field(10, description="How many labels: divides k for `class`, 2k for the others.")

    batch: Count = Field(150, description="Samples per step, at most all.")
    head: Literal["joint", "block"] = Field(
        "joint", description="`joint`: u is trained from 0. `block`: u = beta in a class's kernels, fixed."
    )
    finetune_steps: Steps = Field(800, description="Updates of kernels and head with class labels.")
    eta_1: NonNegative = Field(0.02, description="Step size of the kernels in fine-tuning.")
    eta_2: Positive = Field(1.0, description="Step size of the head in fine-tuning.")
    beta: Positive = Field(10.0, description="Output scale of `block`.")
    block_eta: Positive = Field(0.1, description="Step size of the kernels with `block`.")
    probe_steps: Steps = Field(0, description="Updates of a linear head on the frozen encoder; 0: none.")
    probe_eta: Positive = Field(10.0, description="Their step size.")

    @model_validator(mode="after")
    def _consistent(self):
        if 2 * self.k > self.d:
            raise ValueError(f"k: 2k <= d must hold, but k = {self.k} needs d >= {2 * self.k}, not {self.d}")
        if 2 * self.copies > self.patches:
            raise ValueError(
                f"patches: a class's two semantics need 2 C_p = {2 * self.copies} patches, but there are {self.patches}"
            )
        if self.distractors > self.k:
            raise ValueError(f"distractors: s <= k = {self.k} must hold, but s = {self.distractors:g}")
        if self.few > self.samples:
            raise ValueError(f"few: at most all {self.samples} samples have labels, not {self.few}")
        if self.pretrain == "labels" and self.labels == "class" and self.k % self.granularity:
            raise ValueError(f"granularity: must divide k = {self.k}, but {self.granularity} does not")
        if self.pretrain == "labels" and self.labels != "class" and self.granularity != 2 * self.k:
            raise ValueError(f"granularity: labels '{self.labels}' are 2k = {2 * self.k}, not {self.granularity}")
        if self.head == "block" and self.pretrain != "none":
            raise ValueError("head: 'block' is trained from scratch, with pretrain = none")
        return self

    @property
    def kernels(self) -> int:
        return self.k * self.m

    @property
    def feature_noise(self) -> float:
        """Standard deviation of a coordinate of a feature patch, 1/(sqrt(d) log k)."""
        return self.noise / (math.sqrt(self.d) * math.log(self.k))

    @property
    def background_noise(self) -> float:
        """... of a background patch, gamma k / sqrt(d)."""
        return self.noise * self.gamma * self.k / math.sqrt(self.d)

    @property
    def lead(self) -> float:
        """What tau exceeds 1 by, but for the part that fades."""
        return self.kappa * (1 - self.theta) / (self.copies * self.theta) if self.gain is None else self.gain

    def conditions(self) -> dict[str, bool]:
        """Assumption B.2, literally, every constant and polylog factor 1; bounds on m and eta as their words say.

        eta is the step size of mask reconstruction. That s = polylog k says nothing of a single k, and is left out.
        """
        k, q, sigma = self.k, self.q, self.sigma_0
        need = k / sigma ** (2 * q - 1)
        return {
            "q >= 3": q >= 3,
            "sigma_0^(q-2) <= 1/k": sigma ** (q - 2) <= 1 / k,
            "gamma <= sigma_0/k": self.gamma <= sigma / k,
            "m >= log k (the paper: polylog k)": self.m >= math.log(k),
            "m <= sqrt k": self.m <= math.sqrt(k),
            "N >= k/sigma_0^(2q-1)": self.samples >= need,
            "sqrt d >= k/sigma_0^(2q-1)": math.sqrt(self.d) >= need,
            "sqrt d >= k^(5/2)/eta^(1/q)": math.sqrt(self.d) >= k**2.5 / self.eta ** (1 / q),
            "P <= sigma_0^(1/2-q)": self.patches <= sigma ** (0.5 - q),
            "eta >= k^(-q(q-2))": self.eta >= float(k) ** (-q * (q - 2)),
            "eta <= 1/k (the paper: 1/poly(k))": self.eta <= 1 / k,
        }

    def shape(self) -> tuple:
        return tuple(value for key, value in self.model_dump().items() if key not in SCALARS)

    def work(self) -> float:
        return 2.0 * min(self.batch, self.samples) * self.patches * self.d * self.kernels
