"""Our number of a published row, or why there is none: what the page and its table show of it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """A mean, its standard deviation (NaN of one run) and runs; `name` tells it from others of the same row."""

    name: str
    mean: float
    sd: float
    n: int

    @property
    def words(self) -> str:
        """As the page shows it, such as "10.77 ± 0.16"."""
        spread = "" if math.isnan(self.sd) else f" ± {self.sd:.2g}"
        return f"{self.mean:.4g}{spread}".replace("-", "−")


@dataclass(frozen=True)
class Answer:
    """What is here of a row.

    Attributes:
        values: our numbers in the row's metric; several where the row has several arms or is a statement.
        of: the artifact, arm and measure that they are of.
        size: of a world, the size that was run.
        unlike: in what its arms differ from those of the size `paper`.
        other: the nearest run that asks the same question at another size or on other data, in words.
        why: why there are no values, or what else to know.
        named: whether the values are shown with their names: there are several, or the row has no number itself.
    """

    values: tuple[Value, ...] = ()
    of: str = ""
    size: str = ""
    unlike: str = ""
    other: str = ""
    why: str = ""
    named: bool = False

    def cells(self) -> dict[str, str]:
        """Its columns of `papers_numbers.csv`; several are parted by semicolons."""

        def joined(cells: list[str]) -> str:
            pairs = zip(self.values, cells, strict=True)
            return "; ".join(f"{value.name}: {cell}" if self.named else cell for value, cell in pairs)

        return {
            "ours": joined([f"{value.mean:.6g}" for value in self.values]),
            "ours_sd": joined(["" if math.isnan(value.sd) else f"{value.sd:.6g}" for value in self.values]),
            "ours_n": joined([str(value.n) for value in self.values]),
            "ours_of": self.of,
            "size": self.size,
            "unlike_size_paper": self.unlike,
            "other_data": self.other,
            "why": self.why,
        }


def value(name: str, found) -> Value:
    """The mean and standard deviation of one number per run.

    Args:
        found: (N,) numbers, N at least 1.
    """
    n = len(found)
    mean = float(sum(found)) / n
    sd = math.sqrt(sum((float(one) - mean) ** 2 for one in found) / (n - 1)) if n > 1 else math.nan
    return Value(name, mean, sd, n)
