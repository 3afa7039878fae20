"""A world's statements as a table in words, `claims/words/WORLD.txt`, and how they are judged from a run table.

A table has a line per statement and below it, indented, a line per quantity. Cells are separated by three or more
spaces (a backslash at the end of a line continues it on the next):

    S1   Coarse training learns the common feature only   Theorem 5.1   COARSE   some
        {}: training loss   loss   <= 0.01
        {}: hard / normal response   hard_own / normal_own   between()   reason PILOT

A statement has an id, its claim, its source, its arms and flags. Every quantity is evaluated for every arm, in the
order of arms. Arms are separated by semicolons; each is the name of a setting, or one of the world's `NAMES`: a
setting, a list of settings, a tuple (settings that are compared), or a dictionary of these by label; `none`: there are
none.

A quantity has words, with `{}` or `{0}` for the arm's label and `{1}`, `{2}` for the names of its settings; a measured
value; a band; flags. *Measured* is a measure ("phase: measure @ step"; default: phase train, at the end; an event can
replace the step), "a / b" or "a - b" of two measures or of a measure and a number, or "|a|" for an absolute value. For
two arms it is the first minus the second, seed by seed. If the words contain `{of}`, it may list several measures,
separated by ", ": a line for each. A *band* is written as printed: ">= 4", "> 0", "< 1", "0.9 to 1.1", "= 1", "-" for
none; "; A: <= 0.3" is the band for the label A only.

A cell that ends in brackets, `between()`, calls one of the world's functions with the :class:`Runs`, the arms' names
and the arguments in the brackets, separated by "; ". As a quantity it returns values, a dictionary of fields of the
claim, or None (then there is no such row); as a band its two ends. Flags, separated by ", ", are `identity`,
`interval`, `mean` (how it is judged), `together` (the intervals of a statement jointly hold; `together NAME`: also
those of the next statement with this name), `some` (only arms that were run, or the first), `on 1` (only the first of
the compared settings), and fields of a claim with a name or a function: `reason PILOT`, `untested void()`.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from granularity.base.errors import GranularityError
from granularity.claims import preregistered
from granularity.claims.claim import Claim, together
from granularity.stages.theory.runs import at

FLAGS = {"identity": {"kind": "identity"}, "interval": {"judged": "interval"}, "mean": {"judged": "mean"}}
FLAGS |= {"some": {"some": True}, "together": {"together": True}}


class Runs:
    """A run table as quantities read it: `runs(arm, measure, phase=..., step=...)` is :func:`runs.at`."""

    def __init__(self, table: pd.DataFrame):
        self.table = table
        self.settings = set(table["setting"])

    def __call__(self, arm: str, measure: str, **where: Any) -> np.ndarray:
        return at(self.table, arm, measure, **where)

    def rows(self, arm: str, phase: str = "train") -> pd.DataFrame:
        """Return the rows of an arm in a phase."""
        return self.table[(self.table["setting"] == arm) & (self.table["phase"] == phase)]

    def parameters(self, arm: str, *keys: str) -> list[float]:
        """Return parameters of an arm, NaN if it is not in the table."""
        rows = self.table[self.table["setting"] == arm]
        return [float(rows[key].iloc[0]) if len(rows) else math.nan for key in keys]

    def value(self, of: str, arm: str) -> Any:
        """Return the values of a cell *measured* (see the module), one per seed."""
        for sign, combined in ((" - ", minus), (" / ", over)):
            if sign in of:
                return combined(*(self.value(part, arm) for part in of.split(sign)))
        if of.replace(".", "", 1).isdigit():
            return np.float64(of)
        phase, _, measure = of.rpartition(": ")
        measure, _, where = measure.partition(" @ ")
        place = {"step": int(where)} if where.isdigit() else {"event": where} if where else {}
        return self(arm, measure, phase=phase or "train", **place)


class _Statement(NamedTuple):
    head: list[str]  # id, claim, source
    groups: list[tuple[Any, tuple[str, ...]]]
    flags: dict[str, Any]
    rows: list[tuple[str, Any, Any, dict[str, Any]]]  # words, what is measured, band, flags


def tables(world: str) -> dict[str, str]:
    """Return the tables of `claims/words/WORLD.txt` by their names in square brackets; or raise a GranularityError."""
    file = preregistered.statements_of(world)
    if file is None:
        raise GranularityError(f"claims/words/{world}.txt: there is no table of claims with this name")
    lines = [line for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if line[0] != "#"]
    _, *parts = re.split(r"^\[(\w+)\]$", re.sub(r"\\\n", "", "".join(lines)), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def judge(table: pd.DataFrame, text: str, names: Mapping[str, Any], *functions: Callable[..., Any]) -> list[Claim]:
    """Judge every quantity of a table of statements on a run table (see the module), and return the claims.

    A quantity whose arms are not in the run table has no values. The table of statements may use the `names`, the
    `functions` by their own names, and `rise(measure)`.
    """
    runs, names = Runs(table), {**names, **{one.__name__: one for one in (rise, *functions)}}
    parts: list[tuple[Any, list[Claim]]] = []
    for one in _read(text, names):
        some, joined = one.flags.pop("some", False), one.flags.pop("together", False)
        groups = [group for group in one.groups if group[1][0] in runs.settings] if some else one.groups
        results = (_claim(one, row, runs, *group) for group in groups or one.groups[:1] for row in one.rows)
        claims = [claim for claim in results if claim is not None]
        if isinstance(joined, str) and parts and parts[-1][0] == joined:
            parts[-1][1].extend(claims)
        else:
            parts.append((joined, claims))
    return [claim for joined, claims in parts for claim in (together(claims) if joined else claims)]


def _read(text: str, names: Mapping[str, Any]) -> Iterator[_Statement]:
    for block in re.findall(r"^\S.*\n(?:(?: .*)?\n)*", text, re.MULTILINE):
        head, *lines = (re.split(r"\s{3,}", line.strip()) for line in block.splitlines() if line.strip())
        statement = _Statement(head[:3], list(_groups(head[3], names)), _flags(head[4:], names), [])
        for quantity, measures, band, *flags in ([*cells, "-"] if len(cells) < 3 else cells for cells in lines):
            for measure in measures.split(", ") if "{of}" in quantity else [measures]:
                measured, within = (_call(cell, names) or cell for cell in (measure, band))
                statement.rows.append((quantity.replace("{of}", measure), measured, within, _flags(flags, names)))
        yield statement


def _call(text: str, names: Mapping[str, Any]) -> Callable[..., Any] | None:
    called = re.fullmatch(r"(\w+)\((.*)\)", text)
    if called is None:
        return None
    args = called[2].split("; ") if called[2] else ()
    return lambda runs, *arms: names[called[1]](runs, *arms, *args)


def _flags(cells: Sequence[str], names: Mapping[str, Any]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for flag in (flag for cell in cells for flag in re.split(r", (?![^(]*\))", cell)):
        key, _, value = flag.partition(" ")
        flags |= FLAGS[key] if not value else {key: _call(value, names) or names.get(value, value)}
    return flags


def _groups(cell: str, names: Mapping[str, Any]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    for item in cell.split("; "):
        if item == "none":
            yield "", ()
            continue
        value = names.get(item, item)
        several = value.items() if isinstance(value, Mapping) else ((arm, arm) for arm in value)
        for label, arms in ((value, value),) if isinstance(value, (str, tuple)) else several:
            yield label, (arms,) if isinstance(arms, str) else tuple(arms)


def _claim(statement: _Statement, row: tuple, runs: Runs, label: Any, arms: tuple[str, ...]) -> Claim | None:
    words, measure, band, more = row
    fields = statement.flags | more
    subjects = (arms[int(fields.pop("on")) - 1],) if "on" in fields else arms
    fields = {key: value(runs, *subjects) if callable(value) else value for key, value in fields.items()}
    if callable(measure):
        values = measure(runs, *subjects)
    elif not subjects:
        values = ()
    else:
        measured = [runs.value(measure.strip("|"), arm) for arm in subjects]
        values = minus(*measured) if subjects[1:] else measured[0]
        values = np.abs(values) if measure[0] == "|" else values
    if values is None:
        return None
    fields["low"], fields["high"] = band(runs, *subjects) if callable(band) else _band(band, str(label))
    fields |= {"arms": subjects} | (values if isinstance(values, dict) else {"values": values})
    return Claim(*statement.head, quantity=fields.pop("quantity", words).format(label, *arms), **fields)


def _band(text: str, label: str) -> tuple[float, float]:
    """Return the two ends of a printed band; see the module."""
    whole, *of_labels = text.split("; ")
    for band in of_labels:
        if band.startswith(f"{label}: "):
            whole = band.removeprefix(f"{label}: ")
    if whole == "-":
        return -math.inf, math.inf
    if " to " in whole:
        return tuple(map(float, whole.split(" to ")))
    sign, end = whole.split()
    value, outwards = float(end), math.inf if sign[0] == ">" else -math.inf
    if sign == "=":
        return value, value
    inner = value if sign.endswith("=") else math.nextafter(value, outwards)
    return (inner, math.inf) if sign[0] == ">" else (-math.inf, inner)


def _shared(one: Sequence[float], other: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the seeds that both have; empty if an arm was not run."""
    count = min((len(values) for values in (one, other) if np.ndim(values)), default=0)
    return tuple(np.asarray(values, dtype=float)[:count] if np.ndim(values) else values for values in (one, other))


