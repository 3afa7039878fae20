"""Tables of docs/reference/tables.md about Shi, Wei and Liang 2022: students of a teacher, and filters."""

import itertools

import pandas as pd
from tables import inside, lines, predictions, read

EPOCH = 16  # a student's last
SIZES = ("width-2", "width-5", "width-9", "width-16")
HEAD = ["", "predicted", "came out (range over base seeds)", "it lies"]


def row(name: str, said: dict, values: pd.Series) -> list[str]:
    """What was predicted, what came out, and whether its mean lies inside."""
    came = f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"
    return [name, f"{said['low']} to {said['high']}", came, inside(values.mean(), said)]


def student_values() -> dict[str, pd.Series]:
    """Differences between parts of test inputs and between students, by prediction."""
    table = read("cifar10_students")
    wide = table[table["measure"] == "students"].pivot_table(index="draw", columns="key", values="value")

    def number(key: str) -> pd.Series:
        return wide[key if key in wide else f"{key}/{EPOCH}"]

    said = predictions("cifar10_students")
    return {key: number(one["of"]) - (number(one["minus"]) if "minus" in one else 0) for key, one in said.items()}


def students() -> str:
    """What was predicted of students, and the size that the rule selects."""
    table, said = read("cifar10_students"), predictions("cifar10_students")
    rows = [row(key, said[key], values) for key, values in student_values().items()]
    errors = table[table["measure"] == "val_error"].groupby("network")["value"].mean()[[*SIZES]]
    rises = [one <= other for one, other in itertools.pairwise(errors)]
    selected = SIZES[[*rises, True].index(True)].removeprefix("width-")
    curve = ", ".join(f"{size.removeprefix('width-')}: {value:.1f}" for size, value in errors.items())
    return lines(HEAD, [*rows, ["size by the rule; errors by size", "", f"{selected} ({curve})", ""]])


def filter_values() -> dict[str, pd.Series]:
    """Clusters, ways and early gradients of filters, by prediction."""
    table = pd.concat([read(f"cifar10_filters/{one}") for one in ("results", "measures")])
    names = table["key"].str.extract(r"(?P<layer>(?:hidden|layer\d\.0\.conv2))/(?P<key>\w+)$")
    table["layer"], table["key"] = table["layer"].fillna(names["layer"]), names["key"].fillna(table["key"])

    def number(said: dict, epoch: int) -> pd.Series:
        of = table[(table["network"] == said["network"]) & (table["key"] == said["of"]) & (table["epoch"] == epoch)]
        of = of if said["layer"] == "all" else of[of["layer"] == said["layer"]]
        return of.groupby("draw")["value"].mean()

    return {
        key: number(one, one["epoch"]) - (number(one, one["minus"]) if "minus" in one else 0)
        for key, one in predictions("cifar10_filters").items()
    }


def filters() -> str:
    said = predictions("cifar10_filters")
    return lines(HEAD, [row(key, said[key], values) for key, values in filter_values().items()])
