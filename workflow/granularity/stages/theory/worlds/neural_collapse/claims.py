"""World 2's claims (how to read their tables: `theory.statements`).

Claims about the theorem are judged on medians over seeds, trends in d and in the width on means (as the paper's
curves), and all others seed by seed. A curve without full training accuracy is reported and not judged.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from granularity.claims.claim import Claim, unmet
from granularity.stages.theory import statements
from granularity.stages.theory.statements import Runs, over
from granularity.stages.theory.worlds.neural_collapse.settings import INSIDE, JUDGED, LITERAL, SMALL_STEPS, Settings

ABOVE_ONE = math.nextafter(1, 2)  # the smallest low end that excludes 1
Curves = dict[float, dict[float, np.ndarray]]  # by value of a key and by sigma^2, one number per seed

DIMENSIONS = {f"d {d:g}": f"theorem, d {d:g}" for d in (4096, 1e4, 1e6, 1e8, 1e10)}  # judged up to 1e6
ARMS = {**DIMENSIONS, "d 4096, full": "theorem, d 4096, full"}
SEPARATIONS = {f"{s}": f"separation {s}" for s in (1, 2, 4, 8)}
SIMILAR = {f"{t:g}": f"similar {t:g}, 4 labels" for t in (0.05, 0.25, 1, 2, 4, 8)}
TAU2 = [float(t) for t in SIMILAR]
BOUND = Settings(model="theorem", **LITERAL).bound
# By sigma^2: labels 2, 4 (coarse, the default), 8 (natural) and 16 (random halves).
SIGMAS = {
    f"{s:g}": tuple(f"{labels}, sigma2 {s:g}" for labels in ("labels 2", "default", "labels 8", "labels 16"))
    for s in (0.02, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 4, 6, 8, 12, 16)
}
DEFAULTS = {s: arms[1] for s, arms in SIGMAS.items()}
FOUR_EIGHT = {s: arms[1:3] for s, arms in SIGMAS.items()}
NAMES: dict[str, Any] = dict(ARMS=ARMS, SEPARATIONS=SEPARATIONS, DEFAULTS=DEFAULTS, FOUR_EIGHT=FOUR_EIGHT)
NAMES |= dict(TIMES={**ARMS, "d 4096, small steps": SMALL_STEPS, INSIDE: INSIDE}, LARGE=tuple(DIMENSIONS.values())[1:])
NAMES |= dict(SEPARATED=tuple(SEPARATIONS.values()), ALL_SIMILAR=tuple(SIMILAR.values()))
NAMES |= dict(NEAR={t: SIMILAR[t] for t in ("0.05", "0.25")}, FARTHEST={t: SIMILAR[t] for t in ("0.05", "8")})
NAMES |= dict(NATURAL_SIMILAR={t: (arm, arm.replace("4 labels", "8 labels")) for t, arm in SIMILAR.items()})
NAMES |= dict(EIGHT_SIXTEEN={s: arms[2:] for s, arms in SIGMAS.items()})
NAMES |= dict(FOUR_TWO={s: arms[1::-1] for s, arms in SIGMAS.items()})
PROOF = "that time is positive only where 4 tau omega sqrt(log 4m) < 1: at d = 1e30, before step 2 (see T7.1)"


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge A14 to A21, U3 and the crossing X1 to X5 from the run table (see `Claim`)."""
    settings, tables, rows = Runs(table).settings, statements.tables("neural_collapse"), ends(table)
    least = next((s for s, arm in DEFAULTS.items() if arm in settings), "0.1")
    all_arms = dict(zip(("2 labels", "4 labels", "8 labels", "16 labels"), SIGMAS[least], strict=True))
    names = NAMES | {"PROOF": PROOF, "PAIR": FOUR_EIGHT[least], "EVERY": all_arms}
    functions = clock, clock_ratio, cubic, fold, later_over, meeting, order, relative_range, rising, slope
    grown = statements.judge(table, tables["grown"], names, *functions)
    rest = tables["rest"].replace("BOUND", str(BOUND)) + tables["crossing"].replace("LEAST", least)
    return [*_variance(rows), *grown, *_growth(rows), *_decay(rows), *statements.judge(table, rest, names, *functions)]


