"""The answers behind the page, and numbers in words. Sentences are in the templates; none is written beforehand."""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from granularity.stages.report.comparisons import HEAD, MERGED_HEAD, answer, enough, reach

# ---------------------------------------------------------------- numbers


def listing(items: Iterable[object]) -> str:
    """Join items as `a`, `a and b`, `a, b and c`."""
    *first, last = [str(item) for item in items] or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def count(number: int, word: str, plural: str | None = None) -> str:
    """Format a count as `1 run`, `2 runs`."""
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """Format a number with thousands separators and a real minus (sign `+`: always signed); an en dash if missing."""
    return "–" if pd.isna(value) else f"{round(value, digits) + 0.0:{sign},.{digits}f}".replace("-", "−")  # no −0.00


signed = functools.partial(number, sign="+")


def interval(low: float, high: float, none: str = "–") -> str:
    """Format both ends of an interval of a difference; `none` if there is no interval."""
    return none if pd.isna(low) else f"{signed(low)} to {signed(high)}"


def share(value: float | None) -> str:
    """Format a share as a percentage."""
    return "–" if pd.isna(value) else f"{100 * value:.1f} %"


def borrowing(row: Mapping[str, Any], lenders: Mapping[str, Any]) -> str:
    """Return a row's network as ` (NETWORK)` if its baseline is another network's, by `label`; else nothing."""
    lender = lenders.get(row["label"])
    return f" ({row['network']})" if isinstance(lender, str) and row["network"] != lender else ""


def less(difference: float) -> str:
    """Describe a difference of errors, such as `0.70 points lower`."""
    return f"{abs(difference):.2f} points {'lower' if difference < 0 else 'higher'}"


# ---------------------------------------------------------------- answers


def finer(results: pd.DataFrame) -> pd.DataFrame:
    """Return label spaces with a meaning that are finer than the target; only these make the headline and the marks."""
    arms = results[(results["role"] == "arm") & ~results["meaningless"].astype(bool)]
    size = results[results["role"] == "baseline"].set_index("label")["granularity"]
    return arms[arms["granularity"].astype(float) > arms["label"].map(size).astype(float)]


def cases(results: pd.DataFrame) -> list[dict[str, Any]]:
    """Return for each baseline its `answer` (a key of `ANSWERS`), the number of `arms`, and the best arm's row."""
    rows = []
    for label, part in results.groupby("label", sort=False):
        arms = finer(part)
        reply = answer(arms)
        held = arms[arms["standing"] == "better"] if reply == "yes" else arms[arms["low"].notna()]
        best = held.sort_values("difference", kind="stable").head(1).to_dict("records")
        about = {key: part[key].iloc[0] for key in ("train_images", "transfer", "baseline_mean")}
        picked = {"label": label, "answer": reply, "arms": int(arms["repeats"].isna().sum())}
        rows.append((best[0] if best else {}) | about | picked)
    return rows


def headline(results: pd.DataFrame, compared: pd.DataFrame) -> dict[str, Any]:
    """Return the answer, and the values of the sentence that states it.

    `answer`, a key of `ANSWERS`; `shown`, the rows of `compared` behind it. If these were declared before the run,
    `primary`: the first of them gives the answer. Otherwise `best`, the arm's row of `results`, and `elsewhere`, other
    baselines (or how many) and their answers. `heads`, the comparisons of that arm's class head. Without an arm or an
    interval, `why` there is none. `few`: see :func:`too_few`, if that is why the question stays open.
    """
    values = {"why": "", "shown": compared.iloc[:0], "elsewhere": [], **_found(results, compared)}
    asked = values["shown"] if "primary" in values else compared[compared["question"] == "finer"]
    seen = asked["standing"].isin(["better", "worse"]).any()  # then there are enough for some difference
    unseen = len(asked) and not seen and values["answer"] == "open" and values["why"] != "no arm"
    few = too_few(asked) if unseen else None
    told = (values.get("primary") or [values.get("best")])[0]
    return values | {"few": few, "heads": [] if told is None else own_head(told, compared)}


def own_head(arm: dict[str, Any], compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what is known of an arm's class head without finetuning: rows of `compared`."""
    mask = (compared[["label", "network"]] == [arm["label"], arm["network"]]).all(axis=1)
    named = [form.format(arm["space"]) for form in (HEAD, MERGED_HEAD)]
    return compared[mask & compared["space"].isin(named)].to_dict("records")


def too_few(asked: pd.DataFrame) -> dict[str, Any] | None:
    """Return why there are too few backbones (see :func:`enough`) for jointly corrected comparisons; None if enough."""
    number, backbones = max(1, int(asked["repeats"].isna().sum())), int(asked["pairs"].max())
    needed = enough(number)
    if backbones >= needed:
        return None
    values = {"backbones": backbones, "enough": needed, "comparisons": number, "then": reach(needed, number)}
    return values | {"now": reach(backbones, number) if backbones > 1 else None}


def _found(results: pd.DataFrame, compared: pd.DataFrame) -> dict[str, Any]:
    declared = compared[compared["question"] == "primary"]
    if len(declared):
        keys, about = ["label", "network", "space"], ["series", "granularity", "baseline_mean"]
        rows = declared.merge(results[[*keys, *about]], on=keys, how="left")
        return {"answer": answer(rows.iloc[:1]), "primary": rows.to_dict("records"), "shown": declared}
    arms, all_cases = finer(results), cases(results)
    overall = answer(arms)
    told = [case for case in all_cases if "space" in case]
    if not told:
        return {"answer": "open", "why": "no arm" if arms.empty else "no interval"}
    best = min(told, key=lambda case: (case["answer"] != overall, case["difference"]))
    of_best = (compared[["label", "network", "space"]] == [best["label"], best["network"], best["space"]]).all(axis=1)
    others = [(case["label"], case["answer"]) for case in all_cases if case["arms"] and case["label"] != best["label"]]
    if len(others) > 2:  # the sections list each of them
        others = [(count(number, "time"), reply) for reply, number in Counter(reply for _, reply in others).items()]
    shown = compared[of_best & compared["question"].isin(["finer", "control"])]
    return {"answer": overall, "best": best, "shown": shown, "elsewhere": others}


def meaning(compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Return whether meaning matters besides number: the average over pairs per baseline, network and kind of pair."""
    answers = {"better": "yes", "worse": "no"}
    rows = compared[compared["question"] == "meaning"].to_dict("records")
    return [row | {"answer": answers.get(row["standing"], "open")} for row in rows]