def minus(one: Sequence[float], other: Sequence[float]) -> np.ndarray:
    """Return the difference over the seeds that both have; empty if an arm was not run."""
    return np.subtract(*_shared(one, other))


def over(one: Sequence[float], other: Sequence[float]) -> np.ndarray:
    """Return the ratio over the seeds that both have; empty if an arm was not run."""
    return np.divide(*_shared(one, other))


def rise(runs: Runs, one: str, other: str, of: str) -> np.ndarray:
    """For tables: return the second arm minus the first, seed by seed."""
    return minus(runs.value(of, other), runs.value(of, one))


def swept(words: str, *sweeps: Mapping[str, Sequence[float]]) -> list[tuple[str, float, str]]:
    """Return key, value and arm of sweeps that vary one key at a time; `words` formats the arm: "coarse, {} = {:g}"."""
    return [(key, v, words.format(key, v)) for sweep in sweeps for key, values in sweep.items() for v in values]


def varied(words: str, *sweeps: Mapping[str, Sequence[float]], **common: Any) -> list[dict[str, Any]]:
    """Return the settings of the arms of :func:`swept`, added to the common ones."""
    return [common | {"name": name, key: value} for key, value, name in swept(words, *sweeps)]


def named(names: Mapping[Any, str], key: str, **common: Any) -> list[dict[str, Any]]:
    """Return the settings of one arm per value of a key, by their names."""
    return [common | {"name": name, key: value} for value, name in names.items()]
