"""Configuration files: read, merged and checked with messages for a person; and the two that are generated."""

from __future__ import annotations

import difflib
import json
import textwrap
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from granularity.config import Config, Section
from granularity.errors import GranularityError


def validate(values: dict, files: tuple[str | Path, ...] = ()) -> Config:
    """Check a merged configuration mapping.

    Args:
        values: the mapping, as YAML or Snakemake gave it.
        files: the files it was merged from, in order, to name the one that holds a bad key.

    Raises:
        GranularityError: one line a mistake, naming file, key, value and what is allowed.
    """
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise GranularityError("\n".join(_explain(item, files) for item in error.errors())) from None
    samples, encoder = config.samples, config.encoder
    wanted = [(["samples", key], getattr(samples, key), Path.is_dir, "folder") for key in ("root", "wordnet")]
    wanted += [(["samples", "shifted", name], path, Path.is_dir, "folder") for name, path in samples.shifted.items()]
    wanted.append((["samples", "taxonomy"], samples.taxonomy, Path.is_file, "file"))
    if encoder.model.endswith(".json"):
        wanted.append((["encoder", "model"], Path(encoder.model), Path.is_file, "file"))
    for place, path, is_there, what in wanted:
        if path is not None and not is_there(path):
            raise GranularityError(f"{_file_with(place, files)}{'.'.join(place)}: there is no {what} '{path}'")
    folder = encoder.model.removeprefix("local-dir:")
    if folder != encoder.model and not Path(folder).is_dir():
        where = _file_with(["encoder", "model"], files)
        raise GranularityError(f"{where}encoder.model: there is no folder '{folder}'")
    return config


def load(*files: str | Path, overrides: dict | None = None) -> Config:
    """Read and merge YAML files (later ones win, key by key), and check the result."""
    merged: dict = {}
    for file in files:
        merged = _merge(merged, _read_yaml(file))
    return validate(_merge(merged, overrides or {}), files)


def _read_yaml(file: str | Path) -> dict:
    try:
        values = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GranularityError(f"{file}: there is no such configuration file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise GranularityError(f"{file}: not readable as YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise GranularityError(f"{file}: must be a mapping of keys to values, not a {type(values).__name__}")
    return values


def _merge(base: dict, over: dict) -> dict:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            value = _merge(merged[key], value)
        merged[key] = value
    return merged


def _explain(error: dict, files: tuple[str | Path, ...]) -> str:
    # pydantic's location also names the branch of a union (an int after it is a list index).
    path = [part for part in error["loc"] if isinstance(part, int) or part.isidentifier()]
    path = [part for part in path if part not in ("int", "float", "str")]
    context = error.get("ctx", {}).get("error")
    where = ".".join(str(part) for part in path)
    if error["type"] == "extra_forbidden":
        allowed = _keys_at(path[:-1])
        close = difflib.get_close_matches(str(path[-1]), allowed, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        what = f"unknown key; {hint}allowed here: {', '.join(allowed)}"
    elif context is not None:  # one of our own checks; its message begins with the key it is about
        key, _, what = str(context).partition(": ")
        where = ".".join(filter(None, (where, key)))
        path = where.replace("[", ".").replace("]", "").split(".")
        return f"{_file_with(path, files)}{where}: {what}"
    else:
        what = error["msg"][0].lower() + error["msg"][1:]
    value = json.dumps(error["input"], default=str, ensure_ascii=False)
    value = value if len(value) <= 80 else value[:77] + "..."
    return f"{_file_with(path, files)}{where} = {value}: {what}"


def _keys_at(path: list) -> list[str]:
    model: Any = Config
    for part in path:
        if isinstance(part, int):
            continue
        model = model.model_fields[part].annotation
        for candidate in get_args(model):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                model = candidate
    return list(model.model_fields)


def _file_with(path: list, files: tuple[str | Path, ...]) -> str:
    """The last of the files that sets the key, or the deepest parent of it."""
    best, depth = None, 0
    for file in files:
        node: Any = _read_yaml(file)
        for level, part in enumerate(path, start=1):
            if isinstance(node, list) and str(part).isdigit() and int(part) < len(node):
                node = node[int(part)]
            elif isinstance(node, dict) and part in node:
                node = node[part]
            else:
                break
            if level >= depth:
                best, depth = file, level
    return f"{best}: " if best else ""


# ---------------------------------------------------------------- generated files


def schema_json() -> str:
    """The JSON schema of the configuration, as written to `config/schema.json`."""
    return json.dumps(Config.model_json_schema(), indent=2) + "\n"


def default_yaml() -> str:
    """The commented default configuration, as written to `config/config.yaml`."""
    head = (
        "# The default run: real images, minutes on a laptop CPU, no downloads.\n"
        "# Every option, with its default. Generated from workflow/granularity/config.py by `granularity config\n"
        "# default`; to change a run, write only what differs into a file of your own and add it:\n"
        "#   snakemake --configfile config/experiments/mine.yaml\n"
    )
    return head + "\n".join(_document(Config(), ""))


def _document(section: Section, indent: str) -> list[str]:
    lines = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        text = field.description or ""
        if isinstance(value, Section):
            text = text or (type(value).__doc__ if type(value).__doc__ != Section.__doc__ else "") or ""
        if not indent:
            lines.append("")
        width = 110 - len(indent) - 2
        lines += [f"{indent}# {line}" for line in textwrap.wrap(" ".join(text.split()), width)]
        if isinstance(value, Section):
            lines.append(f"{indent}{name}:")
            lines += _document(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Section):
            lines.append(f"{indent}{name}:")
            lines += [f"{indent}  - {_flow(item.model_dump(exclude_defaults=True))}" for item in value]
        else:
            lines.append(f"{indent}{name}: {_flow(value)}")
    return [*lines, ""] if not indent else lines


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).strip()
    return text.removesuffix("\n...").removesuffix("...").strip()
