"""The commands of stages, made from the table: inputs, options and what the machine decides."""

import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel, ValidationError

from granularity.base import extensions, kernels
from granularity.base.errors import GranularityError
from granularity.base.section import dotted, explained
from granularity.base.stage import Stage
from granularity.base.strict_json import parse_json
from granularity.config import files
from granularity.machine import launch
from granularity.machine.device import machine
from granularity.plan.graph import plans
from granularity.stages import STAGES
from granularity.store.code import require_driver
from granularity.store.place import folder_of
from granularity.store.task import Task, find, make

PANEL = "Stages, in the order of the data flow"
LOST = 75  # exit status of a process that found another writer at work (EX_TEMPFAIL of sysexits.h)
Device = Literal["auto", "cpu", "cuda"]
NOTHING, ONLY = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY


def add_all(app: typer.Typer) -> None:
    """Give an application one command per stage."""
    for stage in STAGES.values():
        app.command(stage.name, rich_help_panel=PANEL)(_command(stage))


def _command(stage: Stage) -> Any:
    def run(**given: Any) -> None:
        require_driver()
        extensions.load(given["extension"])
        options = parse(stage.model, given["options"], "--options")
        output, threads, on = folder_of(given["output"]), given["threads"], given.get("device", "cpu")
        inputs = _gathered(stage, options, output) if stage.gathers else _given(stage, given)
        processes = getattr(options, "processes", 1)
        kernels.limit(1)
        task = Task(stage, output, options, inputs, given.get("seed", 0), on, threads, machine(on))
        assert task.key  # now: the code may be edited while the job waits
        _make(task, processes)

    run.__doc__ = f"{stage.does}\n\n{_described(stage)}"
    run.__signature__ = inspect.Signature([*_parameters(stage)])
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in run.__signature__.parameters.values()}
    return run


def _make(task: Task, processes: int) -> None:
    """Find or make a result, by several processes if so many share the work."""
    if getattr(task.options, "show", False):  # what it finds is to be told, which the store does not remember
        importlib.import_module(task.stage.module).run(task)
    elif processes == 1:
        make(task)
    else:
        from granularity.cli import told

        while find(task) is None:
            status = launch.launch(task, processes, told)
            if status not in (0, LOST):
                raise typer.Exit(status)


def _parameters(stage: Stage) -> Iterator[inspect.Parameter]:
    def parameter(name: str, kind: Any, default: Any, words: str, *flags: str, **more: Any) -> inspect.Parameter:
        option = typer.Option(f"--{name}", *flags, help=words, show_default=default not in (NOTHING, None, []), **more)
        return inspect.Parameter(name, ONLY, default=default, annotation=Annotated[kind, option])

    yield parameter("output", Path, NOTHING, "Name of the new artifact: a link, with its stamp beside it.", "-o")
    for role, stages in stage.inputs.items() if not stage.gathers else ():
        origin = f"of stage {stages.rstrip('?*')}"
        kind, default, words = {
            "*": (list[Path], [], f"Artifacts {origin}; give the option once per artifact."),
            "?": (Path | None, None, f"Artifact {origin}, if there is one."),
        }.get(stages[-1], (Path, NOTHING, f"Artifact {origin}."))
        yield parameter(role, kind, default, words)
    yield parameter("options", str, "{}", "Options that determine the result, as JSON; see the keys above.")
    if stage.seeded:
        yield parameter("seed", int, 0, "Base seed.", min=0)
    if stage.needs.gpu:
        yield parameter("device", Device, "auto", "cuda fails if there is no GPU.")
    yield parameter("threads", int, 1, "Number of CPUs to use; the result does not depend on it.", min=1)
    yield parameter("extension", list[Path], [], "Your own Python file that the options use.")


def _described(stage: Stage) -> str:
    lines, example = ["Keys of --options:\n"], {}
    for name, field in stage.model.model_fields.items():
        value = "..." if field.is_required() else field.get_default(call_default_factory=True)
        if not example and isinstance(value, str | int):
            example = {name: value}
        text = json.dumps(value.model_dump(mode="json") if isinstance(value, BaseModel) else value, default=str)
        default = "" if field.is_required() else f" (default: `{text}`)" if len(text) <= 60 else " (default: an object)"
        lines.append(f"- `{name}`{default}  {field.description or ''}".rstrip())
    made = "`granularity inspect RESULT` prints the command that made a result."
    return "\n".join([*lines, f"\nExample: `--options '{json.dumps(example)}'`. {made}"])


def _given(stage: Stage, given: dict[str, Any]) -> dict[str, tuple[Path, ...]]:
    values = {role: given[role] for role in stage.inputs}
    return {role: tuple(v) if isinstance(v, list) else () if v is None else (v,) for role, v in values.items()}


def _gathered(stage: Stage, options: Any, output: Path) -> dict[str, tuple[Path, ...]]:
    """The inputs of a stage that finds them by the configuration in its options."""
    plan = plans(files.validate(options.configuration))[-1]
    (job,) = plan.jobs(stage.name)
    folder, planned = str(output), str(plan.folder(job))
    prefix = folder.removesuffix(planned) if folder.endswith(planned) else ""  # of a Snakemake module
    return {role: tuple(Path(f"{prefix}{plan.folder(one)}") for one in jobs) for role, jobs in job.inputs.items()}


def parse(model: type[BaseModel], text: str, option: str) -> Any:
    """Read a stage's options from JSON; a key or value that the model does not take is one line."""
    values = parse_json(text, option)
    if not isinstance(values, dict):
        raise GranularityError(f"{option}: must be a JSON object, not {text[:80]}")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        path, shown, what = explained(error, model, values)[0]
        raise GranularityError(f"{option} {dotted(path)}{shown}: {what}") from None
