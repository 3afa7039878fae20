"""Configuration files: read, merged and checked with messages for a person; and the two that are generated."""

import functools
import json
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from granularity.base import extensions, strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.section import Section, dotted, explained, place, split_key
from granularity.base.shipped import given, located
from granularity.config import options
from granularity.config.options import LONGEST, Config
from granularity.learning.options import ARCHITECTURE, OF_OTHERS
from granularity.plan.trainings import deep, transfers

Found = list[tuple[str, dict]]  # the files, of which later ones win, and what each says
DEFAULT = Path("config/config.yaml")
MODULE = "granularity"  # the section of the configuration of another workflow that is one of this workflow


def validate(values: dict, files: Iterable[str | Path] = (), given: dict | None = None) -> Config:
    """Check a merged configuration mapping; GranularityError: a line per mistake, with file, key, value and remedy.

    `files` are those it was merged from, in order, `given` what the command line says besides. Snakemake has read them
    less strictly: they are read again here.
    """
    found = [*read(*files), *([("--config", given)] if given else [])]
    plainly = functools.reduce(deep, (says for _, says in found), {})
    return _validate(_merged(found) if plainly == values else values, found)  # a module's are as its user has them


def load(*files: str | Path, overrides: dict | None = None, inputs: bool = True) -> Config:
    """Read and merge YAML files (later ones win, key by key), and check the result, with `inputs` what it names."""
    found = read(*files)
    return _validate(_merged([*found, ("", overrides or {})]), found, inputs)


def checked(values: dict) -> Config:
    """Check a configuration that no file holds."""
    return _validate(values, [], inputs=False)


def read(*files: str | Path) -> Found:
    """What each of some files says."""
    return [(str(file), _read(file)) for file in files]


def refuse(complaints: Iterable[str], found: Found) -> None:
    """Raise a GranularityError if there are complaints, each "key: what": a line for each, with the file in front."""
    _refuse(((place(where), what) for where, what in map(split_key, complaints)), found)


def setter(key: str, found: Found) -> str:
    """The last of the files that sets a key, or `default`, also where the default file says what it came with."""
    path = place(key)
    named = [(file, says) for file, says in found if _depth(path, says) == len(path)]
    if not named:
        return "default"
    file, says = named[-1]
    came = strict_yaml.parse(default_yaml(), "")
    as_it_came = _depth(path, came) == len(path) and _at(path, came) == _at(path, says)
    return "default" if as_it_came and DEFAULT.is_file() and DEFAULT.samefile(file) else file


def in_order(files: Sequence[str | Path]) -> list[Path]:
    """Files of a command line, after the default in the working directory, with which Snakemake begins as well."""
    named = [Path(file) for file in files]
    if not named or (DEFAULT.is_file() and not any(file.is_file() and file.samefile(DEFAULT) for file in named)):
        return [DEFAULT, *named]
    return named


def _merged(found: Found) -> dict:
    """Later files win, key by key. What is said of one architecture is not inherited by another."""
    merged: dict = {}
    for _, says in found:
        before, now = (one.get("model") if isinstance(one.get("model"), dict) else {} for one in (merged, says))
        if now.get("name", name := before.get("name", ARCHITECTURE)) != name:
            merged = {**merged, "model": {key: value for key, value in before.items() if key not in OF_OTHERS}}
        merged = deep(merged, says)
    return merged


def _validate(values: dict, found: Found, inputs: bool = True) -> Config:
    _refuse(strict_yaml.odd(values), found)
    values = _at_home(values)
    own = values.get("extensions")
    own = own if isinstance(own, list) and all(isinstance(file, str) for file in own) else []
    try:
        extensions.load(own)
    except GranularityError as error:
        raise GranularityError(f"{_file_with(['extensions'], found)}{error}") from None
    model = options.build() if own else Config
    try:
        config = model.model_validate(values)
    except ValidationError as error:
        mistakes = explained(error, model, model.inherited(values))
        twice = [(["finetune", *path[1:]], *said) for path, *said in mistakes if path[:1] == ["pretrain"]]
        _refuse(((path, what, shown) for path, shown, what in mistakes if (path, shown, what) not in twice), found)
    complaints = []
    if found and ("/" in config.name or len(config.name) > LONGEST):  # of a user, and not of a study's cell
        complaints.append(f"name: holds at most {LONGEST} characters, and no /: it names a folder of results/")
    try:
        complaints += options.complaints(config)
    except (ValueError, GranularityError) as error:  # of a network or a transfer, or of names of label spaces
        complaints += error.args
    refuse(complaints, found)
    refuse(map(": ".join, missing_paths(config)) if inputs else (), found)
    config.__dict__["given"] = values
    return config


def _refuse(mistakes: Iterable[tuple[Sequence, str] | tuple[Sequence, str, str]], found: Found) -> None:
    """Refuse what is wrong: tuples of a place, words, and what stands behind the place."""
    if lines := [
        f"{_file_with(path, found)}{dotted(path)}{''.join(shown)}{': ' if path else ''}{what}"
        for path, what, *shown in mistakes
    ]:
        raise GranularityError(*lines) from None


