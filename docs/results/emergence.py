"""Tables of docs/neighbours.md about Shi, Wei and Liang 2022: students of a teacher, and filters."""

import itertools

import pandas as pd
from tables import HERE, inside, lines, predictions

EPOCH = 16  # a student's last
SIZES = ("width-2", "width-5", "width-9", "width-16")
HEAD = ["", "predicted", "came out (range over base seeds)", "it lies"]


def row(name: str, said: dict, values: pd.Series) -> list[str]:
    """What was predicted, what came out, and whether its mean lies inside."""
    came = f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})"
    return [name, f"{said['low']} to {said['high']}", came, inside(values.mean(), said)]


def students() -> str:
    """Differences between parts of test inputs and between students, and the size that the rule selects."""
    table = pd.read_csv(HERE / "cifar10_students.csv")
    wide = table[table["measure"] == "students"].pivot_table(index="results", columns="key", values="value")

    def number(key: str) -> pd.Series:
        return wide[key if key in wide else f"{key}/{EPOCH}"]

    rows = []
    for name, said in predictions("cifar10_students").items():
        rows.append(row(name, said, number(said["of"]) - (number(said["minus"]) if "minus" in said else 0)))
    errors = table[table["measure"] == "val_error"].groupby("network")["value"].mean()[[*SIZES]]
    rises = [one <= other for one, other in itertools.pairwise(errors)]
    selected = SIZES[[*rises, True].index(True)].removeprefix("width-")
    curve = ", ".join(f"{size.removeprefix('width-')}: {value:.1f}" for size, value in errors.items())
    return lines(HEAD, [*rows, ["size by the rule; errors by size", "", f"{selected} ({curve})", ""]])


def filters() -> str:
    """Clusters, ways and early gradients of filters."""
    table = pd.concat([pd.read_csv(HERE / f"cifar10_filters{one}.csv") for one in ("", "_measures")])
    names = table["key"].str.extract(r"(?P<layer>(?:hidden|layer\d\.0\.conv2))/(?P<key>\w+)$")
    table["layer"], table["key"] = table["layer"].fillna(names["layer"]), names["key"].fillna(table["key"])

    def number(said: dict, epoch: int) -> pd.Series:
        of = table[(table["network"] == said["network"]) & (table["key"] == said["of"]) & (table["epoch"] == epoch)]
        of = of if said["layer"] == "all" else of[of["layer"] == said["layer"]]
        return of.groupby("results")["value"].mean()

    rows = []
    for name, said in predictions("cifar10_filters").items():
        values = number(said, said["epoch"])
        rows.append(row(name, said, values - number(said, said["minus"]) if "minus" in said else values))
    return lines(HEAD, rows)
