"""What the pages' tables are made of: errors by backbone, comparisons, predictions, and rows in Markdown."""

import importlib
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import yaml

from granularity.claims.statistics import holm, interval, p_value, paired

HERE = Path(__file__).parent
STUDIES = HERE.parents[1] / "studies"
BASELINE, ONCE = "target", "once"
ADDS_TO = {"cifar10_once_long": "cifar10_merged_long"}


def table_of(name: str) -> Path:
    """`STUDY`: the table of a study's results; `STUDY/FILE`: another table in its folder."""
    study, _, file = name.partition("/")
    return STUDIES / study / f"{file or 'results'}.csv"


def read(name: str) -> pd.DataFrame:
    """The table of a study; of one that adds arms to another, both."""
    found = pd.read_csv(table_of(name))
    return pd.concat([read(ADDS_TO[name]), found], ignore_index=True) if name in ADDS_TO else found


def predictions_of(study: str) -> Path:
    return STUDIES / study / "predictions.yaml"


def backbones(name: str) -> pd.DataFrame:
    """Errors of a study, a row per backbone; `pretrain_seed`: in a study of draws, the draw."""
    return read(name).rename(columns={"draw": "pretrain_seed"})


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


def compared(
    pairs: dict[str, tuple[pd.Series, pd.Series]], of: Callable = lambda name, numbers: numbers
) -> pd.DataFrame:
    """Each pair's difference in points, its interval at 95 % corrected for their number (Bonferroni), p and Holm's;
    `of` corrects the error of a difference.
    """
    found = {}
    for name, (arm, against) in pairs.items():
        difference = of(name, paired(arm, against))
        low, high = interval(*difference, len(pairs))
        found[name] = {"arm": arm.name, "against": against.name, "difference": difference.difference}
        found[name] |= {"low": low, "high": high, "pairs": difference.pairs, "p": p_value(*difference)}
    table = pd.DataFrame.from_dict(found, orient="index")
    return table.assign(holm=holm(table["p"]))


def signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")  # no -0.00


def ranged(said: dict) -> str:
    return f"{signed(said['low'])} to {signed(said['high'])}"


def shown(row: pd.Series) -> str:
    if pd.isna(row["low"]):
        return f"{signed(row['difference'])} in each"
    mark = "**" if row["low"] > 0 or row["high"] < 0 else ""
    return f"{mark}{signed(row['difference'])}{mark} [{signed(row['low'])}, {signed(row['high'])}]"


WORDS = {  # patterns of identifiers of arms and measures, and what they mean
    r"manual-(.+)": r"\1",
    r"\w+_merged/target": "target, one stage",
    r"\w+_merged/manual-(.+)": r"\1, one stage",
    r"once": "target in one pass",
    r"once-(\d+)": r"only this data, \1 epochs",
    r"random-(\d+)": r"\1 random labels",
    r"random-superclass-(\d+)": r"\1 random labels per target class",
    r"random-parts-(\d+)": r"\1 random parts per class",
    r"random-instance": "a label per image",
    r"redrawn-(\d+)": r"class, \1 % redrawn",
    r"regrouped-(\d+)": r"\1 regrouped labels per target class",
    r"kmeans-(\d+)": r"\1 clusters",
    r"kmeans-class-(\d+)": r"\1 clusters per class",
    r"kmeans-superclass-(\d+)": r"\1 clusters per target class",
    r"rebalanced-G(\d+)": r"\1 rebalanced clusters",
    r"nearest-(\d+)-(\d+)": r"\2 nearest of \1 clusters",
    r"levels(?:-\d+)?": "all levels at once",
    r"distil": "encoder's embedding",
    r"mask": "masked pixels",
    r"agreement/cka": "CKA with other draws",
    r"agreement/knn": "shared neighbours with other draws",
    r"agreement/procrustes": "Procrustes similarity with other draws",
    r"(?:probe/)?(\w+)/linear": r"linear probe of the \1",
    r"(?:probe/)?(\w+)/knn": r"kNN probe of the \1",
    r"(?:collapse/)?(\w+)/cdnv": r"CDNV by \1",
    r"(?:collapse/)?(\w+)/nc1": r"NC1 by \1",
    r"(?:collapse/)?effective_rank": "effective rank",
    r"transferability/(\w+)/logme": r"LogME of the \1",
    r"transferability/(\w+)/h_score": r"H-score of the \1",
    r"transferability/(\w+)/leep": r"LEEP of the \1",
    r"transferability/(\w+)/nce": r"NCE of the \1",
    r"selectivity/(\w+)/mean": r"selectivity for the \1",
    r"robustness/(\w+)/none": r"probe of the \1, no shift",
    r"robustness/(\w+)/(red|inverted|mean)": r"probe of the \1, \2 border",
    r"robustness/(\w+)/(\w+)": r"probe of the \1, \2",
    r"error/(.+)": r"error, \1",
}


def worded(cell: str) -> str:
    """A cell that is an identifier, with what it means in words before it."""
    for pattern, words in WORDS.items():
        if found := re.fullmatch(pattern, cell):
            return f"{found.expand(words).replace('_', ' ')} (`{cell}`)"
    return cell


def lines(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; an identifier stands after its words, where it is first named."""
    known: set[str] = set()

    def named(cell: str) -> str:
        words = worded(cell).removesuffix(f" (`{cell}`)") if cell in known else worded(cell)
        known.add(cell)
        return words

    cells = [[named(cell) for cell in row] for row in [head, *rows]]
    return "\n".join(f"|{'|'.join(row)}|" for row in [cells[0], ["---"] * len(head), *cells[1:]])


def predictions(name: str, of: str = "predictions") -> dict[str, dict]:
    return yaml.safe_load(predictions_of(name).read_text(encoding="utf-8"))[of]


def code_of(study: str) -> ModuleType:
    """The code of a study: the module of its name in its folder."""
    if str(STUDIES / study) not in sys.path:
        sys.path.append(str(STUDIES / study))
    return importlib.import_module(study)


def simulated(study: str) -> pd.DataFrame:
    """The networks of a study of the theory, at the end of training."""
    return read(study).assign(phase="train", event="end")


def came_out(study: str) -> dict[str, tuple[float, str]]:
    """By prediction of a study of the theory, the mean over seeds and where it lies."""
    said, values = predictions(study), code_of(study).measured(simulated(study))
    return {name: (one.mean(), inside(one.mean(), said[name])) for name, one in values.items()}


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
    return [ranged(said), shown(row), p, inside(row["difference"], said)]


def inside(value: float, said: dict) -> str:
    return "below" if value < said["low"] else "above" if value > said["high"] else "inside"


SCORED = ["predicted", "came out", "Holm's p", "it lies"]


def outcomes(head: list[str], found: pd.DataFrame, said: dict, cells: Callable[[Any, pd.Series], list[str]]) -> str:
    """Differences that were predicted: cells of each, by its key and row, then the prediction and what came out."""
    return lines([*head, *SCORED], [[*cells(key, row), *scored(row, said[key])] for key, row in found.iterrows()])
