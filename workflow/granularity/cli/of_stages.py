"""The commands of stages, made from the table: inputs, options and what the machine decides."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError

from granularity.base import extensions, strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.stage import Stage
from granularity.base.strict_json import parse_json
from granularity.config import files
from granularity.machine import launch
from granularity.machine.device import machine
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store.generations import folder_of
from granularity.store.task import Task, find, make

PANEL = "Stages, as the data flows"
LOST = 75  # exit status of a process that found another writer at work (EX_TEMPFAIL of sysexits.h)
NOTHING = inspect.Parameter.empty


def add_all(app: typer.Typer) -> None:
    """Give an application one command per stage."""
    for stage in STAGES.values():
        app.command(stage.name, rich_help_panel=PANEL)(_command(stage))


def _command(stage: Stage) -> Any:
    def run(**given: Any) -> None:
        extensions.load(given["extension"])
        options = parse(stage.model, given["options"], "--options")
        processes = getattr(options, "processes", 1) * getattr(options, "arms", 1)
        task = Task(
            stage,
            folder_of(given["output"]),
            options,
            _gathered(stage, options, folder_of(given["output"])) if stage.gathers else _given(stage, given),
            given.get("seed", 0),
            device(given.get("device", "cpu")),
            given["threads"],
            machine(given.get("device", "cpu"), launch.threads_each(given["threads"], processes)),
        )
        assert task.key  # now: the code may be edited while the job waits
        _make(task, processes)

    run.__doc__ = f"{stage.does}\n\n{_described(stage)}"
    run.__signature__ = inspect.Signature([*_parameters(stage)])
    run.__annotations__ = {one.name: one.annotation for one in run.__signature__.parameters.values()}
    return run


def _make(task: Task, processes: int) -> None:
    """Find or make a result; by several processes, each of which runs these same words."""
    # One of the processes; or what it finds is to be told, which the store does not remember.
    if launch.LAUNCHER in os.environ or getattr(task.options, "show", False):
        importlib.import_module(task.stage.module).run(task)
    elif processes == 1:
        make(task)
    else:
        while find(task) is None:
            status = launch.launch(processes, sys.argv[1:])
            if status not in (0, LOST):
                raise typer.Exit(status)


def _parameters(stage: Stage):
    def parameter(name: str, kind: Any, default: Any, words: str, *flags: str, **more: Any) -> inspect.Parameter:
        option = typer.Option(f"--{name}", *flags, help=words, show_default=default not in (NOTHING, None, []), **more)
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )

    yield parameter("output", Path, NOTHING, "Name of the artifact to make: a link, with its stamp beside it.", "-o")
    for role, kind in stage.inputs.items() if not stage.gathers else ():
        name, number = kind.rstrip("?*"), kind[-1]
        if number == "*":
            yield parameter(role, list[Path], [], f"Artifacts of stage {name}; give the option once per artifact.")
        elif number == "?":
            yield parameter(role, Path | None, None, f"Artifact of stage {name}, where there is one.")
        else:
            yield parameter(role, Path, NOTHING, f"Artifact of stage {name}.")
    yield parameter("options", str, "{}", "What decides the result, as JSON; the keys are above.")
    if stage.seeded:
        yield parameter("seed", int, 0, "Base seed.", min=0)
    if stage.needs.gpu:
        yield parameter("device", str, "auto", "auto, cpu or cuda (never a silent fallback).")
    yield parameter("threads", int, 1, "CPU threads.", min=1)
    yield parameter("extension", list[Path], [], "A Python file of your own that the options use.")


def _described(stage: Stage) -> str:
    """Help on a stage's options: one paragraph per key."""
    lines = []
    for name, field in stage.model.model_fields.items():
        default = "" if field.is_required() else f" (default: {_short(field.get_default(call_default_factory=True))})"
        lines.append(f"{name}{default}  {field.description or ''}".rstrip())
    return "\n\n".join(["Keys of --options:", *lines])


def _short(value: Any) -> str:
    value = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else "an object"


def _given(stage: Stage, given: dict[str, Any]) -> dict[str, tuple[Path, ...]]:
    found = {}
    for role in stage.inputs:
        value = given[role]
        found[role] = tuple(value) if isinstance(value, list) else () if value is None else (value,)
    return found


def _gathered(stage: Stage, options: Any, output: Path) -> dict[str, tuple[Path, ...]]:
    """The inputs of a stage that finds them by the configuration in its options."""
    plan = Plan(files.validate(options.configuration))
    (job,) = plan.jobs(stage.name)
    folder = str(output)
    planned = str(plan.folder(job))
    prefix = folder.removesuffix(planned) if folder.endswith(planned) else ""  # of a Snakemake module
    return {role: tuple(Path(f"{prefix}{plan.folder(one)}") for one in jobs) for role, jobs in job.inputs.items()}


def device(name: str) -> str:
    """Check the name of a device.

    Raises:
        GranularityError: it is neither auto, cpu nor cuda.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise GranularityError(f"--device {name}: must be auto, cpu or cuda")
    return name


def parse(model: type[BaseModel], text: str, option: str) -> Any:
    """Read a stage's options from JSON.

    Raises:
        GranularityError: the text is no JSON object, or has a key or value that the model does not take.
    """
    try:
        return model.model_validate(_json(text, option))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        given = repr(first["input"])
        given = given if len(given) <= 80 else f"{given[:77]}..."
        raise GranularityError(f"{option} {where}: {first['msg']} (given: {given})") from None


def _json(text: str, option: str) -> dict[str, Any]:
    values = parse_json(text, option)
    if not isinstance(values, dict):
        raise GranularityError(f"{option}: must be a JSON object, not {text[:80]}")
    for path, what in strict_yaml.odd(values):
        raise GranularityError(f"{option} {'.'.join(map(str, path))}: {what}")
    return values
