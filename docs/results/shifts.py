"""Tables for docs/neighbours.md about shifted test images."""

from collections.abc import Callable

import pandas as pd
from tables import BASELINE, compared, outcomes, predictions, read

from granularity.look.robustness import effective_robustness

OVER = {"borders": ["red", "mean", "inverted"], "colour": ["hue", "grey"], "noise": ["noise", "noisier"]}
OVER |= {"blur": ["blur", "blurrier"]}


def errors_of(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """Errors of networks, a column per split: rows `repetition` (the draw) and `arm`, NETWORK/SPACE/EPOCH."""
    table = table.query("key == @key").rename(columns={"draw": "repetition"})
    epoch = table["epoch"].map("{:.0f}".format)
    arm = table["network"].fillna("encoder") + "/" + table["space"].replace(BASELINE, "coarse") + "/" + epoch
    found = table.assign(arm=arm).pivot(index=["repetition", "arm"], columns="split", values="value")
    return found.rename(columns=lambda split: split.removeprefix("test-"))


def pairs_of(name: str, number: Callable) -> dict[str, tuple[pd.Series, pd.Series]]:
    """By prediction, the numbers of its two arms; `number` gives that of each base seed, of an arm and a prediction."""
    return {key: (number(one["arm"], one), number(one["against"], one)) for key, one in predictions(name).items()}


def judged(name: str, pairs: dict[str, tuple[pd.Series, pd.Series]]) -> str:
    """What was predicted of numbers, and what came out."""
    said, heads = predictions(name), ["", "arm", "against"]
    return outcomes(heads, compared(pairs), said, lambda key, row: [key, said[key]["arm"], said[key]["against"]])


def distilled_pairs() -> dict[str, tuple[pd.Series, pd.Series]]:
    """Effective robustness of networks distilled from an encoder and of the encoder, in points; and their errors."""
    errors = errors_of(read("cifar10_shifts"), "class/linear")
    shifts = {"shifts": [split for splits in OVER.values() for split in splits], **OVER}
    errors = errors.assign(**{f"all {name}": errors[splits].mean(axis=1) for name, splits in shifts.items()})
    arms = errors.index.unique("arm")
    robust = effective_robustness(errors, arms[arms.str.contains("/coarse/")])

    def number(arm: str, one: dict) -> pd.Series:
        table = errors if one["of"].startswith("error") else robust
        column = one["of"].removeprefix("error, ")
        known = {"encoder": "encoder/embedding/nan", "line": "encoder/embedding/nan"}.get(arm, f"{arm}/distil/16")
        return (table.xs(known, level="arm")[column] * (arm != "line")).rename(arm)

    return pairs_of("cifar10_shifts", number)


def distilled() -> str:
    return judged("cifar10_shifts", distilled_pairs())


def grounded(ground: str) -> pd.DataFrame:
    """Of networks trained on backgrounds, the effective robustness under each shift, mean over epochs.

    Rows: `repetition` and `cell`, such as `two labels, own`. The line is through all networks with two labels.
    """
    errors = errors_of(read("cifar10_backgrounds").query("background == @ground"), "error").rename(
        columns={"val": "none"}
    )
    arms = errors.index.unique("arm")
    robust = effective_robustness(errors, arms[arms.str.contains("/coarse/")], [ground])
    parts = arms.to_series().str.split("/")
    cells = parts.map(lambda one: f"{'two' if one[1] == 'coarse' else 'ten'} labels, {one[0]}")
    cell = robust.index.get_level_values("arm").map(cells).rename("cell")
    return robust.groupby([robust.index.get_level_values("repetition"), cell]).mean()


def backgrounds() -> str:
    """What ten labels do to effective robustness, against two, where the labels share units and where they do not."""
    robust = {ground: grounded(ground) for ground in ("shared", "grouped")}

    def relief(ground: str, shift: str, units: str) -> pd.Series:
        fine, coarse = (
            robust[ground].xs(f"{number} labels, {units}", level="cell")[shift] for number in ("ten", "two")
        )
        return fine - coarse

    def number(units: str, one: dict) -> pd.Series:
        first = relief(one["under"], one["to"], "own")
        return (0 * first if units == "none" else relief(one["under"], one["to"], units)).rename(units)

    return judged("cifar10_backgrounds", pairs_of("cifar10_backgrounds", number))
