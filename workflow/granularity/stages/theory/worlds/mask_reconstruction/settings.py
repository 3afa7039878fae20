"""Settings of mask reconstruction: every parameter of the model, its default, its constraints, and the arms."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, Natural, NonNegative, Positive
from granularity.stages.theory.statements import named, varied

SCALARS = {"theta", "kappa", "gain", "tau_extra", "ema", "eta", "eta_1", "eta_2", "probe_eta", "block_eta", "beta"}


class Settings(engine.Settings):
    """One arm: the data, how the encoder is pretrained, and what is trained on it afterwards."""

    WORLD: ClassVar[str] = "mask_reconstruction"
    FREE: ClassVar = frozenset(SCALARS | {"sigma_0", "mu", "rho", "gamma", "noise", "distractors"})

    # Identities: only the model's exact identities in float64, without training.
    task: Literal["train", "identities"] = "train"
    k: Annotated[int, Field(ge=2)] = 10  # classes; each has two semantics
    d: Count = 64  # dimensions of a patch
    patches: Count = 14  # P, patches per sample
    copies: Count = 1  # C_p, patches of a semantic in a sample
    distractors: NonNegative = 3.0  # s: another class's semantic is shown with rate s/k
    rho: Positive = 0.1  # weak view of a single-view sample: strength rho to 1.5 rho
    mu: NonNegative = Field(0.01, le=1)  # share of single-view samples in training
    gamma: NonNegative = 0.01  # largest feature noise alpha in a patch
    noise: NonNegative = 1.0  # factor on the Gaussian noise of all patches; 0: none
    samples: Count = 1000  # N, unlabelled samples; fine-tuning uses their labels too
    test_samples: Count = 1000  # samples in each of the two test sets
    few: Natural = 0  # number of labels for an additional fine-tuning; 0: none

    q: Annotated[int, Field(ge=3)] = 8  # power of the smoothed ReLU
    width: Positive = 0.28  # threshold of the smoothed ReLU (the paper's varrho), above which it is linear
    m: Count = 20  # kernels per class: k m in all
    sigma_0: Positive = 0.08  # standard deviation of the initial kernels

    # Mask reconstruction, with tau times the student or a moving average as teacher; supervised, with `labels`; none.
    pretrain: Literal["masked", "average", "labels", "none"] = "masked"
    theta: Positive = Field(0.5, le=1)  # probability that a patch is kept; 1 - mask ratio
    kappa: NonNegative = 0.3  # tau = 1 + kappa (1 - theta)/(C_p theta) + ...; paper: 1
    gain: NonNegative | None = None  # tau = 1 + gain + ..., instead: the teacher's lead, independent of masks
    tau_extra: NonNegative = 0.5  # ... + tau_extra / (t^(1/tau_root) + 1)
    tau_root: Count = 1  # 1: Section 3.2; q: Assumption B.2, on which Theorem B.4 rests
    ema: NonNegative = Field(0.99, lt=1)  # moving-average teacher: share that is kept per step
    eta: Positive = 0.1  # step size of mask reconstruction
    pretrain_steps: Count = 1500  # most updates
    early_stop: bool = True  # stop mask reconstruction when every semantic is captured (needs to know them)
    # Classes merged into `granularity` groups; class and stronger view; class and a random bit.
    labels: Literal["class", "view", "random"] = "class"
    granularity: Count = 10  # number of labels: divides k for `class`, 2k for the others

    batch: Count = 150  # samples per step (all, if there are fewer)
    head: Literal["joint", "block"] = "joint"  # u is trained from 0, or fixed at u = beta for a class's kernels
    finetune_steps: Natural = 800  # updates of kernels and head with class labels
    eta_1: NonNegative = 0.02  # step size of the kernels in fine-tuning
    eta_2: Positive = 1.0  # step size of the head in fine-tuning; the paper: Theta(k)
    beta: Positive = 10.0  # output scale of `block`
    block_eta: Positive = 0.1  # step size of the kernels with `block`
    probe_steps: Natural = 0  # updates of a linear head on the frozen encoder; 0: none
    probe_eta: Positive = 10.0  # their step size

    def rules(self) -> Iterator[tuple[bool, str]]:
        k, need = self.k, 2 * self.copies
        yield 2 * k <= self.d, f"k: 2k <= d must hold, but k = {k} needs d >= {2 * k}, not {self.d}"
        room = f"a class's two semantics need 2 C_p = {need} patches, but there are {self.patches}"
        yield need <= self.patches, f"patches: {room}"
        yield self.distractors <= k, f"distractors: s <= k = {k} must hold, but s = {self.distractors:g}"
        yield self.few <= self.samples, f"few: at most all {self.samples} samples have labels, not {self.few}"
        if self.pretrain == "labels" and self.labels == "class":
            yield k % self.granularity == 0, f"granularity: must divide k = {k}, but {self.granularity} does not"
        elif self.pretrain == "labels":
            twice = f"granularity: labels '{self.labels}' are 2k = {2 * k}, not {self.granularity}"
            yield self.granularity == 2 * k, twice
        scratch = self.head == "joint" or self.pretrain == "none"
        yield scratch, "head: 'block' needs pretrain = none, because it is trained from scratch"

    @property
    def kernels(self) -> int:
        return self.k * self.m

    @property
    def feature_noise(self) -> float:
        """Standard deviation of a coordinate of a feature patch, 1/(sqrt(d) log k)."""
        return self.noise / (math.sqrt(self.d) * math.log(self.k))

    @property
    def background_noise(self) -> float:
        """Standard deviation of a coordinate of a background patch, gamma k / sqrt(d)."""
        return self.noise * self.gamma * self.k / math.sqrt(self.d)

    @property
    def lead(self) -> float:
        """The part of tau - 1 that does not fade."""
        return self.kappa * (1 - self.theta) / (self.copies * self.theta) if self.gain is None else self.gain

    def conditions(self) -> dict[str, bool]:
        """Return Assumption B.2, literally, with every constant and polylog factor 1; eta: for mask reconstruction."""
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

    def work(self) -> float:
        return 2.0 * min(self.batch, self.samples) * self.patches * self.d * self.kernels


# ---------------------------------------------------------------- arms: what is trained at each size


def literal_rho(k: int) -> float:
    """Return the paper's rho = k^-0.01, which is 0.977 for k = 10."""
    return math.exp(-0.01 * math.log(k))


