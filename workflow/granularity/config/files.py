"""Read, merge and check configuration files, with readable messages; generate options.yaml and schema.json."""

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

Found = list[tuple[str, dict]]  # files and their contents; later files win
DEFAULT = Path("config/config.yaml")
MODULE = "granularity"  # section of another workflow's configuration that configures this workflow as a module


def validate(values: dict, files: Iterable[str | Path] = (), given: dict | None = None) -> Config:
    """Check a merged configuration. Raise GranularityError: a line per mistake, with file, key, value and remedy.

    `files` are those it was merged from, in order; `given` is set on the command line. The files are read again here,
    because Snakemake reads them less strictly.
    """
    found = [*read(*files), *([("--config", given)] if given else [])]
    plainly = functools.reduce(deep, [*map(_read, files), given or {}], {})
    same = {"base": None, **plainly} == {"base": None, **values}
    return _validate(_merged(found) if same else values, found)  # a module's values are those that its user set


def load(*files: str | Path, overrides: dict | None = None, inputs: bool = True) -> Config:
    """Read, merge (later files win, key by key) and check YAML files; with `inputs`, also that named paths exist."""
    found = read(*files)
    return _validate(_merged([*found, ("", overrides or {})]), found, inputs)


def checked(values: dict) -> Config:
    """Check a configuration that is not in a file."""
    return _validate(values, [], inputs=False)


def read(*files: str | Path) -> Found:
    """Return the content of each file, after the content of the file that it names as its `base`. A base that came
    before does not undo what was written since.
    """
    found: Found = []
    known: set[str] = set()
    for file in once(files):
        for name, says in _with_base(file):
            if name == str(file) or os.path.realpath(name) not in known:
                found.append((name, says))
            known.add(os.path.realpath(name))
    return found


def once(files: Sequence[str | Path]) -> list[Path]:
    """Keep each file where it is named last; Snakemake names those of its command line first, and last again."""
    return [*{os.path.realpath(file): Path(file) for file in reversed(files)}.values()][::-1]


def _with_base(file: Path, above: tuple[Path, ...] = ()) -> Found:
    says = _read(file)
    base = says.pop("base", None)
    if base is None:
        return [(str(file), says)]
    if not isinstance(base, str):
        raise GranularityError(f"{file}: base: must be the name of a file, not {base}")
    other = file.parent / base
    if other.resolve() in (one.resolve() for one in (file, *above)):
        raise GranularityError(f"{file}: base: {base} is based on this file")
    return [*_with_base(other, (file, *above)), (str(file), says)]


def refuse(complaints: Iterable[str], found: Found) -> None:
    """Raise GranularityError if there are complaints ("key: what"), with a line for each that begins with the file."""
    _refuse(((place(where), what) for where, what in map(split_key, complaints)), found)


def setter(key: str, found: Found) -> str:
    """Return the last file that sets a key, or `default`."""
    path = place(key)
    named = [file for file, says in found if _depth(path, says) == len(path)]
    return named[-1] if named else "default"


def _merged(found: Found) -> dict:
    """Merge files; later ones win, key by key. Options for one architecture are not inherited by another."""
    merged: dict = {}
    for _, says in found:
        before, now = (one.get("model") if isinstance(one.get("model"), dict) else {} for one in (merged, says))
        if now.get("name", name := before.get("name", ARCHITECTURE)) != name:
            merged = {**merged, "model": {key: value for key, value in before.items() if key not in OF_OTHERS}}
        merged = deep(merged, says)
    return merged


