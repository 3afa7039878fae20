"""Simulating settings of a world alone: from words, or arms by their names; their measures as text."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from pydantic import ValidationError

from granularity.base import extensions, strict_yaml
from granularity.base.errors import GranularityError
from granularity.stages.theory import engine
from granularity.stages.theory.runs import RUN_COLUMNS


def simulate(
    world: str, overrides: dict[str, str], device: str = "auto", arms: Sequence[str] = (), size: str = "quick"
) -> None:
    """Run one setting of a world, or arms of a size, and print their measures: a line per measure, a column per step.

    Conditions of the paper's theorem that a setting breaks are named; it runs all the same.

    Args:
        world: the name of the world.
        overrides: key and value, as text, over the setting's defaults (with ``seeds=1`` unless given), or an arm's.
        device: auto, cpu or cuda.
        arms: names of arms of the size `size`.

    Raises:
        GranularityError: an unknown world, size, arm or key, a value of the wrong type, or a constraint that does not
            hold.
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
    """An arm of a world's size by its name, with text values over its own (see :func:`simulate`)."""
    if size not in module.SIZES:
        raise GranularityError(f"theory: there is no size '{size}'; there are {', '.join(module.SIZES)}")
    arms = {item.name: item for item in module.SIZES[size]}
    if name not in arms:
        close = difflib.get_close_matches(name, arms, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        # A line of a message is shortened where it is long, and a world may have hundreds of arms.
        listed = textwrap.wrap("; ".join(arms), 200, break_long_words=False)
        raise GranularityError(f"theory: there is no arm '{name}' at the size '{size}'; {hint}there are:", *listed)
    return settings_from(module, overrides, arms[name].model_dump(exclude_unset=True))


def settings_from(module: Any, overrides: dict[str, str], base: dict[str, Any] | None = None) -> Any:
    """A world's settings from text values over those of `base`: one seed unless given (see :func:`simulate`)."""
    given = {key: strict_yaml.parse(value, f"--set {key}") for key, value in overrides.items()}
    try:
        return module.Settings(**((base or {"seeds": 1}) | given))
    except ValidationError as error:
        raise GranularityError(*(_explain(item, module.Settings) for item in error.errors())) from None


def measures_of(module: Any, table: pd.DataFrame) -> list[str]:
    """The measures' columns of a run table."""
    known = {*RUN_COLUMNS, *module.Settings.model_fields}
    return [name for name in table.columns if name not in known]


def describe(table: pd.DataFrame, measures: list[str], most: int = 8) -> str:
    """Means over seeds as text: a block per phase, a line per measure, at most `most` steps."""
    lines = []
    for phase, part in table.groupby("phase", sort=False):
        common = part.groupby("step")["seed"].nunique()
        steps = common[common == part["seed"].nunique()].index
        chosen = sorted({steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)}) if len(steps) else []
        ends = part[part["event"].str.contains("end|diverged")]
        endings = ", ".join(
            f"seed {seed} {outcome}" for seed, outcome in zip(ends["seed"], ends["outcome"], strict=True)
        )
        lines.append(f"{phase}: {endings}")
        columns = [part[part["step"] == step] for step in chosen] + [ends]
        heads = [f"step {step}" for step in chosen] + ["end"]
        lines.append(f"  {'':32}" + "".join(f"{head:>12}" for head in heads))
        for name in measures:
            values = [rows[name].mean() for rows in columns]
            if any(value == value for value in values):
                lines.append(
                    f"  {name:32}" + "".join(f"{value:12.5g}" if value == value else f"{'':12}" for value in values)
                )
    return "\n".join(lines)


def _explain(error: Any, model: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    context = error.get("ctx", {}).get("error")
    if error["type"] == "extra_forbidden":
        allowed = list(model.model_fields)
        close = difflib.get_close_matches(where, allowed, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        return f"theory: {where}: unknown key; {hint}allowed here: {', '.join(allowed)}"
    if context is not None:  # one of the world's own checks; its message begins with the key it is about
        return f"theory: {context}"
    return f"theory: {where} = {error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"
