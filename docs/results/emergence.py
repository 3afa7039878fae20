"""Numbers and a table about Shi, Wei and Liang 2022: students of a teacher, and filters."""

import pandas as pd
from tables import HERE, code_of, inside, lines, predictions, read, simulated

EPOCH = 16  # a student's last


def student_values() -> dict[str, pd.Series]:
    """Differences between parts of test inputs and between students, by prediction."""
    table = read("cifar10_students")
    wide = table[table["measure"] == "students"].pivot_table(index="draw", columns="key", values="value")

    def number(key: str) -> pd.Series:
        return wide[key if key in wide else f"{key}/{EPOCH}"]

    said = predictions("cifar10_students")
    return {key: number(one["of"]) - (number(one["minus"]) if "minus" in one else 0) for key, one in said.items()}


WIDTHS = "students_by_width"


def width_values() -> dict:
    return code_of(WIDTHS).measured(read_widths())


def read_widths() -> pd.DataFrame:
    """Students' test losses: a row per teacher, inputs, seed and width."""
    return simulated(WIDTHS).assign(phase="student")


def widths() -> str:
    """The width with the least mean test loss, and that loss, by teacher and number of inputs."""
    said, best, table = predictions(WIDTHS), width_values(), read_widths()
    rows = []
    for arm, one in predictions(WIDTHS, "arms").items():
        losses, (width,) = code_of(WIDTHS).losses(table, arm), best[arm]
        of_seeds = losses.idxmin(axis=1)
        means = [f"{losses[size].mean():.2f}" for size in (5, 16, 50, 900)]
        seeds = f"{width:.0f} ({of_seeds.min()} to {of_seeds.max()})"
        ahead = f"{said[arm]['low']} to {said[arm]['high']}"
        rows.append([f"{one['teacher']}", f"{one['inputs']:,}", ahead, seeds, inside(width, said[arm]), *means])
    head = ["teacher's width", "inputs", "predicted", "best width (of seeds)", "it lies"]
    return lines([*head, *(f"loss at {size}" for size in (5, 16, 50, 900))], rows)


def drawing() -> None:
    """docs/images/students_by_width.svg: test losses by width, for each teacher."""
    code_of(WIDTHS).figures(read_widths(), HERE.parent / "images")


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
