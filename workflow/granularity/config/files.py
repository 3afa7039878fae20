"""Configuration files: read, merged and checked with messages for a person."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from granularity.base import extensions, strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.section import split_key
from granularity.config import options
from granularity.config.options import Config
from granularity.plan.trainings import transfers

RENAMED = {"jobs.probe": "jobs.measure"}  # keys of earlier versions


def validate(values: dict, files: tuple[str | Path, ...] = ()) -> Config:
    """Check a merged configuration mapping.

    Args:
        values: the mapping, as YAML or Snakemake gave it.
        files: the files it was merged from, in order, to name the one that holds a bad key. Snakemake has read them
            already, but less strictly: they are read again here.

    Raises:
        GranularityError: one line per mistake, naming file, key, value and what is allowed.
    """
    return _validate(values, [(str(file), _read(file)) for file in files])


def load(*files: str | Path, overrides: dict | None = None, inputs: bool = True) -> Config:
    """Read and merge YAML files (later ones win, key by key), and check the result.

    Args:
        inputs: whether the folders and files that it names must be there.
    """
    found = [(str(file), _read(file)) for file in files]
    merged: dict = {}
    for values in [*(values for _, values in found), overrides or {}]:
        merged = _merge(merged, values)
    return _validate(merged, found, inputs)


Found = list[tuple[str, dict]]  # the files, of which later ones win, and what each says


def _validate(values: dict, found: Found, inputs: bool = True) -> Config:
    _refuse(strict_yaml.odd(values), found)
    model = _model(values.get("extensions"), found)
    try:
        config = model.model_validate(values)
    except ValidationError as error:
        raise GranularityError(*_explained(model, error, values, found)) from None
    _refuse(_disagreements(config), found)
    _refuse(_missing_paths(config) if inputs else (), found)
    return config


def _disagreements(config: Config) -> Iterator[tuple[list, str]]:
    """Disagreements of sections: pairs of a place and what is wrong there."""
    complaints = []
    try:
        complaints += options.complaints(config)
    except ValueError as error:  # a key of a network or a transfer
        complaints.append(str(error))
    for complaint in complaints:
        where, what = split_key(complaint)
        yield _parts(where), what


def _model(own: Any, found: Found) -> type[Config]:
    """The model of a configuration that names files of the user's own, which may add keys to it."""
    own = own if isinstance(own, list) and all(isinstance(file, str) for file in own) else []
    try:
        extensions.load(own)
    except GranularityError as error:
        raise GranularityError(f"{_file_with(['extensions'], found)}{error}") from None
    return options.build() if own else Config


def _refuse(mistakes: Iterable[tuple[Sequence, str]], found: Found) -> None:
    lines = [
        f"{_file_with(path, found)}{'.'.join(map(str, path))}{': ' if path else ''}{what}" for path, what in mistakes
    ]
    if lines:
        raise GranularityError(*lines)


def _missing_paths(config: Config) -> Iterator[tuple[list, str]]:
    """The files and folders that a configuration names and that are not there."""
    encoder = config.encoder
    others = {transfer.data.where: transfer.data.samples for transfer in transfers(config) if transfer.data}
    wanted = []
    for where, samples in {"samples": config.samples, **{f"{at}.samples": one for at, one in others.items()}}.items():
        at = _parts(where)
        wanted += [([*at, key], getattr(samples, key), os.path.isdir, "folder") for key in ("root", "wordnet")]
        for key, value in samples:
            for name, path in value.items() if isinstance(value, dict) else ():  # folders by name
                wanted.append(([*at, key, name], path, os.path.isdir, "folder"))
        wanted.append(([*at, "taxonomy"], samples.taxonomy, os.path.isfile, "file"))
    if encoder.model.endswith(".json"):
        wanted.append((["encoder", "model"], encoder.model, os.path.isfile, "file"))
    folder = encoder.model.removeprefix("local-dir:")
    if folder != encoder.model:
        wanted.append((["encoder", "model"], folder, os.path.isdir, "folder"))
    for place, path, is_there, what in wanted:
        if path is not None and not is_there(path):  # Path's own methods raise for names that are too long
            yield place, f"there is no {what} '{path}'"


def _read(file: str | Path) -> dict:
    values = strict_yaml.read(file)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise GranularityError(f"{file}: must be a mapping of keys to values, not a {type(values).__name__}")
    if "__use_yte__" in values:
        raise GranularityError(f"{file}: __use_yte__: templates run code, and a configuration is data; write it out")
    return values


def _merge(base: dict, over: dict) -> dict:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            value = _merge(merged[key], value)
        merged[key] = value
    return merged


def _explained(model: type[Config], error: ValidationError, values: dict, found: Found) -> list[str]:
    """One line per mistake: what no branch of a union takes is one mistake, whatever the number of branches."""
    lines: dict[str, list[str]] = {}
    for item in error.errors():
        head, what = _explain(model, item, values, found)
        lines.setdefault(head, []).append(what)
    return [head + ", or ".join(dict.fromkeys(whats)) for head, whats in lines.items()]


def _explain(model: type[Config], error: dict, values: dict, found: Found) -> tuple[str, str]:
    """The place of a mistake, with the value there; and what is wrong with it."""
    path = _path(error["loc"], values)
    context = error.get("ctx", {}).get("error")
    where = ".".join(str(part) for part in path)
    if where in RENAMED:
        what = f"is called {RENAMED[where]} now; write that instead"
    elif error["type"] == "extra_forbidden":
        allowed = _keys_at(model, path[:-1])
        close = difflib.get_close_matches(str(path[-1]), allowed, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        what = f"unknown key; {hint}allowed here: {', '.join(allowed)}"
    elif context is not None:  # one of our own checks; its message begins with the key it is about
        key, what = split_key(str(context))
        where = ".".join(filter(None, (where, key)))
        return f"{_file_with(_parts(where), found)}{where}: ", what
    elif error["type"] == "string_pattern_mismatch":
        what = "can only hold letters, digits, '_', '.' and '-', and begins with a letter or a digit"
    else:
        what = error["msg"][0].lower() + error["msg"][1:]
    value = json.dumps(error["input"], default=str, ensure_ascii=False)
    value = value if len(value) <= 80 else value[:77] + "..."
    return f"{_file_with(path, found)}{where} = {value}: ", what


def _parts(where: str) -> list[str | int]:
    """Keys and list indices of a place that is written with dots or brackets."""
    parts = where.replace("[", ".").replace("]", "").split(".")
    return [int(part) if part.isdigit() else part for part in parts if part]


def _path(location: tuple, values: Any) -> list:
    """Keys and list indices of pydantic's location, which also names the branch of a union."""
    path = []
    for part in location:
        is_key = isinstance(values, dict) and part in values
        if is_key or (isinstance(values, list) and isinstance(part, int) and part < len(values)):
            path.append(part)
            values = values[part]
    return path


def _keys_at(model: Any, path: list) -> list[str]:
    for part in path:
        if isinstance(part, int):
            continue
        model = model.model_fields[part].annotation
        for candidate in get_args(model):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                model = candidate
    return list(model.model_fields)


def _file_with(path: Sequence, found: Found) -> str:
    """The last of the files that sets the key, or the deepest parent of it."""
    best, depth = None, 0
    for file, values in found:
        node: Any = values
        for level, part in enumerate(path, start=1):
            if (isinstance(node, list) and isinstance(part, int) and part < len(node)) or (
                isinstance(node, dict) and part in node
            ):
                node = node[part]
            else:
                break
            if level >= depth:
                best, depth = file, level
    return f"{best}: " if best else ""