def missing_paths(config: Config) -> Iterator[tuple[str, str]]:
    """Files and folders that a configuration names and that are not there, or empty: the key, and what is wrong."""
    wanted: list[tuple[str, Any, str]] = []
    sections = {"samples": config.samples}
    sections |= {f"{one.data.where}.samples": one.data.samples for one in transfers(config) if one.data}
    for where, samples in sections.items():
        wanted += [(f"{where}.{key}", getattr(samples, key), "folder") for key in ("root", "wordnet")]
        wanted.append((f"{where}.taxonomy", samples.taxonomy, "file"))
        for key, value in samples:  # folders by name
            named = value.items() if isinstance(value, dict) else ()
            wanted += [(f"{where}.{key}.{name}", path, "folder") for name, path in named]
    wanted.append(("predictions", config.predictions, "file"))
    wanted.append(("encoder.embeddings", config.encoder.embeddings, "file"))
    model = config.encoder.name if config.encoder.embeddings is None else ""
    if model.endswith(".json"):
        wanted.append(("encoder.model", model, "file"))
    if model.startswith("local-dir:"):
        wanted.append(("encoder.model", model.removeprefix("local-dir:"), "folder"))
    for where, path, kind in wanted:
        is_there = os.path.isdir if kind == "folder" else os.path.isfile  # Path's own raise for names that are too long
        if path is not None and not is_there(located(str(path))):
            yield where, f"there is no {kind} '{path}'"
        elif path is not None and kind == "folder" and os.access(path, os.R_OK) and not os.listdir(path):
            yield where, f"the folder '{path}' is empty"


def _read(file: str | Path) -> dict:
    values = strict_yaml.read(file)
    if values is None:
        raise GranularityError(f"{file}: is empty; write what differs from the default, at least a name")
    if not isinstance(values, dict):
        raise GranularityError(f"{file}: must be a mapping of keys to values, not a {type(values).__name__}")
    if "__use_yte__" in values:
        raise GranularityError(f"{file}: __use_yte__: templates run code, and a configuration is data; write it out")
    own = values.get(MODULE)  # of a workflow that has this one as a module
    return own if isinstance(own, dict) else values


def _at_home(value: Any) -> Any:
    """A configuration in which each text that begins with `~/`, as only paths do, names the folder that it means."""
    if isinstance(value, dict):
        return {key: _at_home(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_at_home(one) for one in value]
    return os.path.expanduser(value) if isinstance(value, str) and value.startswith("~/") else value


def _file_with(path: Sequence, found: Found) -> str:
    """The last of the files that sets the key, or the deepest parent of it."""
    best, depth = "", 1
    for file, node in found:
        if (level := _depth(path, node)) >= depth:
            best, depth = f"{file}: ", level
    return best


def _at(path: Sequence, node: Any) -> Any:
    return functools.reduce(lambda found, part: found[part], path, node)


def _depth(path: Sequence, node: Any) -> int:
    """How many of the keys of a path there are."""
    for level, part in enumerate(path):
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return level
    return len(path)


# ---------------------------------------------------------------- config/config.yaml and config/schema.json


def schema_json() -> str:
    """The JSON schema of the configuration, as written to `config/schema.json`."""
    return json.dumps(Config.model_json_schema(), indent=2) + "\n"


def default_yaml() -> str:
    """The commented default configuration, as written to `config/config.yaml`."""
    head = (
        "# The default run: real images, minutes on a laptop CPU, no downloads.\n"
        "# Every option, with its default. Generated from the options in workflow/granularity by `granularity config\n"
        "# default`; to change a run, write only what differs into a file of your own and add it:\n"
        "#   snakemake --configfile config/experiments/mine.yaml\n"
    )
    return head + "\n".join(_document(options.build()(), ""))  # with the keys of the sources known now


def _document(section: Section, indent: str) -> list[str]:
    lines = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        text = field.description or ""
        if isinstance(value, Section) and type(value).__doc__ != Section.__doc__:
            text = text or type(value).__doc__ or ""
        lines += [] if indent else [""]
        lines += [f"{indent}# {line}" for line in textwrap.wrap(" ".join(text.split()), 108 - len(indent))]
        if field.default_factory is not None:  # as another section, but for what it says
            lines.append(f"{indent}{name}: {{}}")
        elif isinstance(value, Section):
            lines += [f"{indent}{name}:", *_document(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], Section):
            items = [f"{indent}  - {_flow(item.model_dump(exclude_unset=True))}" for item in value]
            lines += [f"{indent}{name}:", *items]
        else:
            lines.append(f"{indent}{name}: {_flow(value)}")
    return [*lines, ""] if not indent else lines


def _flow(value: Any) -> str:
    text = yaml.safe_dump(given(value), default_flow_style=True, width=10_000, sort_keys=False).strip()
    return text.removesuffix("\n...").removesuffix("...").strip()