def ends(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of every run."""
    return table[table["event"].str.contains("end|diverged")]


def among(rows: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return rows of the arms with these prefixes; "default" and a key: arms that vary only this key and sigma^2."""
    return rows[rows["setting"].str.startswith(names)]


def curves(rows: pd.DataFrame, key: str, measure: str = "msdr") -> Curves:
    """Return a measure by the value of `key` and by sigma^2, seeds in order."""
    by_value: Curves = {}
    if measure in rows:
        for (value, s), part in rows.sort_values("seed").groupby([key, "sigma2"]):
            by_value.setdefault(value, {})[s] = part[measure].to_numpy(float)
    return by_value


def names(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(rows["setting"].unique())


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rho; NaN if any value is NaN."""
    return math.nan if np.isnan(y).any() else float(pd.Series(x).rank().corr(pd.Series(y).rank()))


def _variance(rows: pd.DataFrame) -> list[Claim]:
    claim = partial(Claim, "A14", "MSDR grows with the variance of the cluster means", "Appendix B")
    claims: dict[tuple[str, ...], Claim] = {}  # by their arms, because the default curve is in every family
    for key in ("d_in", "hidden", "decay", "lr", "init", "steps"):
        part = among(rows, "default", f"{key} ")
        msdr, accuracy = (curves(part, key, name) for name in ("msdr", "accuracy"))
        for value, curve in msdr.items():
            arms = names(part[part[key] == value])
            if arms in claims or len(curve) < max(map(len, msdr.values())):
                continue
            full = all((per_seed == 1).all() for per_seed in accuracy[value].values())
            judged = full and not (key == "lr" and value > 0.1)
            unjudged = " (reported: step size above 0.1)" if full else " (not tested: accuracy < 1)"
            label = "default" if arms[0].startswith("default") else f"{key} = {value:g}"
            quantity = f"{label}: Spearman's rho with sigma^2{'' if judged else unjudged}"
            rho = [rank_correlation(list(curve), seed) for seed in zip(*curve.values(), strict=False)]
            claims[arms] = claim(quantity, rho, 0.95 if judged else -math.inf, arms=arms)
    return list(claims.values()) or [claim("Spearman's rho with sigma^2", [], 0.95)]


def _growth(rows: pd.DataFrame) -> Iterable[Claim]:
    """Claim that mean MSDR at given sigma^2 rises between neighbouring values of a key, by 1.3 times in total."""
    wide, narrow = among(rows, "default", "d_in "), among(rows, "default", "hidden ")
    words, paper = "MSDR grows with the input dimension", "Paper: MSDR grows with the hidden width"
    for id, claim, part, key, word, least in (
        ("A15", f"{words} where sigma^2 >= 2", wide, "d_in", "d", 3),
        ("A15-paper", f"Paper: {words} (here: also where sigma^2 < 2)", wide, "d_in", "d", 3),
        ("A16", paper, narrow, "hidden", "width", 4),
        ("A16-mf", f"{paper}, under mean-field scaling", among(rows, "mean-field"), "hidden", "width", 4),
    ):
        msdr, accuracy = curves(part, key), curves(part, key, "accuracy")
        small = sorted({s for s in part["sigma2"] if s < min(JUDGED)})
        for s in small if id == "A15-paper" else JUDGED:
            at = {value: curve[s] for value, curve in msdr.items() if s in curve}
            new_claim = partial(Claim, id, claim, "Appendix B", arms=names(part[part["sigma2"] == s]))
            quantity, band = f"sigma^2 = {s:g}: mean MSDR, ", (ABOVE_ONE, 1.3)
            if len(at) < least:
                yield Claim(id, claim, "Appendix B", f"{quantity}{word} from least to most", [], band[1])
                continue
            if id != "A15-paper" and not all((accuracy[value][s] == 1).all() for value in at):
                quantity, band = f"not tested (accuracy < 1), {quantity}", (-math.inf, -math.inf)
            first, *_, last = at
            seeds = min(map(len, at.values()))
            mean = np.array([per_seed[:seeds].mean() for per_seed in at.values()])
            steps, shown = float((mean[1:] / mean[:-1]).min()), ", ".join(f"{value:g}" for value in at)
            yield new_claim(f"{quantity}smallest ratio of neighbours in {word} {shown}", [steps], band[0], seeds=seeds)
            yield new_claim(f"{quantity}{word} {last:g} over {first:g}", [mean[-1] / mean[0]], band[1], seeds=seeds)
            yield new_claim(f"sigma^2 = {s:g}: the same ratio, each seed", over(at[last], at[first]))
        for s in small if key == "hidden" else ():
            at = [value for value, curve in msdr.items() if s in curve]
            name = f"sigma^2 = {s:g}: MSDR, width {at[-1]:g} over {at[0]:g}, each seed"
            values = over(msdr[at[-1]][s], msdr[at[0]][s])
            yield Claim(id, claim, "Appendix B", name, values, arms=names(part[part["sigma2"] == s]))


def _decay(rows: pd.DataFrame) -> Iterable[Claim]:
    part = among(rows, "default", "decay ")
    msdr = curves(part, "decay")
    bounded = partial(Claim, "A17", "Weight decay has no effect where step size * decay * steps <= 0.05", "Appendix B")
    paper = partial(Claim, "A17-paper", "Paper: weight decay has no effect", "Appendix B")
    quantity = "largest |change of MSDR| over sigma^2, lr * decay * steps = {:g}"
    small, large = [], []
    for value, curve in msdr.items():
        if value > 0:
            total = value * float(part["lr"].iloc[0] * part["steps"].iloc[0])
            changes = [over(per_seed, msdr.get(0.0, {}).get(s, np.empty(0))) - 1 for s, per_seed in curve.items()]
            seeds, arms = min(map(len, changes)), names(part[part["decay"].isin([value, 0.0])])
            change = np.array([per_seed[:seeds] for per_seed in changes])
            largest = {"values": np.abs(change).max(0), "high": 0.05, "arms": arms}
            if total <= 0.05 * (1 + 1e-9):
                small.append(bounded(quantity.format(total), **largest))
                continue
            for word, end in (("largest", change.mean(1).max()), ("smallest", change.mean(1).min())):
                name = f"{word} mean change of MSDR over sigma^2, lr * decay * steps = {total:g}"
                large.append(bounded(name, [end], seeds=seeds, arms=arms))
            large.append(paper(quantity.format(total), **largest))
    yield from small or [bounded(quantity.format(0.05), [], high=0.05)]
    yield from large
    if not (small or large):
        yield paper(quantity.format(5), [], high=0.05)


def later_over(runs: Runs, one: str, other: str, of: str, less: str) -> np.ndarray:
    return over(runs(other, of), runs(one, of)) - float(less)


def _curves(runs: Runs, arms: Sequence[str], group: str) -> np.ndarray:
    """Return (tau^2, seeds) MSDR of the similar or the dissimilar pairs; without seeds unless all arms were run."""
    msdr = [runs(arm, f"msdr_{group}") for arm in arms]
    return np.array([per_seed[: min(map(len, msdr))] for per_seed in msdr])


def order(runs: Runs, *arms: str) -> list[float]:
    return [rank_correlation(TAU2, column) for column in _curves(runs, arms, "similar").T]


def relative_range(runs: Runs, *arms: str) -> np.ndarray:
    msdr = _curves(runs, arms, "dissimilar")
    return msdr.max(0) / msdr.min(0) - 1


def meeting(runs: Runs, *arms: str) -> list[float]:
    gap = _curves(runs, arms, "similar") - _curves(runs, arms, "dissimilar")
    return [crossing(TAU2, column) for column in gap.T]


def crossing(x: Sequence[float], difference: Sequence[float]) -> float:
    """Return where a difference first turns positive, linear between points; NaN if nowhere."""
    for a, b, left, right in zip(x[:-1], x[1:], difference[:-1], difference[1:], strict=True):
        if left < 0 <= right:
            return float(a + (b - a) * left / (left - right))
    return math.nan


def clock(runs: Runs, arm: str, measure: str, s: str | float) -> np.ndarray | None:
    """Return a measure at clock s; None (so no row) if the run did not reach an s above 2."""
    rows, (step,) = runs.rows(arm), runs.parameters(arm, "clock_step")
    at_clock = rows[(rows["step"] == np.rint(float(s) / step)) | (rows["event"] == "diverged")].sort_values("seed")
    return at_clock[measure].to_numpy(float) if len(at_clock) else None if float(s) > 2 else np.empty(0)


def clock_ratio(runs: Runs, arm: str, s: str) -> np.ndarray:
    return over(clock(runs, arm, "ratio", s), runs(arm, "input_ratio", step=0))


def fold(runs: Runs, arm: str, *of: str) -> dict[str, Any] | None:
    """Return the median of a measure ("ratio", or "ratio at s = 20"), or the ratio of the medians of two."""
    parts = [one.partition(" at s = ") for one in of]
    values = [clock(runs, arm, name, s) if s else runs.value(name, arm) for name, _, s in parts]
    if any(one is None for one in values):
        return None
    value = np.median(values[0]) / (np.median(values[1]) if values[1:] else 1.0) if len(values[0]) else None
    return {"values": [] if value is None else [value], "seeds": len(values[0])}


def cubic(runs: Runs, arm: str) -> str:
    """Return why the theorem's time is not reached; the proof's time exists in no arm that could fail."""
    seen = runs(arm, "settled_at")
    still = np.isfinite(runs(arm, "ratio")) & np.isnan(seen) if len(seen) else np.empty(0)
    return unmet((not still.any(), f"{still.sum()} of {len(still)} seeds: units still in the cubic part"))


def rising(runs: Runs, *arms: str) -> dict[str, Any]:
    ratios = [per_seed for arm in arms if len(per_seed := clock(runs, arm, "ratio", 2))]
    medians = np.array([np.median(per_seed) for per_seed in ratios])
    values = [(medians[1:] / medians[:-1]).min()] if len(medians) > 1 else []
    return {"values": values, "seeds": min(map(len, ratios), default=0)}


def slope(runs: Runs, *arms: str) -> dict[str, Any]:
    """Return the slope of ln(median over seeds) on ln d, or (last argument) an end of its 95 % bootstrap interval."""
    *arms, which = arms
    arms = [arm for arm in arms if arm in runs.settings]
    word = ("slope of ln ratio on ln d at s = 5", "its 2.5 % end", "its 97.5 % end")[int(which)]
    ratios = {runs.parameters(arm, "dimension")[0]: clock(runs, arm, "ratio", 5) for arm in arms}
    last = {d: per_seed for d, per_seed in ratios.items() if per_seed is not None}
    values, shown = [], "4 decades of d"
    if len(last) >= 3 and max(last) / min(last) >= 0.999e4:
        values, shown = [slope_with_interval(last)[int(which)]], f"d = {min(last):g} to {max(last):g}"
    seeds = min(map(len, last.values()), default=0)
    return {"values": values, "seeds": seeds, "arms": arms, "quantity": f"{word}, {shown}"}


def slope_with_interval(by_dimension: dict[float, np.ndarray], draws: int = 2000) -> tuple[float, float, float]:
    """Return the slope of ln(median over seeds) on ln d, and the ends of its 95 % bootstrap interval over seeds."""
    x, rng = np.log(list(by_dimension)), np.random.default_rng(0)
    parts = list(by_dimension.values())

    def slope(samples: list[np.ndarray]) -> float:
        return float(np.polyfit(x, np.log([np.median(part) for part in samples]), 1)[0])

    drawn = [slope([rng.choice(part, len(part)) for part in parts]) for _ in range(draws)]
    return slope(parts), *(float(v) for v in np.percentile(drawn, [2.5, 97.5]))
