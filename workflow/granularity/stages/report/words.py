"""The answers behind the page, and numbers in words. Sentences are in the templates: nothing is written beforehand."""

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

from granularity.stages.report.comparisons import answer

# ---------------------------------------------------------------- numbers


def listing(items: Iterable[object]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = [str(item) for item in items] or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def count(number: int, word: str, plural: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """A number with thousands separated and a real minus, `+`: with its sign; an en dash where there is none."""
    return "–" if pd.isna(value) else f"{value:{sign},.{digits}f}".replace("-", "−")


signed = functools.partial(number, sign="+")


def interval(low: float, high: float, none: str = "–") -> str:
    """Both ends of an interval of a difference, or what to say where there is none."""
    return none if pd.isna(low) else f"{signed(low)} to {signed(high)}"


def share(value: float | None) -> str:
    """A share as a percentage."""
    return "–" if pd.isna(value) else f"{100 * value:.1f} %"


def points(difference: float) -> str:
    """`0.70 points below`."""
    return f"{abs(difference):.2f} points {'below' if difference < 0 else 'above'}"


# ---------------------------------------------------------------- answers


def finer(results: pd.DataFrame) -> pd.DataFrame:
    """Label spaces with a meaning that are finer than the target: not what has no labels, or no baseline.

    They are what the question is about: the headline, and every mark of better or worse on the page, are theirs alone.
    """
    arms = results[(results["role"] == "arm") & ~results["meaningless"].astype(bool)]
    size = results[results["role"] == "baseline"].set_index("label")["granularity"]
    return arms[arms["granularity"].astype(float) > arms["label"].map(size).astype(float)]


def cases(results: pd.DataFrame) -> list[dict[str, Any]]:
    """What is said of each baseline: its `answer` (a key of `ANSWERS`), the number of `arms`, and the best arm's row.

    Without an interval there is no best arm, and no `space`.
    """
    found = []
    for label, part in results.groupby("label", sort=False):
        arms = finer(part)
        said = answer(arms)
        held = arms[arms["standing"] == "better"] if said == "yes" else arms[arms["low"].notna()]
        best = held.sort_values("difference", kind="stable").head(1).to_dict("records")
        about = {key: part[key].iloc[0] for key in ("train_images", "transfer", "baseline_mean")}
        picked = {"label": label, "answer": said, "arms": int(arms["repeats"].isna().sum())}
        found.append((best[0] if best else {}) | about | picked)
    return found


def headline(results: pd.DataFrame, compared: pd.DataFrame) -> dict[str, Any]:
    """The answer, and what the sentences that go with it take.

    Where comparisons were declared beforehand: `primary`, their rows; the first of them gives the `answer`. Else:
    `answer`, a key of `ANSWERS`; `best`, the arm's row of `results`, with `names`, its own and those of label spaces
    that part the images alike; `control`, its control's row or None; `averages`, see :func:`meaning`, of its baseline;
    `elsewhere`, other baselines, or how many, and their answer. Without an arm or an interval only `answer` and `why`.
    """
    if declared := compared[compared["question"] == "primary"].to_dict("records"):
        baseline = results.set_index(["label", "network", "space"])["baseline_mean"]
        first = pd.DataFrame(declared[:1])
        mean = baseline.loc[tuple(first[["label", "network", "space"]].iloc[0])]
        return {"why": "", "answer": answer(first.assign(baseline_mean=mean)), "primary": declared}
    arms, every = finer(results), cases(results)
    found = answer(arms)
    told = [case for case in every if "space" in case]
    if not told:
        return {"answer": "open", "why": "no arm" if arms.empty else "no interval"}
    best = min(told, key=lambda case: (case["answer"] != found, case["difference"]))
    own = {key: [best[key]] for key in ("label", "network")}
    same, averages = (table[table[[*own]].isin(own).all(axis=1)] for table in (results, compared))
    others = [(case["label"], case["answer"]) for case in every if case["arms"] and case["label"] != best["label"]]
    if len(others) > 2:  # the sections have each
        others = [(f"{number} times", one) for one, number in Counter(one for _, one in others).items()]
    control = None if pd.isna(best["control"]) else same.set_index("space").loc[best["control"]].to_dict()
    best |= {"names": " = ".join([best["space"], *same.loc[same["repeats"] == best["space"], "space"]])}
    said = {"why": "", "answer": found, "best": best, "control": control}
    return said | {"averages": meaning(averages), "elsewhere": others}


def meaning(compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Whether meaning counts beside number: the average over pairs of each baseline, network and kind of pair."""
    answers = {"better": "yes", "worse": "no"}
    rows = compared[compared["question"] == "meaning"].to_dict("records")
    return [row | {"answer": answers.get(row["standing"], "open")} for row in rows]
