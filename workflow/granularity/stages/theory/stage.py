"""The theory stage: train a world and write its run table, checks and figures; or run one setting."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError
from granularity.stages import theory
from granularity.store import artifacts
from granularity.store.artifacts import Artifact


def run_part(
    world: str, size: str, part: int, parts: int, output: Path, device: str = "auto", threads: int = 1
) -> None:
    """Train one part of a world and write the artifact "theory_runs": its rows, in ``runs.parquet``.

    Finished groups of runs outlive a kill: the part continues with the next one.

    Args:
        world: a name of `theory.WORLDS`.
        size: ``quick`` or ``paper``.
        part, parts: which of how many; with one machine and device, cutting changes no byte of a run.
        output: the artifact's folder.
        device: auto, cpu or cuda.
        threads: CPU threads; part of the result, as sums over threads decide its last bits.

    Raises:
        GranularityError: unknown world, size, part or device.
    """
    import torch

    from granularity.stages.theory import engine

    module, settings = _world(world, size)
    if not 0 <= part < parts:
        raise GranularityError(f"theory: there is no part {part} of {parts}; they are counted from 0")
    torch.set_num_threads(threads)
    where = engine.pick_device(device).type
    params = _params(world, size, settings) | {"part": part, "parts": parts}
    params |= {"device": where, "threads": threads if where == "cpu" else None}
    with artifacts.create(output, "theory_runs", module.__name__, {}, params, resumable=True) as writer:
        table = engine.run_part(module, settings, device, part, parts, writer.work)
        writer.table("runs.parquet", table)
        writer.summary["diverged"] = int((table["event"] == "diverged").sum())


def run(world: str, size: str, parts: list[Path], output: Path) -> None:
    """Judge and draw a trained world, and write the artifact "theory".

    Files: ``runs.parquet`` (one row a setting, seed and recorded step), ``checks.csv`` (one row a claim's
    quantity: id, claim, source, quantity, measured mean with sd, minimum and maximum over seeds, band,
    verdict, seeds), ``settings.json`` and ``figures/*.svg``. The manifest's summary holds one verdict a
    claim.

    Args:
        world, size: as the parts were trained.
        parts: their artifacts, all of them.
        output: the artifact's folder.

    Raises:
        GranularityError: parts that are missing, or of another world or size.
    """
    from granularity.stages.theory import checks, engine, figures

    module, settings = _world(world, size)
    params = _params(world, size, settings)
    sources = [Artifact.open(path, "theory_runs") for path in parts]
    for source in sources:
        other = {key: source.params[key] for key in params if source.params[key] != params[key]}
        if other or source.params["parts"] != len(parts):
            raise GranularityError(f"{source.path}: not one of {len(parts)} parts of {params}, but of {source.params}")
    inputs = {f"part {source.params['part']}": source for source in sources}
    if len(inputs) != len(parts):
        raise GranularityError(f"theory: a part of {world} is given twice")
    with artifacts.create(output, "theory", module.__name__, inputs, params) as writer:
        rows = [source.table("runs.parquet") for source in sources]
        table = engine.ordered(pd.concat(rows, ignore_index=True), settings)
        found = module.checks(table)
        writer.table("runs.parquet", table)
        writer.text("checks.csv", checks.table(found).to_csv(index=False, float_format="%.6g"))
        writer.json("settings.json", [item.model_dump(mode="json") for item in settings])
        with figures.style():
            module.figures(table, writer.path("figures/x").parent)
        writer.summary |= {"verdicts": checks.verdicts(found), "runs": sum(item.seeds for item in settings)}
        writer.summary["diverged"] = int((table["event"] == "diverged").sum())


def _world(world: str, size: str) -> tuple[Any, list]:
    module = theory.load(world)
    if size not in module.SIZES:
        raise GranularityError(f"theory: there is no size '{size}'; there are {', '.join(module.SIZES)}")
    return module, module.SIZES[size]


def _params(world: str, size: str, settings: list) -> dict[str, Any]:
    """The settings are in the world's module and written out in settings.json; here is their digest."""
    resolved = [item.model_dump(mode="json") for item in settings]
    digest = hashlib.sha256(artifacts.canonical_json(resolved).encode()).hexdigest()[:16]
    return {"world": world, "size": size, "settings": digest}


def simulate(world: str, overrides: dict[str, str], device: str = "auto") -> None:
    """Run one setting of a world and print its measures, one line a measure and one column a recorded step.

    Args:
        world: a name of `theory.WORLDS`.
        overrides: key and value, as text, over the setting's defaults; ``seeds=1`` unless given.
        device: auto, cpu or cuda.

    Raises:
        GranularityError: an unknown key, a value of the wrong type, or a constraint that does not hold.
    """
    from granularity.stages.theory import engine

    module = theory.load(world)
    table = engine.run_table(module, [settings_from(module, overrides)], device)
    print(describe(table, measures_of(module, table)))


def settings_from(module: Any, overrides: dict[str, str]) -> Any:
    """A world's settings from text values, one seed unless given (see :func:`simulate`)."""
    values = {key: strict_yaml.parse(value, f"--set {key}") for key, value in ({"seeds": "1"} | overrides).items()}
    try:
        return module.Settings(**values)
    except ValidationError as error:
        raise GranularityError(*(_explain(item, module.Settings) for item in error.errors())) from None


def measures_of(module: Any, table: pd.DataFrame) -> list[str]:
    """The measures' columns of a run table."""
    from granularity.stages.theory import engine

    known = {*engine.RUN_COLUMNS, *module.Settings.model_fields}
    return [name for name in table.columns if name not in known]


def describe(table: pd.DataFrame, measures: list[str], most: int = 8) -> str:
    """Means over seeds as text: a block a phase, a line a measure, at most `most` steps."""
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
