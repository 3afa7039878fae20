"""World 3's settings: every parameter of the model, its default and its constraints."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from granularity.stages.theory import engine
from granularity.stages.theory.engine import Count, NonNegative, Positive
from granularity.stages.theory.worlds.feature_emergence import spaces

Method = Literal["network", "two_step", "one_step", "ridge", "rf", "ntk", "sgd", "linear", "literal", "reference"]
Share = Annotated[float, Field(gt=0, lt=1)]
LABELS = {"rule": 1, "halves": 4, "count": 6, "pattern": 32, "random": 6}  # outputs, at k = 5; a table says its own


class Settings(engine.Settings):
    """One arm: which inputs, which label rule, which label granularity, which methods.

    The first block is for all experiments, then those of `patterns` (dictionary patterns, section 4 of the
    paper), `clusters` (mixture of Gaussians) and `digits` (teacher and student on digits and Gaussians).
    """

    WORLD: ClassVar[str] = "feature_emergence"

    experiment: Literal["patterns", "clusters", "digits"] = Field("patterns", description="Which data model.")
    d: Count = Field(100, description="Input dimensions.")
    k: Count = Field(5, description="Relevant patterns; coordinates of the hypercube of clusters.")
    m: Count = Field(100, description="Half the hidden neurons of patterns (mirrored); all those of clusters.")
    n: Count = Field(10_000, description="Training samples.")
    test: Count = Field(5000, description="Test samples, fresh.")
    batch: Count = Field(500, description="Samples per step, after the first two of patterns.")
    steps: Count = Field(600, description="Weight updates in all, the first two included.")
    rate: Positive = Field(0.3, description="Step size of plain SGD on the rescaled network.")

    rule: Literal["parity", "interval", "hidden"] = Field(
        "parity",
        description="`parity`: y = +1 for an odd count s of relevant patterns. `interval`: for s >= 2k/3. "
        "`hidden`: relevant patterns are one of 50 random binary vectors per class.",
    )
    structured: bool = Field(True, description="Whether the input distribution has the paper's structure.")
    labels: Literal["rule", "halves", "count", "pattern", "random", "table"] = Field(
        "rule",
        description="Granularity of the labels: 2 classes; parity and s >= 3 (4); s (6); phi_A (32); parity "
        "and one of three random IDs (6); any others (`table`). More than two are learnt one against the rest.",
    )
    table: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="Labels `table`: the label of each of the 32 patterns of A, pattern i with the bits of i."
    )
    shuffled: float = Field(
        0.0, ge=0, le=1, description="Labels `table`: share of inputs whose label is another's of the same parity."
    )
    D: Count = Field(50, description="Patterns of the dictionary.")
    negative_share: Share | None = Field(None, description="Exact share of class -1; none: as it comes.")
    weighted: bool = Field(True, description="Weigh the loss by 1 / (2 Pr[y = v]) in steps 1 and 2.")
    noise: bool = Field(True, description="Neuron noise of s.d. k^-1.5 in steps 1 and 2, averaged out.")
    residual: NonNegative | None = Field(
        None, description="r: step 1 leaves so much of the initial weights; none: wipes them exactly."
    )
    coordinates: Literal["dictionary", "inputs"] = Field(
        "dictionary",
        description="Weights within the span of the dictionary in its coordinates, or all in R^d.",
    )
    methods: tuple[Method, ...] = Field(("network",), description="What is trained on the data, see `model.patterns`.")
    rf_rates: tuple[Positive, ...] = Field((0.01, 0.1, 1.0), description="Step sizes of random features.")
    ntk_rates: tuple[Positive, ...] = Field((1e-4, 3e-4, 1e-3), description="Step sizes of the tangent kernel.")
    sgd_rates: tuple[Positive, ...] = Field(
        (1e-4, 3e-4, 1e-3), description="Step sizes of SGD from the initial weights, without the two steps."
    )
    baseline_rms: Positive | None = Field(
        None, description="Initial w, b of RF, NTK and plain SGD have this r.m.s. of <w, x>; none: as drawn."
    )
    picture: bool = Field(False, description="Record the neurons of seed 0, embedded in the plane.")

    sigma_r: Positive = Field(1.0, description="Noise of clusters: g ~ N(0, sigma_r^2 k / d I).")

    teacher: Count | None = Field(9, description="Hidden units of the teacher; none: minimum of the U-curve.")
    student: Count = Field(9, description="Hidden units of the students.")
    student_steps: Count = Field(2000, description="Updates of a student; the teacher has `steps`.")
    gaussian: Literal["matched", "iid"] = Field(
        "matched", description="Unlabelled inputs: mean and s.d. of each pixel, or N(0, 1)."
    )
    alpha: Share = Field(0.5, description="Share of unlabelled inputs in the mixture.")
    mixture: Literal["kept", "added"] = Field(
        "kept", description="`kept`: as many samples as digits. `added`: Gaussians added to all digits."
    )

    @model_validator(mode="after")
    def _consistent(self):
        if self.experiment == "patterns":
            self._check_patterns()
        if self.experiment == "clusters" and self.k > self.d:
            raise ValueError(f"k: k <= d must hold, but k = {self.k} and d = {self.d}")
        if self.batch > self.n:
            raise ValueError(f"batch: at most the n = {self.n} training samples, but is {self.batch}")
        return self

    def _check_patterns(self) -> None:
        if self.d < self.D:
            raise ValueError(f"D: D <= d must hold, but D = {self.D} orthonormal patterns need d >= D, not {self.d}")
        if self.k > self.D:
            raise ValueError(f"k: k <= D must hold, but k = {self.k} and D = {self.D}")
        if self.rule == "parity" and self.k % 2 == 0:
            raise ValueError(f"k: the parity rule needs an odd k, but k = {self.k}")
        if self.rule == "interval" and self.k % 3:
            raise ValueError(f"k: the interval rule needs a multiple of 3, but k = {self.k}")
        if self.rule == "hidden" and not self.structured:
            raise ValueError("structured: the hidden rule is a structure of the inputs, it cannot be false")
        if self.steps <= 2:
            raise ValueError(f"steps: must exceed 2, the first two being full-batch, but is {self.steps}")
        if self.labels != "rule":
            if self.rule != "parity" or self.k != 5 or self.negative_share is not None:
                raise ValueError(f"labels: '{self.labels}' is for the balanced parity rule with k = 5")
            odd = set(self.methods) - {"network"}
            if odd:
                raise ValueError(f"methods: finer labels are for 'network' only, not {', '.join(sorted(odd))}")
        if (self.labels == "table") != bool(self.table):
            raise ValueError("table: goes with labels 'table', and with these alone")
        if self.table:
            self._check_table()
        elif self.shuffled:
            raise ValueError("shuffled: is for labels 'table'")
        if "reference" in self.methods and self.coordinates != "inputs":
            raise ValueError("methods: 'reference' compares weights in R^d, it needs coordinates = inputs")
        if self.residual is not None and self.coordinates == "inputs":
            raise ValueError("residual: is for coordinates = dictionary")

    def _check_table(self) -> None:
        if len(self.table) != len(spaces.PARITY):
            raise ValueError(f"table: must have {len(spaces.PARITY)} labels, one per pattern, not {len(self.table)}")
        if set(self.table) != set(range(max(self.table) + 1)):
            raise ValueError("table: labels must be 0, 1, ... without a gap")
        if len(set(zip(self.table, spaces.PARITY, strict=True))) > len(set(self.table)):
            raise ValueError("table: must refine parity, but a label has patterns of both")

    @property
    def outputs(self) -> int:
        return max(self.table) + 1 if self.table else LABELS[self.labels]

    @property
    def sigma(self) -> float:
        """sigma~, the root of the summed variances of fair patterns."""
        return math.sqrt(self.D) / 2

    @property
    def gamma(self) -> float:
        """gamma = E[y phi_i] - E[y] E[phi_i], a relevant pattern's correlation with the label, structured.

        Exact for parity (1/4) and interval; for the hidden rule the expected size. Sets scales only.
        """
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
        """Step size of step 1, gamma^2 sigma~ / (k m^3): the schedule of the short version and of the lemmas.

        Theorem 26, the full version of Theorem 1, has sigma~^2 in place of sigma~, and neuron noise k^-2 in place of
        k^-1.5. Only the direction of w matters after steps 1 and 2.
        """
        return self.gamma**2 * self.sigma / (self.k * self.m**3)

    def conditions(self) -> dict[str, bool]:
        """What the theorems suppose (section 3, appendix F), constants taken as 1.

        (A2), a background of independent fair coins, holds in every setting. The first theorem's bounds on k, m and p_o
        are not among these.
        """
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
        free = {"name", "seeds", "base", "rate", "sigma_r", "structured", "negative_share", "table", "shuffled"}
        return (self.outputs, *(getattr(self, key) for key in type(self).model_fields if key not in free))

    def work(self) -> float:
        if self.experiment == "digits":
            return 3.0 * 128 * 64 * max(self.student, 32)
        width = self.D if self.coordinates == "dictionary" and self.experiment == "patterns" else self.d
        return 3.0 * self.batch * width * self.m * (2 if self.experiment == "patterns" else 1)
