"""What the pages' tables are made of: errors by backbone, comparisons, predictions, and rows in Markdown."""

import math
from pathlib import Path

import pandas as pd
import yaml

from granularity.claims.statistics import interval, p_value, paired

HERE = Path(__file__).parent
PREDICTIONS = HERE.parents[1] / "config" / "preregistrations"
BASELINE, ONCE = "target", "once"


def backbones(name: str) -> pd.DataFrame:
    seeds = {file.stem: pd.read_csv(file) for file in sorted((HERE / name).glob("*.csv"))}
    if seeds:
        return pd.concat([one.assign(pretrain_seed=int(seed)) for seed, one in seeds.items()], ignore_index=True)
    return pd.read_csv(HERE / f"{name}.csv")


def arms(name: str, condition: str) -> pd.DataFrame:
    """Errors after finetuning, a row per pair and a column per arm; `once`: the target in one pass."""
    table = backbones(name).query("condition == @condition")
    once = (table["space"] == BASELINE) & table["transfer"].isna()
    if table["network"].str.startswith(ONCE).any():  # a network of its own, with the budget of both stages
        once &= table["network"].str.startswith(ONCE)
    kept = table[once | table["transfer"].notna()]
    return kept.assign(space=kept["space"].mask(once, ONCE)).pivot(
        index="pretrain_seed", columns="space", values="error"
    )


def compared(pairs: dict[str, tuple[pd.Series, pd.Series]]) -> pd.DataFrame:
    """Each pair's difference in points, its interval at 95 % corrected for their number (Bonferroni), and its p."""
    found = {}
    for name, (arm, against) in pairs.items():
        difference = paired(arm, against)
        low, high = interval(*difference, len(pairs))
        found[name] = {"arm": arm.name, "against": against.name, "difference": difference.difference}
        found[name] |= {"low": low, "high": high, "pairs": difference.pairs, "p": p_value(*difference)}
    return pd.DataFrame.from_dict(found, orient="index")


def signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")  # no -0.00


def shown(row: pd.Series) -> str:
    if pd.isna(row["low"]):
        return f"{signed(row['difference'])} in each"
    mark = "**" if row["low"] > 0 or row["high"] < 0 else ""
    return f"{mark}{signed(row['difference'])}{mark} [{signed(row['low'])}, {signed(row['high'])}]"


def lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"|{'|'.join(row)}|" for row in [head, ["---"] * len(head), *rows])


def predictions(name: str) -> dict[str, dict]:
    return yaml.safe_load((PREDICTIONS / f"{name}.yaml").read_text(encoding="utf-8"))["predictions"]


def ends(band: str) -> tuple[float, float]:
    """Both ends of a band in words, such as `< 1.2`, `>= 5` or `0.67 to 1.5`; what is excluded lies beyond them."""
    if " to " in band:
        return tuple(map(float, band.split(" to ")))
    sign, limit = band[0], float(band.split()[1])
    outward = math.inf if sign == ">" else -math.inf
    limit = limit if "=" in band else math.nextafter(limit, outward)
    return (limit, math.inf) if sign == ">" else (-math.inf, limit)


def scored(row: pd.Series, said: dict) -> list[str]:
    """A prediction, the difference that came out, and whether it lies inside, below or above the predicted range."""
    p = "" if pd.isna(row["holm"]) else "< 0.001" if row["holm"] < 0.001 else f"{row['holm']:.3f}"
    return [f"{signed(said['low'])} to {signed(said['high'])}", shown(row), p, inside(row["difference"], said)]


def inside(value: float, said: dict) -> str:
    return "below" if value < said["low"] else "above" if value > said["high"] else "inside"


SCORED = ["predicted", "came out", "Holm's p", "it lies"]