def _validate(values: dict, found: Found, inputs: bool = True) -> Config:
    _refuse(strict_yaml.odd(values), found)
    if values.get("base") is not None:
        refuse(["base: belongs in a file of its own, named by --configfile"], found)
    values = _at_home(values)
    files = values.get("extensions")
    files = files if isinstance(files, list) and all(isinstance(file, str) for file in files) else []
    try:
        extensions.load(files)
    except GranularityError as error:
        raise GranularityError(f"{_file_with(['extensions'], found)}{error}") from None
    model = options.build() if files else Config
    try:
        config = model.model_validate(values)
    except ValidationError as error:
        mistakes = explained(error, model, model.inherited(values))
        twice = [(["finetune", *path[1:]], *details) for path, *details in mistakes if path[:1] == ["pretrain"]]
        _refuse(((path, text, value) for path, value, text in mistakes if (path, value, text) not in twice), found)
    complaints = []
    if found and ("/" in config.name or len(config.name) > LONGEST):  # a user's, not a study's cell
        complaints.append(
            f"name: may have at most {LONGEST} characters and no /, because it names a folder of results/"
        )
    try:
        complaints += options.complaints(config)
    except (ValueError, GranularityError) as error:  # from networks, transfers, or names of label spaces
        complaints += error.args
    refuse(complaints, found)
    refuse(map(": ".join, missing_paths(config)) if inputs else (), found)
    config.__dict__["given"] = values
    return config


def _refuse(mistakes: Iterable[tuple[Sequence, str] | tuple[Sequence, str, str]], found: Found) -> None:
    """Raise GranularityError for mistakes: tuples of a place, an explanation, and optionally text behind the place."""
    if lines := [
        f"{_file_with(path, found)}{dotted(path)}{''.join(shown)}{': ' if path else ''}{what}"
        for path, what, *shown in mistakes
    ]:
        raise GranularityError(*lines) from None


def missing_paths(config: Config) -> Iterator[tuple[str, str]]:
    """Yield files and folders that a configuration names but that are missing or empty: the key, and what is wrong."""
    expected: list[tuple[str, Any, str]] = []
    sections = {"samples": config.samples}
    sections |= {
        f"{transfer.data.where}.samples": transfer.data.samples for transfer in transfers(config) if transfer.data
    }
    for where, samples in sections.items():
        expected += [(f"{where}.{key}", getattr(samples, key), "folder") for key in ("root", "wordnet")]
        expected += [(f"{where}.{key}", getattr(samples, key), "file") for key in ("taxonomy", "subset")]
        for key, value in samples:  # mappings from names to folders
            entries = value.items() if isinstance(value, dict) else ()
            expected += [(f"{where}.{key}.{name}", path, "folder") for name, path in entries]
    expected.append(("predictions", config.predictions, "file"))
    expected.append(("encoder.embeddings", config.encoder.embeddings, "file"))
    model = config.encoder.name if config.encoder.embeddings is None else ""
    if model.endswith(".json"):
        expected.append(("encoder.model", model, "file"))
    if model.startswith("local-dir:"):
        expected.append(("encoder.model", model.removeprefix("local-dir:"), "folder"))
    for where, path, kind in expected:
        is_there = os.path.isdir if kind == "folder" else os.path.isfile  # Path's own raise for long names
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
        raise GranularityError(
            f"{file}: __use_yte__: templates run code, which a configuration must not do; write the values out"
        )
    section = values.get(MODULE)  # of a workflow that uses this one as a module
    return section if isinstance(section, dict) else values


def _at_home(value: Any) -> Any:
    """Return a configuration with `~/` expanded in all texts that begin with it, which only paths do."""
    if isinstance(value, dict):
        return {key: _at_home(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_at_home(one) for one in value]
    return os.path.expanduser(value) if isinstance(value, str) and value.startswith("~/") else value


def _file_with(path: Sequence, found: Found) -> str:
    """Return the last file that sets the key or, if none does, its deepest parent."""
    best, depth = "", 1
    for file, node in found:
        if (level := _depth(path, node)) >= depth:
            best, depth = f"{file}: ", level
    return best


def _depth(path: Sequence, node: Any) -> int:
    """Return how many keys of a path exist."""
    for level, part in enumerate(path):
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return level
    return len(path)


# ---------------------------------------------------------------- config/options.yaml and config/schema.json


def schema_json() -> str:
    """Return the JSON schema of the configuration, as written to `config/schema.json`."""
    return json.dumps(Config.model_json_schema(), indent=2) + "\n"


def default_yaml() -> str:
    """Return all options with defaults and comments, as written to `config/options.yaml`."""
    head = (
        "# Every option with its default. Do not edit this file: write your changes into a file of your own,\n# as "
        "config.yaml beside it does. Generated by `granularity config default`.\n"
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
        if field.default_factory is not None:  # inherits from another section
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