STABLE, PAPER = "masked, stable teacher", "masked, the paper's teacher"
STABLE_ROOT, PAPER_ROOT = f"{STABLE}, tau of B.2", f"{PAPER}, tau of B.2"
JOINT, BLOCK = "supervised from scratch", "supervised, fixed blocks"
STABLE_HEAD, PAPER_HEAD, JOINT_HEAD = (f"{name}, head rate k" for name in (STABLE, PAPER_ROOT, JOINT))
LITERAL, ENDLESS = "fixed blocks, rho = k^-0.01", "the paper's teacher, no stop"
MUS = {0.0: "fixed blocks, mu = 0", 0.01: BLOCK, 0.1: "fixed blocks, mu = 0.1"}
AVERAGE, EXACT = "moving-average teacher", "identities"
LABELS = {words: {"granularity": int(words.split()[0])} for words in ("2 groups of classes", "5 groups of classes")}
LABELS |= {"10 classes": {"granularity": 10}}
LABELS |= {"20, class and random bit": {"granularity": 20, "labels": "random"}}
LABELS |= {"20, class and stronger view": {"granularity": 20, "labels": "view"}}
CROSSED = {label: f"labels: {label}" for label in LABELS}
CLASSES, RANDOM, VIEWS = (list(LABELS)[i] for i in (2, 3, 4))
LONGER = {label: f"labels: {label}, 5000 steps" for label in (CLASSES, RANDOM, VIEWS)}
MORE = {
    "50 kernels": {"m": 5, "sigma_0": 0.1, "eta_2": 10.0},
    "C_p = 2": {"m": 5, "sigma_0": 0.1, "eta_2": 10.0, "copies": 2, "patches": 28},
    "k = 20": {"k": 20, "samples": 2000, "test_samples": 2000},
}
GAIN, MASKS = "no masks, the teacher's gain", "masks, no gain"
# The baselines' parameters, varied one at a time; the others are those of SCRATCH or BLOCKS.
SCRATCHES = {"sigma_0": (0.1, 0.12, 0.14), "m": (5, 10), "eta_1": (0.005, 0.08)}
BLOCKED = {"sigma_0": (0.08, 0.12, 0.14), "block_eta": (0.03, 0.3)}
MORE_SCRATCHES = {"m": (40,), "eta_2": (0.2, 5.0), "finetune_steps": (4000,)}
FREE, FIXED = "from scratch, {} = {:g}", "blocks, {} = {:g}"
WIDE = {"fixed blocks, m = 20": {"m": 20}, "fixed blocks, m = 40": {"m": 40}}

