"""World 2's claims. Claims read the run table only; bands come from pilot runs of one to four seeds.

Claims about the theorem are judged on medians over seeds, and trends in d and in the width on means over
seeds (the paper's curves are averages over 10 runs); all others seed by seed. Trends along sigma^2, decay
and tau^2 compare runs of one seed, which share their random numbers. A curve that the specification admits
only at full training accuracy, and that lacks it, is reported and not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from granularity.claims.claim import ABOVE_ZERO, Claim, together, unmet
from granularity.stages.theory.runs import at
from granularity.stages.theory.worlds.neural_collapse.arms import INSIDE, JUDGED, LITERAL, LITERALLY, SMALL_STEPS
from granularity.stages.theory.worlds.neural_collapse.settings import Settings

KEYS = ("clusters", "per_cluster", "d_in", "hidden", "tau2", "labels", "lr", "init", "decay", "steps", "scaling")
ABOVE_ONE = math.nextafter(1, 2)  # the smallest low end that excludes 1 itself
MIXTURE, SIMILARITY, THEOREM = "Appendix B", "Appendix B.1", "Theorem 7.1"
OWN = "not in the paper"
DIMENSIONS = (4096, 1e4, 1e6)  # at which the theorem's direction is judged
Cells = dict[tuple[float, float], np.ndarray]  # (value of a key, sigma^2) -> one number per seed


# ---------------------------------------------------------------- reading the table


def ends(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of every run of the mixture."""
    return table[(table["model"] == "mixture") & table["event"].str.contains("end|diverged")]


def family(rows: pd.DataFrame, key: str) -> pd.DataFrame:
    """Rows of settings that differ from the default one in `key` and sigma^2 only."""
    default = rows[rows["setting"].str.startswith("default")]
    keep = pd.Series(bool(len(default)), index=rows.index)
    for other in KEYS if len(default) else ():
        if other != key:
            value = default[other].iloc[0]
            keep &= rows[other].isna() if pd.isna(value) else rows[other] == value
    return rows[keep]


def cells(rows: pd.DataFrame, key: str, measure: str = "msdr") -> Cells:
    """A measure by the value of `key` and sigma^2, seeds in order."""
    if rows.empty or measure not in rows:
        return {}
    ordered = rows.sort_values("seed").groupby([key, "sigma2"])[measure]
    return {name: part.to_numpy(float) for name, part in ordered}


def mean_field(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["scaling"] == "mean-field"]


def names(rows: pd.DataFrame, **where: object) -> tuple[str, ...]:
    """The arms among some rows, where columns have these values (a collection: one of them)."""
    for key, value in where.items():
        rows = rows[rows[key].isin(value if isinstance(value, (list, tuple)) else [value])]
    return tuple(rows["setting"].unique())


def values_of(found: Cells) -> list[float]:
    return sorted({value for value, _ in found})


def variances(found: Cells, value: float) -> list[float]:
    return sorted(s for v, s in found if v == value)


