"""The cells of a study: one configuration for each draw and each combination of the values of its axes."""

import copy
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.section import place
from granularity.config import files
from granularity.config.options import Config

OWN = ("name", "axes", "predictions", "seeds.draws", "extensions")  # keys of a study as a whole


class Cell(NamedTuple):
    """One configuration of a study, its folder, and its values of the axes, with its `draw` where there are several."""

    name: str
    config: Config
    values: dict[str, Any]


def cells(config: Config) -> list[Cell]:
    """The configurations that a study consists of, called NAME/CELL; of any other configuration, itself.

    Raises a GranularityError: an axis has no key or the same value twice, or a cell's values do not agree.
    """
    if not config.axes and config.seeds.draws == 1:
        return [Cell("", config, {})]
    if complaints := [f"axes.{line}" for line in _complaints(config)]:
        raise GranularityError(*complaints)
    made = {}
    for chosen in itertools.product(*(enumerate(values) for values in config.axes.values())):
        for draw in range(config.seeds.draws):
            values = copy.deepcopy(config.given)
            for key in ("axes", "predictions"):
                values.pop(key, None)
            words = [_word(key, *one) for key, one in zip(config.axes, chosen, strict=True)]
            for key, (_, value) in zip(config.axes, chosen, strict=True):
                _set(values, key, value)
            own = {key: value for key, (_, value) in zip(config.axes, chosen, strict=True)} | {"draw": draw}
            if config.seeds.draws > 1:
                words.append(f"draw-{draw}")
                base = (values.get("seeds") or {}).get("base", config.seeds.base)
                values["seeds"] = {**values["seeds"], "draws": 1, "base": base + draw}
            cell = "_".join(words)
            if cell in made:
                raise GranularityError(f"axes: two cells would be called {cell}; name values so that they differ")
            try:
                one = files.checked(values)
            except GranularityError as error:
                raise GranularityError(*(f"axes: cell {cell}: {line}" for line in error.args)) from None
            made[cell] = Cell(cell, one.model_copy(update={"name": f"{config.name}/{cell}"}), own)
    return list(made.values())


def _complaints(config: Config) -> Iterator[str]:
    for key, values in config.axes.items():
        if key in OWN:
            yield f"{key}: is of the study as a whole, and no axis of it"
        if any(one in values[:i] for i, one in enumerate(values)):
            yield f"{key}: a value is given twice: {values}"
    if "seeds.base" in config.axes and config.seeds.draws > 1:
        yield f"seeds.base: seeds.draws = {config.seeds.draws} has base seeds of its own; keep one of the two"


def _word(key: str, number: int, value: Any) -> str:
    """What a cell is called by the value that it has of an axis: the number of those that are no words."""
    shown = number if isinstance(value, list | dict) or value is None else value
    return re.sub("[^A-Za-z0-9_.-]", "-", f"{place(key)[-1]}-{shown}")


def _set(values: dict, key: str, value: Any) -> None:
    """Set a key that is written with dots; those above it that are not there are made."""
    *above, last = place(key)
    node: Any = values
    try:
        for part in above:
            node = node[part] if isinstance(node, list) else node.setdefault(part, {})
        node[last] = value
    except (TypeError, AttributeError, IndexError, KeyError):
        raise GranularityError(f"axes.{key}: there is no such key in this configuration") from None
