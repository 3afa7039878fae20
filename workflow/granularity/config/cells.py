"""The cells of a study: one configuration per draw and combination of the values of its axes."""

import copy
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from granularity.base.errors import GranularityError
from granularity.base.section import dotted, place
from granularity.config import files
from granularity.config.options import Config

OWN = ("name", "axes", "predictions", "studies", "seeds.draws", "extensions")  # keys of the study as a whole
# Columns of a study's tables, beside the axes.
COLUMNS = {"answer", "baseline_mean", "better", "comparisons", "condition", "difference", "draw", "draws", "epoch"}
COLUMNS |= {"error", "family", "finetune_seed", "granularity", "high", "holds", "key", "label", "low", "measure"}
COLUMNS |= {"network", "other", "pairs", "parent", "pretrain_seed", "question", "run", "space", "spaces", "split"}
COLUMNS |= {"stage", "standing", "transfer", "value"}


class Cell(NamedTuple):
    """A configuration of a study, its folder, and its values of the axes, including its `draw`."""

    name: str
    config: Config
    values: dict[str, Any]


def cells(config: Config) -> list[Cell]:
    """Return the configurations of a study, called NAME/CELL; for any other configuration only itself.

    Raise GranularityError: an axis has no key or the same value twice, or a cell's values do not agree.
    """
    if not config.axes and config.seeds.draws == 1:
        return [Cell("", config, {})]
    if complaints := [f"axes.{line}" for line in _complaints(config)]:
        raise GranularityError(*complaints)
    by_name = {}
    axes = [_settings(axis, values) for axis, values in config.axes.items()]
    for chosen in itertools.product(*axes):
        for draw in range(config.seeds.draws):
            values = copy.deepcopy(config.given)
            for key in ("axes", "predictions", "studies"):
                values.pop(key, None)
            words = [word for word, _, _ in chosen]
            for _, _, settings in chosen:
                for key, value in settings.items():
                    _set(values, key, value)
            point = {axis: value for axis, (_, value, _) in zip(config.axes, chosen, strict=True)} | {"draw": draw}
            if config.seeds.draws > 1:
                words.append(f"draw-{draw}")
                base = (values.get("seeds") or {}).get("base", config.seeds.base)
                values["seeds"] = {**values["seeds"], "draws": 1, "base": base + draw}
                if config.report.unit == "draw":  # then power is that of the study, not of a cell's backbones
                    for one in (one for entry in values.get("conditions") or () for one in entry.get("primary") or ()):
                        one |= dict.fromkeys(("smallest", "spread"))
            cell = "_".join(words)
            if cell in by_name:
                raise GranularityError(f"axes: two cells would be named {cell}; give the values different names")
            try:
                cell_config = files.checked(values)
            except GranularityError as error:
                raise GranularityError(*(f"axes: cell {cell}: {line}" for line in error.args)) from None
            by_name[cell] = Cell(cell, cell_config.model_copy(update={"name": f"{config.name}/{cell}"}), point)
    return list(by_name.values())


def _complaints(config: Config) -> Iterator[str]:
    keys_of = {
        axis: {axis} if isinstance(values, list) else set().union(*values.values())
        for axis, values in config.axes.items()
    }
    for (one, keys), (other, others) in itertools.combinations(keys_of.items(), 2):
        for key, another in itertools.product(sorted(keys), sorted(others)):
            if all(part == its for part, its in zip(place(key), place(another), strict=False)):
                yield f"{other}: sets {another}, and the axis {one} sets {key}"
    for axis, values in config.axes.items():
        keys = keys_of[axis]
        if axis in COLUMNS:
            yield f"{axis}: is a column of the study's tables; choose another name"
        for key in sorted(keys & set(OWN)):
            yield f"{key}: belongs to the study as a whole and cannot be an axis"
        if isinstance(values, list) and any(one in values[:i] for i, one in enumerate(values)):
            yield f"{axis}: a value is given twice: {values}"
        if "seeds.base" in keys and config.seeds.draws > 1:
            yield f"seeds.base: seeds.draws = {config.seeds.draws} sets base seeds itself; keep one of the two"


def _settings(axis: str, values: list | dict[str, dict]) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return, for each value of an axis: its word in a cell's name, the value in tables, and the keys that it sets."""
    if isinstance(values, dict):
        return [(_word(axis, 0, name), name, settings) for name, settings in values.items()]
    return [(_word(axis, number, value), value, {axis: value}) for number, value in enumerate(values)]


def _word(key: str, number: int, value: Any) -> str:
    """Return the part of a cell's name for a value of an axis; lists, mappings and null are named by number."""
    shown = number if isinstance(value, list | dict) or value is None else value
    return re.sub("[^A-Za-z0-9_.-]", "-", f"{place(key)[-1]}-{shown}")


def _set(values: dict, key: str, value: Any) -> None:
    """Set a key written with dots, creating missing keys above it."""
    *above, last = place(key)
    node: Any = values
    try:
        for number, part in enumerate(path := [*above, last]):
            if isinstance(part, int) and not isinstance(node, list):
                where = dotted(path[:number])
                raise GranularityError(f"axes.{key}: `{where}` is no list; write the list into the configuration first")
            if number == len(above):
                node[part] = value
            else:
                node = node[part] if isinstance(node, list) else node.setdefault(part, {})
    except (TypeError, AttributeError, IndexError, KeyError):
        raise GranularityError(f"axes.{key}: there is no such key in this configuration") from None
