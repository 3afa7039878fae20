"""Simulate single settings of a world, from text values or from arms by name; print their measures."""

import difflib
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from pydantic import ValidationError

from granularity.base import extensions, strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.section import dotted, explained
from granularity.stages.theory import engine
from granularity.stages.theory.runs import RUN_COLUMNS


def simulate(
    world: str, overrides: dict[str, str], device: str = "auto", arms: Sequence[str] = (), size: str = "quick"
) -> None:
    """Run one setting of a world, or arms of a size; print measures and violated conditions of the theorem.

    `overrides` are keys and values, as text, that replace the setting's defaults (``seeds=1`` unless given), or an
    arm's. Raises GranularityError: an unknown world, size, arm or key, a bad value, or a constraint that does not hold.
    """
    module = extensions.find("world", world)
    chosen = [arm_of(module, arm, size, overrides) for arm in arms] or [settings_from(module, overrides)]
    table = engine.run_table(module, chosen, device)
    for item in chosen:
        if len(chosen) > 1:
            print(f"{item.name}:")
        broken = [words for words, met in item.conditions().items() if not met]
        if broken:
            print(f"breaks {len(broken)} of {len(item.conditions())} conditions of the theorem: {'; '.join(broken)}")
        print(describe(table[table["setting"] == item.name], measures_of(module, table)))


def arm_of(module: Any, name: str, size: str, overrides: dict[str, str]) -> Any:
    """Return an arm of a world's size by name, with `overrides` (see :func:`simulate`)."""
    if size not in module.SIZES:
        raise GranularityError(f"theory: there is no size '{size}'; there are {', '.join(module.SIZES)}")
    arms = {item.name: item for item in module.SIZES[size]}
    if name not in arms:
        close = difflib.get_close_matches(name, arms, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        # Several lines, because long lines of a message are shortened, and a world may have hundreds of arms.
        listed = textwrap.wrap("; ".join(arms), 200, break_long_words=False)
        raise GranularityError(f"theory: there is no arm '{name}' at the size '{size}'; {hint}there are:", *listed)
    return settings_from(module, overrides, arms[name].model_dump(exclude_unset=True))


def settings_from(module: Any, overrides: dict[str, str], base: dict[str, Any] | None = None) -> Any:
    """Return a world's settings with `overrides` over `base`: one seed unless given (see :func:`simulate`)."""
    values = {key: strict_yaml.parse(value, f"--set {key}") for key, value in overrides.items()}
    try:
        return module.Settings(**((base or {"seeds": 1}) | values))
    except ValidationError as error:
        errors = explained(error, module.Settings, values)
        raise GranularityError(*(f"theory: {dotted(path)}{shown}: {text}" for path, shown, text in errors)) from None


def measures_of(module: Any, table: pd.DataFrame) -> list[str]:
    """Return the measures among the columns of a run table."""
    columns = {*RUN_COLUMNS, *module.Settings.model_fields}
    return [name for name in table.columns if name not in columns]


def describe(table: pd.DataFrame, measures: list[str], most: int = 8) -> str:
    """Return means over seeds as text: a block per phase, a line per measure, at most `most` steps."""
    lines = []
    for phase, part in table.groupby("phase", sort=False):
        common = part.groupby("step")["seed"].nunique()
        steps = common[common == part["seed"].nunique()].index
        chosen = sorted({steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)}) if len(steps) else []
        ends = part[part["event"].str.contains("end|diverged")]
        endings = (f"seed {seed} {outcome}" for seed, outcome in zip(ends["seed"], ends["outcome"], strict=True))
        lines.append(f"{phase}: {', '.join(endings)}")
        columns = {f"step {step}": part[part["step"] == step] for step in chosen} | {"end": ends}
        lines.append(f"  {'':32}" + "".join(f"{head:>12}" for head in columns))
        for name in measures:
            values = [rows[name].mean() for rows in columns.values()]
            if any(value == value for value in values):
                cells = (f"{value:12.5g}" if value == value else f"{'':12}" for value in values)
                lines.append(f"  {name:32}" + "".join(cells))
    return "\n".join(lines)
