"""The theory stage: train a world and write its run table, checks and figures; or run one setting."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pydantic import ValidationError

from granularity import artifacts, theory
from granularity.errors import GranularityError


def run(world: str, size: str, output: Path, device: str = "auto", threads: int = 1) -> None:
    """Train a world and write the artifact "theory".

    Files: ``runs.parquet`` (one row a setting, seed and recorded step), ``checks.csv`` (one row a claim's
    quantity: id, claim, source, quantity, measured mean with sd, minimum and maximum over seeds, band,
    verdict, seeds), ``settings.json`` and ``figures/*.svg``. The manifest's summary holds one verdict a
    claim.

    Args:
        world: a name of `theory.WORLDS`.
        size: ``quick`` or ``paper``.
        output: the artifact's folder.
        device: auto, cpu or cuda.
        threads: CPU threads. With one machine, seed and number of threads, runs.parquet is the same bytes.

    Raises:
        GranularityError: unknown world, size or device.
    """
    import torch

    from granularity.theory import checks, engine, figures

    module = theory.load(world)
    if size not in module.SIZES:
        raise GranularityError(f"theory: there is no size '{size}'; there are {', '.join(module.SIZES)}")
    torch.set_num_threads(threads)
    settings = module.SIZES[size]
    resolved = [item.model_dump(mode="json") for item in settings]
    # The settings are in the world's module, whose code digest the manifest holds, and written out in
    # settings.json.
    digest = hashlib.sha256(artifacts.canonical_json(resolved).encode()).hexdigest()[:16]
    params = {"world": world, "size": size, "device": str(engine.pick_device(device)), "settings": digest}
    with artifacts.create(output, "theory", module.__name__, inputs={}, params=params) as writer:
        table = engine.run_table(module, settings, device)
        found = module.checks(table)
        writer.table("runs.parquet", table)
        writer.text("checks.csv", checks.table(found).to_csv(index=False, float_format="%.6g"))
        writer.json("settings.json", resolved)
        with figures.style():
            module.figures(table, writer.path("figures/x").parent)
        writer.summary |= {"verdicts": checks.verdicts(found), "runs": sum(item.seeds for item in settings)}
        writer.summary["diverged"] = int((table["event"] == "diverged").sum())


def simulate(world: str, overrides: dict[str, str], device: str = "auto") -> None:
    """Run one setting of a world and print its measures, one line a measure and one column a recorded step.

    Args:
        world: a name of `theory.WORLDS`.
        overrides: key and value, as text, over the setting's defaults; ``seeds=1`` unless given.
        device: auto, cpu or cuda.

    Raises:
        GranularityError: an unknown key, a value of the wrong type, or a constraint that does not hold.
    """
    from granularity.theory import engine

    module = theory.load(world)
    table = engine.run_table(module, [settings_from(module, overrides)], device)
    print(describe(table, measures_of(module, table)))


def settings_from(module: Any, overrides: dict[str, str]) -> Any:
    """A world's settings from text values, one seed unless given (see :func:`simulate`)."""
    try:
        values = {key: yaml.safe_load(value) for key, value in ({"seeds": "1"} | overrides).items()}
    except yaml.YAMLError as error:
        raise GranularityError(f"theory: not readable as a value: {' '.join(str(error).split())}") from None
    try:
        return module.Settings(**values)
    except ValidationError as error:
        raise GranularityError(
            "\n".join(_explain(item, module.Settings) for item in error.errors())
        ) from None


def measures_of(module: Any, table: pd.DataFrame) -> list[str]:
    """The measures' columns of a run table."""
    from granularity.theory import engine

    known = {*engine.RUN_COLUMNS, *module.Settings.model_fields}
    return [name for name in table.columns if name not in known]


def describe(table: pd.DataFrame, measures: list[str], most: int = 8) -> str:
    """Means over seeds as text: a block a phase, a line a measure, at most `most` steps."""
    lines = []
    for phase, part in table.groupby("phase", sort=False):
        common = part.groupby("step")["seed"].nunique()
        steps = common[common == part["seed"].nunique()].index
        chosen = (
            sorted({steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)})
            if len(steps)
            else []
        )
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
                    f"  {name:32}"
                    + "".join(f"{value:12.5g}" if value == value else f"{'':12}" for value in values)
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
