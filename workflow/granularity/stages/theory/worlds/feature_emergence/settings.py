"""World 3's settings: every parameter of the model, its default, its constraints, and the arms of each size."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from granularity.base.section import Share
from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, Natural, NonNegative, Positive
from granularity.stages.theory.statements import named, varied
from granularity.stages.theory.worlds.feature_emergence import spaces
from granularity.stages.theory.worlds.feature_emergence.spaces import count, refined, subparity

Method = Literal[
    "network", "two_step", "one_step", "ridge", "rf", "ntk", "sgd", "linear", "literal", "reference", "kernels"
]
OUTPUTS = {"rule": 1, "random": 6} | {name: max(table) + 1 for name, table in spaces.TABLES.items()}


class Settings(engine.Settings):
    """One arm: inputs, label rule, label granularity, methods. The first block is for all experiments; then come keys
    for `patterns` (section 3 of the paper), `clusters` (mixture of Gaussians) and `digits` (teacher and student)."""

    WORLD: ClassVar[str] = "feature_emergence"
    FREE: ClassVar = frozenset({"rate", "sigma_r", "structured", "negative_share", "table", "shuffled"})

    experiment: Literal["patterns", "clusters", "digits"] = "patterns"  # which data model
    d: Count = 100  # input dimensions
    k: Count = 5  # relevant patterns; for clusters: coordinates of the hypercube
    m: Count = 100  # half the hidden neurons of patterns (mirrored); all neurons of clusters
    n: Count = 10_000  # training samples
    test: Count = 5000  # test samples, fresh
    batch: Count = 500  # samples per step, for patterns after the first two steps
    steps: Count = 600  # weight updates in all, the first two included
    rate: Positive = 0.3  # step size of plain SGD on the rescaled network

    # Parity: y = +1 for an odd count s of relevant patterns. Interval: for s >= 2k/3. Hidden: relevant patterns are one
    # of 50 random binary vectors per class.
    rule: Literal["parity", "interval", "hidden"] = "parity"
    structured: bool = True  # whether the input distribution has the paper's structure
    # Granularity: 2 classes; parity and s >= 3 (4); s (6); phi_A (32); parity and one of three random IDs (6); any
    # others (table). More than two classes are learnt one against the rest.
    labels: Literal["rule", "halves", "count", "pattern", "random", "table"] = "rule"
    table: tuple[Natural, ...] = ()  # the label of each of the 32 patterns of A; pattern i has the bits of i
    shuffled: float = Field(0.0, ge=0, le=1)  # for a table: share of labels taken from another input of the same parity
    D: Count = 50  # patterns of the dictionary
    negative_share: Share | None = None  # exact share of class -1; none: as drawn
    weighted: bool = True  # weigh the loss by 1 / (2 Pr[y = v]) in steps 1 and 2
    noise: bool = True  # neuron noise of s.d. k^-1.5 in steps 1 and 2, averaged out
    residual: NonNegative | None = None  # step 1 leaves this share of the initial weights; none: wipes them exactly
    coordinates: Literal["dictionary", "inputs"] = "dictionary"  # of weights: in the span of the dictionary, or in R^d
    # For the general setting (appendix F), only with parity and in R^d.
    coherence: NonNegative = 0.0  # mu: |<M_i, M_j>| <= mu / sqrt(d) of the dictionary's unit columns; 0: orthonormal
    input_noise: NonNegative = 0.0  # sigma_zeta: x~ = M phi~ + zeta, zeta ~ N(0, sigma_zeta^2 I_d)
    methods: tuple[Method, ...] = ("network",)  # what is trained on the data, see `model.patterns`
    rf_rates: tuple[Positive, ...] = (0.01, 0.1, 1.0)  # step sizes of random features,
    ntk_rates: tuple[Positive, ...] = (1e-4, 3e-4, 1e-3)  # of the tangent kernel,
    sgd_rates: tuple[Positive, ...] = (1e-4, 3e-4, 1e-3)  # and of SGD from the initial weights, without the two steps
    baseline_rms: Positive | None = None  # r.m.s. of <w, x> at the start for these three; none: as drawn
    picture: bool = False  # record the neurons of seed 0, embedded in the plane

    sigma_r: Positive = 1.0  # noise of clusters: g ~ N(0, sigma_r^2 k / d I)

    teacher: Count | None = 9  # hidden units of the teacher; none: at the minimum of the U-curve
    student: Count = 9  # hidden units of the students
    student_steps: Count = 2000  # updates of a student; the teacher makes `steps`
    gaussian: Literal["matched", "iid"] = "matched"  # unlabelled inputs: mean and s.d. of each pixel, or N(0, 1)
    alpha: Share = 0.5  # share of unlabelled inputs in the mixture
    mixture: Literal["kept", "added"] = "kept"  # as many samples as digits, or Gaussians added to all digits

    def rules(self) -> Iterator[tuple[bool, str]]:
        if self.experiment == "patterns":
            yield from self._patterns()
        elif self.experiment == "clusters":
            yield self.k <= self.d, f"k: k <= d must hold, but k = {self.k} and d = {self.d}"
        yield self.batch <= self.n, f"batch: must be at most n = {self.n} training samples, but is {self.batch}"

    def _patterns(self) -> Iterator[tuple[bool, str]]:
        k, D, table, rule = self.k, self.D, self.table, self.rule
        yield self.d >= D, f"D: D <= d must hold, but D = {D} orthonormal patterns need d >= D, not {self.d}"
        yield k <= D, f"k: k <= D must hold, but k = {k} and D = {D}"
        yield rule != "parity" or k % 2 == 1, f"k: the parity rule needs an odd k, but k = {k}"
        yield rule != "interval" or k % 3 == 0, f"k: the interval rule needs a multiple of 3, but k = {k}"
        yield rule != "hidden" or self.structured, "structured: cannot be false, because the hidden rule is a structure"
        yield self.steps > 2, f"steps: must exceed 2, because the first two are full-batch, but is {self.steps}"
        if self.labels != "rule":
            parity = rule == "parity" and k == 5 and self.negative_share is None
            yield parity, f"labels: '{self.labels}' needs the balanced parity rule with k = 5"
            odd = set(self.methods) - {"network"}
            yield not odd, f"methods: only 'network' can have finer labels, not {', '.join(sorted(odd))}"
        yield (self.labels == "table") == bool(table), "table: must be set with labels 'table', and only with them"
        yield not self.shuffled or bool(table), "shuffled: needs labels 'table'"
        if table:
            patterns = len(spaces.PARITY)
            yield len(table) == patterns, f"table: must have {patterns} labels, one per pattern, not {len(table)}"
            yield set(table) == set(range(max(table) + 1)), "table: labels must be 0, 1, ... without a gap"
            fine = len(set(zip(table, spaces.PARITY, strict=True))) == len(set(table))
            yield fine, "table: must refine parity, but a label has patterns of both"
        in_all = "reference" not in self.methods or self.coordinates == "inputs"
        yield in_all, "methods: 'reference' compares weights in R^d, so it needs coordinates = inputs"
        in_general = self.coordinates == "inputs" and rule == "parity"
        yield not self.general or in_general, "coherence, input_noise: need parity and coordinates = inputs"
        yield self.residual is None or self.coordinates == "dictionary", "residual: needs coordinates = dictionary"

    @property
    def outputs(self) -> int:
        return max(self.table) + 1 if self.table else OUTPUTS[self.labels]

    @property
    def general(self) -> bool:
        """Whether the dictionary or the noise is that of appendix F."""
        return self.coherence > 0 or self.input_noise > 0

    @property
    def sigma(self) -> float:
        """sigma~, the root of the summed variances of fair patterns and of the noise."""
        return math.sqrt(self.D + 4 * self.d * self.input_noise**2) / 2

    @property
    def gamma(self) -> float:
        """E[y phi_i] - E[y] E[phi_i] of a relevant pattern, structured; for the hidden rule its expected size."""
        if self.rule == "parity":
            return 0.25
        if self.rule == "hidden":
            return math.sqrt(2 / math.pi) * 0.05
        k, p = self.k, 2 / 3
        pmf = [math.comb(k, s) * p**s * (1 - p) ** (k - s) for s in range(k + 1)]
        y = [1 if s >= 2 * k // 3 else -1 for s in range(k + 1)]
        return sum(q * v * (s / k - p) for s, (q, v) in enumerate(zip(pmf, y, strict=True)))

    @property
    def eta1(self) -> float:
        """Step size of step 1, as in Theorem 34 and the lemmas; Theorem 26 has sigma~^2, and noise k^-2.

        In the general setting it is multiplied by the share of the smaller class.
        """
        share = self.negative_share or 0.5
        rarer = min(share, 1 - share) if self.general else 1.0
        return self.gamma**2 * rarer * self.sigma / (self.k * self.m**3)

    def conditions(self) -> dict[str, bool]:
        """Return the theorems' conditions (section 3, appendix F) with all constants 1, but without bounds on k, m,
        p_o, mu and sigma_zeta, and without (A2), a background of independent fair coins, which every setting has."""
        if self.experiment != "patterns":
            return {}
        met = {"one output, for the rule's two classes": self.labels == "rule"}
        if not self.structured:
            return {"parity of patterns that are fair coins (Theorem 4)": self.rule == "parity"} | met
        balanced = self.rule != "interval" and self.negative_share in (None, 0.5)
        bound = math.sqrt(4 * self.m) < 2**self.k
        return met | {
            "balanced classes (A0), or weights in steps 1 and 2 (appendix F)": balanced or self.weighted,
            "all relevant patterns correlate alike with the label (A1)": self.rule != "hidden",
            "steps 1 and 2 wipe the initial weights": self.residual is None,
            "neuron noise in steps 1 and 2": self.noise,
            "no rescaling, then eta = k^2/(T m^(1/3)) (the method `literal` alone)": self.methods == ("literal",),
            "T >= m^(4/3)": self.steps >= self.m ** (4 / 3),
            "2m >= 3(k + 1), neurons of an exact solution": 2 * self.m >= 3 * (self.k + 1),
            "sqrt(2N) B < 2^k, N = 2m, B = 1: the bound on fixed features says something": bound,
        }

    def shape(self) -> tuple:
        return self.outputs, self.eta1, *super().shape()

    def work(self) -> float:
        if self.experiment == "digits":
            return 3.0 * 128 * 64 * max(self.student, 32)
        width = self.D if self.coordinates == "dictionary" and self.experiment == "patterns" else self.d
        return 3.0 * self.batch * width * self.m * (2 if self.experiment == "patterns" else 1)


# ---------------------------------------------------------------- arms: what is trained at each size

SMALL = {"d": 100, "D": 50, "m": 100, "n": 10_000, "batch": 500, "test": 5000}
MAIN = {"d": 500, "D": 100, "m": 300, "n": 50_000, "batch": 1000, "test": 10_000}
INTERVAL = MAIN | {"rule": "interval", "k": 30, "m": 100, "steps": 200}
INTERVAL |= {"baseline_rms": 0.5, "ntk_rates": (0.01, 0.03, 0.1), "rf_rates": (0.03, 0.1, 0.3)}
ALL = ("network", "two_step", "one_step", "ridge", "rf", "ntk", "linear", "sgd", "literal")
SCALES = {"small": SMALL, "main": MAIN}
KERNELS = "small, n = 2000"
ONE_RATE = {"ntk_rates": (3e-4,)}  # for the tangent kernel at the size `quick`, because it takes most of the time
# Methods with a column in Tables 1 to 5; without structure, methods with a curve in Figures 1 to 14.
TABLED, PLAINLY = ("network", "two_step", "one_step", "rf", "ntk"), ("network", "two_step", "rf", "ntk")
PLAIN = "without structure"
GRAINS = {"rule": 2, "halves": 4, "count": 6, "pattern": 32, "random": 6}
WORDS = {"rule": "2 labels: parity", "halves": "4 labels: parity and s >= 3", "count": "6 labels: count s"}
WORDS |= {"pattern": "32 labels: pattern", "random": "6 labels: parity and random IDs"}
# What labels tell besides parity, as tables (see `spaces`). Those of `WHOLE` have a complete staircase.
WHOLE = {"count of 4 of A": refined(count((0, 1, 2, 3)))}
WHOLE |= {"majority of 3, count of the other 2": refined(count((0, 1, 2)) >= 2, count((3, 4)))}
BROKEN = {f"parity of {n} of A": refined(subparity(range(n))) for n in (2, 3)}
BROKEN |= {"one pattern of A": refined(subparity((0,))), "two patterns of A": refined(subparity((0,)), subparity((1,)))}
SPACES = WHOLE | BROKEN
BOTH = {True: "structured", False: PLAIN}
RESIDUAL = {0.65: "main, leftover 0.65", 1.0: "main, leftover 1.0"}
CLUSTERS = {
    "16 clusters, d = 25": {"d": 25, "k": 4, "n": 4000, "steps": 2000, "sigma_r": 0.7},
    "16 clusters, d = 100": {"d": 100, "k": 4, "n": 4000, "steps": 3200},
    "32 clusters, d = 100": {"d": 100, "k": 5, "n": 8000, "steps": 4000},
}
DIGITS = {"digits, matched Gaussians": {}, "digits, iid Gaussians": {"gaussian": "iid"}}
DIGITS |= {"digits, Gaussians added": {"mixture": "added"}, "digits, teacher by rule": {"teacher": None}}
MIXTURES = {"digits, 50 units": {"student": 50}}
MIXTURES |= {f"digits, share {alpha}": {"alpha": alpha} for alpha in (0.25, 0.75)}
VARIED = {"d = 100": {"d": 100}, "d = 2000": {"d": 2000}, "n = 25000": {"n": 25_000}}
VARIED |= {"n = 10000, m = 50": {"n": 10_000, "m": 50}}
SHARES = (0.8, 0.9)
GENERAL = {"incoherent": {"coherence": 0.5}, "noisy": {"input_noise": 0.05}}  # appendix F
GENERAL["both, 80% negative"] = {"coherence": 0.5, "input_noise": 0.05, "negative_share": 0.8}
GENERAL["random columns"] = {"coherence": 4.0}  # as drawn, the inner products of most dictionaries are all below it
# Parameters of network and baselines, varied one at a time at the small size. Each rate is a phase.
SWEEP = "small, {} = {:g}"
SWEPT = {"baseline_rms": (0.05, 1.0), "m": (25,), "steps": (150,)}  # as drawn, r.m.s. is 0.2
MORE = {"m": (400,), "steps": (2400,)}  # only at the size `paper`, like `WIDE`
RATES = {"rate": (0.03, 1.0, 3.0)}  # of the network; the baselines' own follow, wider than in other arms
WIDE = "small, wide rates"
WIDER = {"rf_rates": (1e-3, 10.0), "ntk_rates": (1e-5, 1e-2), "sgd_rates": (1e-5, 1e-2, 0.1)}


def space(name: str) -> str:
    """Return the arm of a label space of `SPACES`."""
    return f"parity and {name}, {PLAIN}"


def grain(labels: str, structured: bool) -> str:
    return f"{WORDS[labels]}, {BOTH[structured]}"


def unbalanced(share: float, weighted: bool, structured: bool = True) -> str:
    name = f"{share:.0%} negative, {'weighted' if weighted else 'unweighted'}"
    return name if structured else f"{name}, {PLAIN}"


def _arms(main: int, grains: int, clusters: int, wide: int) -> list[dict[str, Any]]:
    """Return the arms of a size; arguments: numbers of seeds (`wide`: for arms of the size `paper` only; 0: none)."""
    arms: list[dict[str, Any]] = []
    for name, scale, seeds in (("small", SMALL, 5), ("main", MAIN, main)):
        full = name == "small" or wide
        methods = ALL if full else (*TABLED, "linear")
        scale = scale if full else scale | ONE_RATE
        arms.append({"name": name, **scale, "seeds": seeds, "methods": methods, "picture": True})
        fields = {"methods": PLAINLY, "structured": False}
        arms.append({"name": f"{name}, {PLAIN}", **scale, "seeds": seeds if full else 1, **fields})
    again = {"name": "small, again", **SMALL, "seeds": 1, "methods": ("network",), "picture": False}
    lifted = {"name": "small, in R^d", **SMALL, "coordinates": "inputs", "methods": ("reference",), "seeds": 5}
    arms += [again, lifted, {"name": "small, no noise", **SMALL, "noise": False, "seeds": 3}]
    few = {"n": 2000, "methods": ("network", "linear", "kernels"), "seeds": wide or 2}
    arms.append({"name": KERNELS, **SMALL, **few})
    arms += named(RESIDUAL, "residual", **MAIN, seeds=main, methods=("ridge",), picture=True)
    for structured, words in BOTH.items():
        fields = {"structured": structured, "methods": TABLED}
        arms.append({"name": f"interval, {words}", **INTERVAL, **fields, "picture": structured, "seeds": wide or 2})
    for labels in GRAINS:
        names = {structured: grain(labels, structured) for structured in BOTH}
        arms += named(names, "structured", **SMALL, labels=labels, seeds=grains)
    tables = {table: space(name) for name, table in SPACES.items()}
    arms += named(tables, "table", **SMALL, labels="table", structured=False, seeds=5 if wide else 3)
    of_all = ("network", "rf", "ntk", "sgd")
    arms += varied(SWEEP, SWEPT, **SMALL, methods=of_all, seeds=wide or 3)
    arms += varied(SWEEP, RATES, **SMALL, methods=("network",), seeds=wide or 3)
    if wide:
        arms += varied(SWEEP, MORE, **SMALL, methods=of_all, seeds=wide)
        arms.append({"name": WIDE, **SMALL, "methods": of_all[1:], "seeds": wide, **WIDER})
    hidden = MAIN | {"rule": "hidden", "D": 250, "k": 50, "picture": True}
    arms.append({"name": "hidden representation", **hidden, "seeds": wide or 1} | ({} if wide else {"n": 10_000}))
    clustered = {"experiment": "clusters", "m": 800, "batch": 100, "rate": 0.1, "test": 5000, "picture": True}
    arms += [{"name": name, **clustered, **fields, "seeds": clusters} for name, fields in CLUSTERS.items()]
    fitted = {"experiment": "digits", "n": 1297, "batch": 128, "steps": 1500, "seeds": 5}
    arms += [{"name": name, **fitted, **fields} for name, fields in (DIGITS | MIXTURES).items()]
    for structured, words in BOTH.items():
        plain = PLAINLY if wide else PLAINLY[:2]
        fields = MAIN | {"structured": structured, "methods": TABLED if structured else plain, "seeds": wide or 1}
        fields |= {} if wide else ONE_RATE
        arms += [{"name": f"{name}, {words}", **fields, **changes} for name, changes in VARIED.items()]
        arms += named({share: unbalanced(share, True, structured) for share in SHARES}, "negative_share", **fields)
    if wide:
        bare = {share: unbalanced(share, False) for share in SHARES}
        arms += named(bare, "negative_share", **MAIN, weighted=False, methods=("network",), seeds=wide)
    for structured, words in BOTH.items():
        fields = SMALL | {"coordinates": "inputs", "structured": structured, "seeds": wide or 3}
        fields |= {"methods": PLAINLY if structured or wide else PLAINLY[:3]}
        fields |= {} if wide else {"ntk_rates": (1e-3,)}
        arms += [{"name": f"{name}, {words}", **fields, **changes} for name, changes in GENERAL.items()]
    return arms


SIZES = {"quick": [Settings(**arm) for arm in _arms(main=2, grains=5, clusters=2, wide=0)]}
SIZES["paper"] = [Settings(**arm) for arm in _arms(main=5, grains=10, clusters=5, wide=5)]