def ratio(over: np.ndarray | None, under: np.ndarray | None) -> np.ndarray:
    """Seed by seed, over the seeds that both have; empty where one was not run."""
    if over is None or under is None:
        return np.empty(0)
    count = min(len(over), len(under))
    return over[:count] / under[:count]


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rho; NaN where a value is not a number."""
    if np.isnan(y).any():
        return math.nan
    return float(pd.Series(x).rank().corr(pd.Series(y).rank()))


def judge(table: pd.DataFrame) -> list[Claim]:
    """A14 to A21, U3 and the crossing X1 to X5 of the run table (see `Claim`)."""
    found: list[Claim] = []
    for part in (_variance, _dimension, _width, _decay, _similarity, _theorem, _inputs, _crossing):
        found += part(table)
    return found


# ---------------------------------------------------------------- Appendix B


def _variance(table: pd.DataFrame) -> Iterable[Claim]:
    claim, rows = "MSDR grows with the variance of the cluster means", ends(table)
    seen = set()
    for key in ("d_in", "hidden", "decay", "lr", "init", "steps"):
        part = family(rows, key)
        found, accuracy = (cells(part, key, name) for name in ("msdr", "accuracy"))
        widest = max((len(variances(found, v)) for v in values_of(found)), default=0)
        for value in values_of(found):
            at_ = variances(found, value)
            default = value == family(rows, "sigma2")[key].iloc[0]
            if len(at_) < widest or (default and "default" in seen):
                continue
            seen.add("default" if default else "")
            seeds = min(len(found[value, s]) for s in at_)
            curve = np.array([found[value, s][:seeds] for s in at_])
            full = all((accuracy[value, s] == 1).all() for s in at_)
            judged = full and not (key == "lr" and value > 0.1)
            unjudged = "reported: step size above 0.1" if full else "not tested: accuracy < 1"
            label = "default" if default else f"{key} = {value:g}"
            quantity = f"{label}: Spearman's rho with sigma^2" + ("" if judged else f" ({unjudged})")
            rho = [rank_correlation(at_, column) for column in curve.T]
            low = 0.95 if judged else -math.inf
            yield Claim("A14", claim, MIXTURE, quantity, rho, low, arms=names(part, **{key: value}))
    if not seen:
        yield Claim("A14", claim, MIXTURE, "Spearman's rho with sigma^2", [], 0.95)
    yield from _grown(table)


def _grown(table: pd.DataFrame) -> Iterable[Claim]:
    """What training adds to the untrained network, and to the inputs, whose MSDR is 1 + sigma^2."""
    rows = family(ends(table), "sigma2")
    end = cells(rows, "labels")
    start, inputs = (cells(family(_starts(table), "sigma2"), "labels", name) for name in ("msdr", "input_msdr"))
    claim = "Training adds to what the untrained network has, from sigma^2 = 0.5 on"
    for (value, s), last in end.items():
        grown = ratio(last, start.get((value, s)))
        quantity = f"default, sigma^2 = {s:g}: MSDR at the end / at step 0"
        low = 1.1 if s >= 0.5 else -math.inf
        yield Claim("A14-start", claim, OWN, quantity, grown, low, arms=names(rows, sigma2=s))
    claim = "Training adds to what the inputs have, from sigma^2 = 0.5 on"
    compared = []
    for (value, s), last in end.items():
        grown = ratio(last, inputs.get((value, s))) - 1
        quantity = f"default, sigma^2 = {s:g}: MSDR at the end / of the inputs, minus 1"
        band = {"low": ABOVE_ZERO if s >= 0.5 else -math.inf, "judged": "interval", "arms": names(rows, sigma2=s)}
        compared.append(Claim("A14-inputs", claim, OWN, quantity, grown, **band))
    yield from together(compared or [Claim("A14-inputs", claim, OWN, "MSDR at the end / of the inputs", [])])


def _starts(table: pd.DataFrame) -> pd.DataFrame:
    return table[(table["model"] == "mixture") & (table["step"] == 0)]


def _trend(
    id: str, claim: str, rows: pd.DataFrame, key: str, word: str, least: int, at_: Sequence[float], full: bool
) -> Iterable[Claim]:
    """Mean MSDR at given sigma^2 rises from each value of `key` to the next, by 1.3 from first to last."""
    found, accuracy = cells(rows, key), cells(rows, key, "accuracy")
    for s in at_:
        values = [v for v in values_of(found) if (v, s) in found]
        quantity, band = f"sigma^2 = {s:g}: mean MSDR, ", (ABOVE_ONE, 1.3)
        if len(values) < least:
            yield Claim(id, claim, MIXTURE, f"{quantity}{word} from least to most", [], band[1])
            continue
        if full and not all((accuracy[v, s] == 1).all() for v in values):
            quantity, band = "not tested (accuracy < 1), " + quantity, (-math.inf, -math.inf)
        seeds, own = min(len(found[v, s]) for v in values), {"arms": names(rows, sigma2=s)}
        mean = np.array([found[v, s][:seeds].mean() for v in values])
        shown = ", ".join(f"{v:g}" for v in values)
        steps = [float((mean[1:] / mean[:-1]).min())]
        name = f"{quantity}smallest ratio of neighbours in {word} {shown}"
        yield Claim(id, claim, MIXTURE, name, steps, band[0], seeds=seeds, **own)
        name = f"{quantity}{word} {values[-1]:g} over {values[0]:g}"
        yield Claim(id, claim, MIXTURE, name, [mean[-1] / mean[0]], band[1], seeds=seeds, **own)
        name = f"sigma^2 = {s:g}: the same ratio, each seed"
        yield Claim(id, claim, MIXTURE, name, ratio(found[values[-1], s], found[values[0], s]), **own)


def _dimension(table: pd.DataFrame) -> Iterable[Claim]:
    rows = family(ends(table), "d_in")
    claim = "MSDR grows with the input dimension where sigma^2 >= 2"
    yield from _trend("A15", claim, rows, "d_in", "d", 3, JUDGED, True)
    small = [s for s in sorted(set(rows["sigma2"])) if s < min(JUDGED)]
    claim = "Paper: MSDR grows with the input dimension (here: also where sigma^2 < 2)"
    yield from _trend("A15-paper", claim, rows, "d_in", "d", 3, small, False)


def _width(table: pd.DataFrame) -> Iterable[Claim]:
    rows = ends(table)
    claim = "Paper: MSDR grows with the hidden width"
    for id, part, how in (
        ("A16", family(rows, "hidden"), ""),
        ("A16-mf", mean_field(rows), ", under mean-field scaling"),
    ):
        yield from _trend(id, claim + how, part, "hidden", "width", 4, JUDGED, True)
        extra = [s for s in sorted(set(part["sigma2"])) if s < min(JUDGED)]
        for s in extra:
            found = cells(part, "hidden")
            values = [v for v in values_of(found) if (v, s) in found]
            quantity = f"sigma^2 = {s:g}: MSDR, width {values[-1]:g} over {values[0]:g}, each seed"
            own = names(part, sigma2=s)
            yield Claim(id, claim + how, MIXTURE, quantity, ratio(found[values[-1], s], found[values[0], s]), arms=own)


def _decay(table: pd.DataFrame) -> Iterable[Claim]:
    rows = family(ends(table), "decay")
    found = cells(rows, "decay")
    bounded = "Weight decay has no effect where step size * decay * steps <= 0.05"
    claim = "Paper: weight decay has no effect"
    amount = float(rows["lr"].iloc[0] * rows["steps"].iloc[0]) if len(rows) else 0.0
    changes, arms = {}, {}
    for value in (v for v in values_of(found) if v > 0):
        at_ = variances(found, value)
        each = [ratio(found[value, s], found.get((0.0, s))) - 1 for s in at_]
        seeds = min(map(len, each))
        changes[value * amount] = np.array([part[:seeds] for part in each])
        arms[value * amount] = names(rows, decay=[value, 0.0])
    quantity = "largest |change of MSDR| over sigma^2, lr * decay * steps = {:g}"
    small = {total: part for total, part in changes.items() if total <= 0.05 * (1 + 1e-9)}
    for total, part in small.items():
        yield Claim("A17", bounded, MIXTURE, quantity.format(total), _largest(part, 0), high=0.05, arms=arms[total])
    if not small:
        yield Claim("A17", bounded, MIXTURE, quantity.format(0.05), [], high=0.05)
    for total, part in changes.items():
        if total not in small:
            for word, value in (("largest", part.mean(1).max()), ("smallest", part.mean(1).min())):
                name = f"{word} mean change of MSDR over sigma^2, lr * decay * steps = {total:g}"
                yield Claim("A17", bounded, MIXTURE, name, [value], seeds=part.shape[1], arms=arms[total])
            every = _largest(part, 0)
            yield Claim("A17-paper", claim, MIXTURE, quantity.format(total), every, high=0.05, arms=arms[total])
    if not changes:
        yield Claim("A17-paper", claim, MIXTURE, quantity.format(5), [], high=0.05)


def _largest(values: np.ndarray, axis: int) -> np.ndarray:
    return np.abs(values).max(axis)


# ---------------------------------------------------------------- Appendix B.1


def similarity(table: pd.DataFrame, measure: str, labels: int) -> dict[float, np.ndarray]:
    """A measure at the end (an input's: at step 0) by tau^2, one number per seed."""
    rows = _starts(table) if measure.startswith("input") else ends(table)
    rows = rows[rows["tau2"].notna() & (rows["labels"] == labels)]
    if rows.empty or measure not in rows:
        return {}
    return {t: part.sort_values("seed")[measure].to_numpy(float) for t, part in rows.groupby("tau2")}


def crossing(x: Sequence[float], difference: Sequence[float]) -> float:
    """The point where a difference first turns positive, linear between points; NaN if there is none."""
    for a, b, left, right in zip(x[:-1], x[1:], difference[:-1], difference[1:], strict=True):
        if left < 0 <= right:
            return float(a + (b - a) * left / (left - right))
    return math.nan


def _similarity(table: pd.DataFrame) -> Iterable[Claim]:
    claim = "Merged sub-classes that resemble one another lose their structure"
    coarse = 4
    near, far = (similarity(table, f"msdr_{group}", coarse) for group in ("similar", "dissimilar"))
    if not near:
        yield Claim("A18", claim, SIMILARITY, "MSDR of the similar pairs", [], high=1.35)
        return
    below = math.nextafter(1.35, 0)
    arms = {t: (f"similar {t:g}, {coarse} labels",) for t in near}
    every = [name for one in arms.values() for name in one]
    compared = []
    for t in (t for t in near if t <= 0.25):
        quantity = f"tau^2 = {t:g}: MSDR of similar pairs"
        yield Claim("A18", claim, SIMILARITY, quantity, near[t], high=below, arms=arms[t])
        # Reported: means of a seed scatter it by a factor of two (a band of "above 5" was met by chance).
        quantity = f"tau^2 = {t:g}: MSDR of dissimilar pairs"
        yield Claim("A18", claim, SIMILARITY, quantity, far[t], arms=arms[t])
        quantity = f"tau^2 = {t:g}: MSDR of dissimilar minus similar pairs"
        compared.append(Claim("A18", claim, SIMILARITY, quantity, far[t] - near[t], ABOVE_ZERO, judged="interval"))
        compared[-1] = replace(compared[-1], arms=arms[t])
    yield from together(compared)
    both = [np.array([group[t] for t in near]) for group in (near, far)]
    tau2 = list(near)
    rho = [rank_correlation(tau2, column) for column in both[0].T]
    quantity = "similar pairs: Spearman's rho with tau^2"
    yield Claim("A18", claim, SIMILARITY, quantity, rho, 1 - 1e-12, arms=every)
    change = both[1].max(0) / both[1].min(0) - 1
    quantity = "dissimilar pairs: relative range of MSDR over tau^2"
    yield Claim("A18", claim, SIMILARITY, quantity, change, high=0.05, arms=every)
    meet = [crossing(tau2, column) for column in (both[0] - both[1]).T]
    yield Claim("A18", claim, SIMILARITY, "tau^2 at which the two curves cross", meet, 3, 8, arms=every)
    for group, end in (("similar", near), ("dissimilar", far)):
        inputs = similarity(table, f"input_msdr_{group}", coarse)
        for t in (min(tau2), max(tau2)):
            quantity = f"tau^2 = {t:g}: MSDR of {group} pairs, end / inputs"
            yield Claim("A18", claim, SIMILARITY, quantity, ratio(end[t], inputs.get(t)), arms=arms[t])


# ---------------------------------------------------------------- Theorem 7.1


def theorem(table: pd.DataFrame) -> pd.DataFrame:
    """Runs of the example exponents, in reduced coordinates."""
    rows = table[(table["model"] == "theorem") & (table["setting"] != SMALL_STEPS)]
    return rows[rows["separation"].isna() & (rows["coordinates"] == "reduced")]


def separations(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["setting"].str.startswith("separation")]


def by_clock(rows: pd.DataFrame, key: str, measure: str, s: float) -> dict[float, np.ndarray]:
    """A measure at clock s by the value of `key`, one number per seed."""
    if rows.empty:
        return {}
    rows = rows[np.isclose(rows["clock"], s) | (rows["event"] == "diverged")]
    return {v: part.sort_values("seed")[measure].to_numpy(float) for v, part in rows.groupby(key)}


def _theorem(table: pd.DataFrame) -> Iterable[Claim]:
    yield from _direction(table)
    rows = separations(table)
    claim = "The ratio of distances grows with the separation of the clusters (outside the theorem's conditions)"
    middle, inputs = by_clock(rows, "separation", "ratio", 2), by_clock(rows, "separation", "input_ratio", 0)
    medians = np.array([np.median(part) for part in middle.values()])
    rises = [float((medians[1:] / medians[:-1]).min())] if len(medians) > 1 else []
    seeds = min(map(len, middle.values()), default=0)
    quantity = "smallest ratio of neighbouring medians at s = 2, tau / sqrt d = 1, 2, 4, 8"
    yield Claim("A20", claim, THEOREM, quantity, rises, ABOVE_ONE, seeds=seeds, arms=names(rows))
    late = by_clock(rows, "separation", "ratio", 5), by_clock(rows, "separation", "ratio", 20)
    for value, part in middle.items():
        own = {"seeds": seeds, "arms": names(rows, separation=value)}
        quantity = f"tau / sqrt d = {value:g}: median at s = 2 / median of the inputs"
        yield Claim("A20", claim, THEOREM, quantity, [_fold(part, inputs[value])], 3, **own)
        if value in late[0] and value in late[1]:
            quantity = f"tau / sqrt d = {value:g}: median at s = 20 / at s = 5"
            yield Claim("A20", claim, THEOREM, quantity, [_fold(late[1][value], late[0][value])], **own)
    claim = "The ratio grows as d^0.06 under the example's exponents"
    last = {d: part for d, part in by_clock(theorem(table), "dimension", "ratio", 5).items() if d >= 1e4}
    enough = len(last) > 2 and max(last) / min(last) >= 0.999e4
    slopes = slope_with_interval(last) if enough else None
    shown = f"d = {min(last):g} to {max(last):g}" if enough else "4 decades of d"
    own = {"seeds": min(map(len, last.values()), default=0), "arms": names(theorem(table), dimension=list(last))}
    for i, word in enumerate(("slope of ln ratio on ln d at s = 5", "its 2.5 % end", "its 97.5 % end")):
        yield Claim("A21", claim, "(A.15)", f"{word}, {shown}", [slopes[i]] if slopes else [], **own)
    yield from _inside(table)


def _inside(table: pd.DataFrame) -> Iterable[Claim]:
    """Where the conditions hold, but that on the step; the inputs alone satisfy the theorem there."""
    claim = "Where the theorem's conditions hold, the ratio exceeds its bound: as the inputs' does"
    bound = Settings(model="theorem", **LITERAL).bound
    for word, grown in (
        ("ratio at s = 1", at(table, LITERALLY, "ratio")),
        ("the inputs' ratio", at(table, LITERALLY, "input_ratio", step=0)),
    ):
        quantity = f"d = 1e30: {word} / bound ({bound:.3g})"
        yield Claim("T7.1", claim, "(A.15)", quantity, grown / bound, 1, kind="identity", arms=(LITERALLY,))
    rows = table[table["setting"] == INSIDE]
    share = by_clock(rows, "dimension", "triples", 0), by_clock(rows, "dimension", "triples", 1)
    for word, found in zip(("step 0", "s = 1"), share, strict=True):
        values = next(iter(found.values()), [])
        quantity = f"d = 1e12: triples in order, share, at {word}"
        yield Claim("T7.1", claim, THEOREM, quantity, values, 1, 1, kind="identity", arms=(INSIDE,))
    claim = "Where the theorem's conditions hold, training adds to the inputs' ratio"
    ratios = next(iter(by_clock(rows, "dimension", "ratio", 1).values()), np.empty(0))
    quantity = "d = 1e12: ratio at s = 1 / of the inputs"
    values = ratio(ratios, at(table, INSIDE, "input_ratio", step=0)) if len(ratios) else []
    yield Claim("A19-inside", claim, OWN, quantity, values, ABOVE_ONE, arms=(INSIDE,))


def _fold(over: np.ndarray, under: np.ndarray) -> float:
    return float(np.median(over) / np.median(under))


def _direction(table: pd.DataFrame) -> Iterable[Claim]:
    claim = "Samples of one cluster come closer than the two clusters of their label (s = 5: most units are linear)"
    arms = {f"theorem, d {d:g}": d in DIMENSIONS for d in sorted(set(theorem(table)["dimension"]))}
    arms = {**arms, "theorem, d 4096, full": True}
    for arm, judged in arms.items():
        end, start = at(table, arm, "ratio"), at(table, arm, "ratio", step=0)
        inputs, worst = at(table, arm, "input_ratio", step=0), at(table, arm, "worst_ratio")
        label = arm.removeprefix("theorem, ")
        for quantity, found, low in (
            ("median ratio at s = 5 / at step 0", _fold(end, start) if len(end) else None, 1.5),
            ("median ratio at s = 5 / of the inputs", _fold(end, inputs) if len(end) else None, ABOVE_ONE),
            ("median of min inter / max intra at s = 5", np.median(worst) if len(end) else None, ABOVE_ONE),
        ):
            values = [] if found is None else [float(found)]
            low = low if judged else -math.inf
            yield Claim("A19", claim, THEOREM, f"{label}: {quantity}", values, low, seeds=len(end), arms=(arm,))
        quantity = f"{label}: pre-activations above 1 at s = 5, share"
        yield Claim("A19", claim, THEOREM, quantity, at(table, arm, "linear"), arms=(arm,))
    yield from _times(table, (*arms, SMALL_STEPS, INSIDE))


def _times(table: pd.DataFrame, arms: Iterable[str]) -> Iterable[Claim]:
    """The theorem's statement at its printed time, and before; the proof's time exists in no arm that could fail."""
    claim = "Paper: at the theorem's time, T = 1/(eta omega^3), every triple of samples is in order"
    for arm in arms:
        label, own = arm.removeprefix("theorem, "), {"arms": (arm,)}
        seen, inputs = at(table, arm, "settled_at"), at(table, arm, "input_ratio", step=0)
        cubic = np.isfinite(at(table, arm, "ratio")) & np.isnan(seen) if len(seen) else np.empty(0)
        untested = unmet((not cubic.any(), f"{cubic.sum()} of {len(cubic)} seeds: units still in the cubic part"))
        quantity, values = f"{label}: triples in order at T, share", at(table, arm, "late_triples")
        yield Claim("A19-paper", claim, THEOREM, quantity, values, 1, 1, untested=untested, **own)
        quantity, values = f"{label}: ratio at T / of the inputs", ratio(at(table, arm, "late_ratio"), inputs)
        yield Claim("A19-paper", claim, THEOREM, quantity, values, **own)
        yield Claim("A19-paper", claim, THEOREM, f"{label}: s by which all units are linear", seen, **own)
        for s, measure, word in (
            (1, "triples", "triples in order, share"),
            (1, "linear", "pre-activations above 1, share"),
            (1, "ratio", "ratio / of the inputs"),
            (5, "triples", "triples in order, share"),
        ):
            found = next(iter(by_clock(table[table["setting"] == arm], "dimension", measure, s).values()), [])
            found = ratio(found, inputs) if measure == "ratio" and len(found) else found
            if len(found) or s == 1:
                yield Claim("A19-paper", claim, THEOREM, f"{label}: {word}, before T at s = {s}", found, **own)
    claim = "Paper: at the time of its proof, about 1/(2 eta tau^3 omega sqrt(log 4m)), every triple is in order"
    untested = "that time is positive only where 4 tau omega sqrt(log 4m) < 1: at d = 1e30, before step 2 (see T7.1)"
    yield Claim("A19-proof", claim, "Appendix A", "triples in order, share", [], 1, 1, untested=untested)


def slope_with_interval(by_dimension: dict[float, np.ndarray], draws: int = 2000) -> tuple[float, float, float]:
    """Slope of ln(median over seeds) on ln d, and the ends of its 95 % bootstrap interval over seeds."""
    x, rng = np.log(list(by_dimension)), np.random.default_rng(0)
    parts = list(by_dimension.values())

    def slope(samples: list[np.ndarray]) -> float:
        return float(np.polyfit(x, np.log([np.median(part) for part in samples]), 1)[0])

    drawn = [slope([rng.choice(part, len(part)) for part in parts]) for _ in range(draws)]
    return slope(parts), *(float(v) for v in np.percentile(drawn, [2.5, 97.5]))


def _inputs(table: pd.DataFrame) -> Iterable[Claim]:
    found = at(table, "inputs only", "input_msdr")
    claim, quantity = "Raw inputs have MSDR 1 + sigma^2 for any d", "sigma^2 = 4, d = 512: MSDR of inputs"
    own = {"kind": "identity", "arms": ("inputs only",)}
    yield Claim("U3", claim, OWN, quantity, found, 4.85, 5.15, "mean", **own)


# ---------------------------------------------------------------- the crossing: granularity of labels


def _crossing(table: pd.DataFrame) -> Iterable[Claim]:
    """Labels: 2, 4 (coarse), 8 (natural), 16 (random halves). MSDR: of the pairs that 4 labels merge."""
    source, rows = "crossing", family(ends(table), "labels")
    found = cells(rows, "labels")
    many = sorted({s for _, s in found})
    claim = "Natural labels drive pairs of clusters further apart than coarse labels that merge them"
    for s in many:
        quantity = f"sigma^2 = {s:g}: MSDR, 8 labels / 4 labels"
        own = {"kind": "identity", "arms": names(rows, labels=[4, 8], sigma2=s)}  # it is what 8 labels train for
        yield Claim("X1", claim, source, quantity, ratio(found.get((8, s)), found.get((4, s))), ABOVE_ONE, **own)
    for id, claim, fine, coarse in (
        ("X2", "Labels finer than nature (random halves of clusters)", 16, 8),
        ("X3", "Labels coarser still (four clusters a label)", 2, 4),
    ):
        compared = []
        for s in many:
            quantity = f"sigma^2 = {s:g}: MSDR, {fine} labels / {coarse} labels, minus 1"
            own = {"judged": "interval", "arms": names(rows, labels=[fine, coarse], sigma2=s)}
            compared.append(Claim(id, claim, source, quantity, ratio(found.get((fine, s)), found.get((coarse, s))) - 1))
            compared[-1] = replace(compared[-1], **own)
        yield from together(compared)
    claim = "Labels finer than nature (random halves of clusters)"
    for measure, word in (
        ("accuracy", "training accuracy"),
        ("split_f1", "F1: distance of halves / within a half"),
        ("split_f2", "F2: distance of halves / of clusters"),
    ):
        values = cells(rows, "labels", measure).get((16, 2.0), [])
        own = {"arms": names(rows, labels=16, sigma2=2.0)}
        yield Claim("X2", claim, source, f"sigma^2 = 2, 16 labels: {word}, at the end", values, **own)
    claim = "With overlapping clusters, natural labels teach features that tell more of them apart"
    natural = cells(rows, "labels", "natural_accuracy")
    s = min(many, default=0.1)
    enough = (8, s) in natural and (4, s) in natural
    count = min(len(natural[8, s]), len(natural[4, s])) if enough else 0
    gain = natural[8, s][:count] - natural[4, s][:count] if enough else []
    quantity = f"sigma^2 = {s:g}: held-out accuracy on natural classes, "
    own = {"judged": "interval", "arms": names(rows, labels=[4, 8], sigma2=s)}
    yield from together([Claim("X4", claim, source, f"{quantity}8 labels - 4 labels", gain, ABOVE_ZERO, **own)])
    for labels in (2, 4, 8, 16):
        values, own = natural.get((labels, s), []), {"arms": names(rows, labels=labels, sigma2=s)}
        yield Claim("X4", claim, source, f"{quantity}{labels} labels", values, **own)
    start = family(_starts(table), "labels")
    for measure, word in (("natural_accuracy", "at step 0"), ("input_natural_accuracy", "from inputs")):
        values, own = cells(start, "labels", measure).get((4, s), []), {"arms": names(rows, labels=4, sigma2=s)}
        yield Claim("X4", claim, source, quantity + word, values, **own)
    claim = "Natural labels restore the structure that similarity suppresses under coarse labels"
    coarse, fine = (similarity(table, "msdr_similar", labels) for labels in (4, 8))
    for t in coarse or (0.05,):
        quantity = f"tau^2 = {t:g}: MSDR of similar pairs, 8 labels / 4 labels"
        own = {"kind": "identity", "arms": [f"similar {t:g}, {labels} labels" for labels in (4, 8)]}
        yield Claim("X5", claim, source, quantity, ratio(fine.get(t), coarse.get(t)), ABOVE_ONE, **own)
