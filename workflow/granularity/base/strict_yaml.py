"""YAML and JSON that nobody vouches for: plain data, or one line that says what is wrong.

PyYAML alone keeps the last of two equal keys, expands aliases without end, and raises whatever a value's own parser
does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, read_regular
from granularity.base.strict_json import DEEPEST, repeated

LARGEST = 1 << 20  # bytes
MOST = 50_000  # values and keys, those behind an alias each time that it is used; PyYAML reads some 20,000 a second
LONG = 100  # a text counts once more for each so many characters: a long one, too, can be repeated by aliases


class _Loader(yaml.SafeLoader):
    composed = 0
    aliases = True

    def compose_node(self, parent, index):
        self.composed += 1
        if not self.aliases and self.check_event(yaml.AliasEvent):
            raise GranularityError(f"line {self.line + 1}: has an alias (*); write it out")
        if self.composed > MOST:
            raise GranularityError(f"line {self.line + 1}: holds more than {MOST:,} values")
        return super().compose_node(parent, index)

    def construct_object(self, node, deep=False):
        """PyYAML's, whose parsers of dates and numbers raise what they like."""
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception:
            what = f"cannot be read as {node.tag.rsplit(':', 1)[-1]}: {str(node.value)[:60]}"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None


def read(file: str | Path) -> Any:
    """Read a file; None where it is empty.

    Raises:
        GranularityError: it cannot be read, or see :func:`parse`.
    """
    try:
        return parse(read_regular(file, LARGEST).decode("utf-8"), str(file))
    except MissingError:
        raise GranularityError(f"{file}: there is no such configuration file") from None
    except UnicodeDecodeError as error:
        raise GranularityError(f"{file}: not readable as YAML: byte {error.start} is no UTF-8") from None


def parse(text: str, where: str, aliases: bool = True) -> Any:
    """Parse a text: as JSON if it is JSON, or else as YAML, like Snakemake.

    Args:
        where: what messages call the text.
        aliases: whether it may have any.

    Raises:
        GranularityError: neither YAML nor JSON, several documents, a key twice, a tag that stands for an object of
            Python's, or nested, aliased or repeated beyond reason.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except ValueError:
        pass
    except RecursionError:
        raise GranularityError(f"{where}: is nested more than {DEEPEST} levels deep") from None
    except GranularityError as error:
        raise GranularityError(f"{where}: {error}") from None
    loader = None
    try:
        if len(text) > LARGEST:
            raise GranularityError(f"is longer than {LARGEST:,} characters")
        loader = _Loader(text)
        loader.aliases = aliases
        node = loader.get_single_node()
        if node is None:
            return None
        _size(node, {}, 0)
        return loader.construct_document(node)
    except GranularityError as error:
        raise GranularityError(f"{where}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = " ".join((error.problem or error.context or "").split())
        hint = " (indent with spaces, not tabs)" if "'\\t'" in what else ""
        raise GranularityError(f"{where}: not readable as YAML: {at}{what}{hint}") from None
    except RecursionError:
        raise GranularityError(f"{where}: is nested more than {DEEPEST} levels deep") from None
    except yaml.YAMLError as error:  # of single characters
        raise GranularityError(f"{where}: not readable as YAML: {' '.join(str(error).split())}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise GranularityError(f"the key '{repeated(name for name, _ in pairs)}' is there twice")
    return found


def _size(node: yaml.Node, known: dict[int, int | None], depth: int) -> int:
    """Number of values that a node stands for once its aliases are expanded; None in `known`: it is being counted."""
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode):
        return 1 + len(node.value) // LONG
    if id(node) in known:
        if known[id(node)] is None:
            raise GranularityError(f"line {line}: an alias stands within what it is an alias of")
        return known[id(node)]
    if depth > DEEPEST:
        raise GranularityError(f"line {line}: is nested more than {DEEPEST} levels deep")
    known[id(node)] = None
    parts = node.value
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in parts if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(keys):
            twice = repeated(keys)
            again = [key for key, _ in parts if key.value == twice][1]
            raise GranularityError(f"line {again.start_mark.line + 1}: the key '{twice}' is there twice")
        parts = [part for pair in parts for part in pair]
    size = 1 + sum(_size(part, known, depth + 1) for part in parts)
    if size > MOST:
        raise GranularityError(f"line {line}: its aliases stand for more than {MOST:,} values")
    known[id(node)] = size
    return size


def odd(values: Any, path: tuple = (), above: tuple = ()) -> Iterator[tuple[tuple, str]]:
    """Find what is no plain data in values that another loader has read: pairs of a place and what is wrong there."""
    if any(values is one for one in above):
        yield path, "stands within itself"
    elif len(above) > DEEPEST:
        yield path, f"is nested more than {DEEPEST} levels deep"
    elif isinstance(values, dict):
        for key, value in values.items():
            if not isinstance(key, str):
                yield (*path, key), "a key must be text; write it in quotes"
            elif found := _unwritable(key):
                yield (*path, key), f"a key holds {found}"
            else:
                yield from odd(value, (*path, key), (*above, values))
    elif isinstance(values, list):
        for i, value in enumerate(values):
            yield from odd(value, (*path, i), (*above, values))
    elif isinstance(values, str):
        if found := _unwritable(values):
            yield path, f"holds {found}"
    elif isinstance(values, float) and not math.isfinite(values):
        yield path, f"{values} is no finite number"
    elif not isinstance(values, bool | int | float | Path | None):
        yield path, f"YAML takes it for Python's {type(values).__name__}; write text in quotes"


def _unwritable(text: str) -> str | None:
    """Control characters but line breaks and tabs, and halves of characters, which no UTF-8 file can hold."""
    if text.isprintable():
        return None
    bad = [c for c in text if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160 or "\ud800" <= c <= "\udfff")]
    return f"the control character {bad[0]!r}" if bad else None
