"""Read YAML and JSON that people write, with errors of one line that say what is wrong and where; no key twice."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from granularity.base.errors import GranularityError
from granularity.base.regular import MissingError, read_text
from granularity.base.strict_json import repeated, unique

DEEPEST, MOST = 100, 1_000_000  # levels; values, counted again for each alias


class _Loader(yaml.SafeLoader):
    def __init__(self, text):
        super().__init__(text)
        self.count, self.sizes = 0, {}

    def compose_node(self, parent, index):
        event, before = self.peek_event(), self.count
        node = super().compose_node(parent, index)
        again = isinstance(event, yaml.AliasEvent)
        self.count += self.sizes.get(event.anchor, MOST + 1) if again else 1  # an alias in its own anchor never ends
        self.sizes.setdefault(event.anchor, self.count - before)
        if self.count > MOST:
            raise yaml.composer.ComposerError(
                None, None, f"its aliases expand to more than {MOST:,} values", event.start_mark
            )
        return node

    def compose_mapping_node(self, anchor):
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(keys):
            twice = repeated(keys)
            again = [key for key, _ in node.value if key.value == twice][1]
            raise yaml.composer.ComposerError(None, None, f"the key '{twice}' appears twice", again.start_mark)
        return node

    def construct_object(self, node, deep=False):
        """Construct an object by PyYAML; give any ValueError of its date and number parsers a position."""
        try:
            return super().construct_object(node, deep)
        except ValueError:
            what = f"cannot be read as {node.tag.rsplit(':', 1)[-1]}: {str(node.value)[:60]}"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None


def read(file: str | Path) -> Any:
    """Return the contents of a file, see :func:`parse`; None if it is empty."""
    try:
        return parse(read_text(file), str(file))
    except MissingError:
        raise GranularityError(f"{file}: there is no such configuration file") from None


def parse(text: str, where: str) -> Any:
    """Parse a text as JSON if it is JSON, otherwise as YAML, like Snakemake; messages call it `where`.

    Raises GranularityError: neither YAML nor JSON, several documents, a key twice, or a tag for a Python object.
    """
    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError:
        pass
    except (ValueError, RecursionError) as error:
        raise GranularityError(f"{where}: {_words(error)}") from None
    try:
        return yaml.load(text, _Loader)  # noqa: S506, it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join((error.problem or error.context or "").split())
        hint = " (indent with spaces, not tabs)" if "'\\t'" in problem else ""
        raise GranularityError(f"{where}: not readable as YAML: {at}{problem}{hint}") from None
    except (yaml.YAMLError, RecursionError) as error:  # YAMLError: invalid characters
        raise GranularityError(f"{where}: not readable as YAML: {_words(error)}") from None


def _words(error: Exception) -> str:
    return "is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())


def odd(values: Any, path: tuple = ()) -> Iterator[tuple[tuple, str]]:
    """Find values that are not plain data in what another loader has read: yield their place and what is wrong."""
    if len(path) > DEEPEST:
        yield path[:1], "is nested too deeply"
    elif isinstance(values, dict):
        for key, value in values.items():
            if isinstance(key, str):
                yield from odd(value, (*path, key))
            else:
                yield (*path, key), "a key must be text; put it in quotes"
    elif isinstance(values, list):
        for i, value in enumerate(values):
            yield from odd(value, (*path, i))
    elif isinstance(values, float) and not math.isfinite(values):
        yield path, f"{values} is not a finite number"
    elif not isinstance(values, bool | int | float | str | Path | None):
        yield path, f"YAML reads it as Python's {type(values).__name__}; put text in quotes"