PAPER_TEACHER = {"kappa": 1.0, "eta": 0.03}
SCRATCH = {"pretrain": "none", "finetune_steps": 1000}
BLOCKS = {"pretrain": "none", "head": "block", "m": 5, "sigma_0": 0.1}


def _arms(seeds: int, more: bool) -> list[dict[str, Any]]:
    arms: list[dict[str, Any]] = [
        {"name": STABLE, "probe_steps": 400, "few": 100},
        {"name": PAPER, **PAPER_TEACHER},
        {"name": STABLE_ROOT, "tau_root": 8},
        {"name": PAPER_ROOT, **PAPER_TEACHER, "tau_root": 8},
        {"name": JOINT, **SCRATCH, "probe_steps": 400, "few": 100},
        {"name": STABLE_HEAD, "eta_2": 10.0},
        {"name": PAPER_HEAD, **PAPER_TEACHER, "tau_root": 8, "eta_2": 10.0},
        {"name": JOINT_HEAD, **SCRATCH, "eta_2": 10.0},
        {"name": BLOCK, **BLOCKS},
        {"name": LITERAL, **BLOCKS, "rho": literal_rho(10)},
        *named({mu: name for mu, name in MUS.items() if name != BLOCK}, "mu", **BLOCKS),
        {"name": ENDLESS, **PAPER_TEACHER, "early_stop": False, "pretrain_steps": 600, "finetune_steps": 0},
        {"name": AVERAGE, "pretrain": "average", "pretrain_steps": 600},
        {"name": GAIN, "theta": 1.0, "gain": 0.3},
        {"name": MASKS, "kappa": 0.0, "pretrain_steps": 600},
    ]
    labelled = {"pretrain": "labels", "probe_steps": 400}
    arms += [{"name": CROSSED[label], **labelled, "pretrain_steps": 1000, **fields} for label, fields in LABELS.items()]
    arms += varied(FREE, SCRATCHES, **SCRATCH) + varied(FIXED, BLOCKED, **BLOCKS)
    if more:
        arms += varied(FREE, MORE_SCRATCHES, **SCRATCH)
        arms += [{"name": name, **labelled, "pretrain_steps": 5000, **LABELS[label]} for label, name in LONGER.items()]
        for name, fields in MORE.items():
            arms.append({"name": f"{name}, masked, stable teacher", **fields})
            arms.append({"name": f"{name}, masked, the paper's teacher", **PAPER_TEACHER, **fields})
            arms.append({"name": f"{name}, supervised from scratch", **SCRATCH, **fields})
            arms.append({"name": f"{name}, fixed blocks", **fields, **BLOCKS})
        arms += [{"name": name, **BLOCKS, **fields} for name, fields in WIDE.items()]
    return [{"name": EXACT, "task": "identities", "seeds": 3}] + [arm | {"seeds": seeds} for arm in arms]


ARMS = {"quick": _arms(5, more=False), "paper": _arms(10, more=True)}
SIZES = {size: [Settings(**arm) for arm in arms] for size, arms in ARMS.items()}
