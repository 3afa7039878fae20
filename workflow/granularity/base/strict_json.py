"""Read JSON strictly, with errors of one line: unlike Python's own reader, no key twice and no NaN."""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular, read_regular

LARGEST = 16 << 20  # bytes
LONGEST_HEADER = 8 << 20  # bytes of the JSON in a safetensors file; files with thousands of tensors need this much


def read_json(path: str | Path, what: str = "JSON", most_bytes: int = LARGEST) -> Any:
    """Return the data in a JSON file, see :func:`granularity.base.regular.read_regular` and :func:`parse_json`."""
    return parse_json(read_regular(path, most_bytes), str(path), what)


def parse_json(
    text: str | bytes, where: str, what: str = "JSON", keep: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """Parse JSON. Raise GranularityError: not JSON in UTF-8, a key twice, or a number that is not finite.

    `where` and `what` are the file and its expected format, for messages. If `keep` is given, its result replaces each
    object; NaN and Infinity then become None, because publishers write NaN for missing values.
    """
    hooks: dict[str, Any] = {"object_pairs_hook": unique, "parse_constant": _finite, "parse_float": _finite}
    if keep is not None:
        hooks = {"object_pairs_hook": lambda pairs: keep(unique(pairs)), "parse_constant": lambda _: None}
    try:
        return json.loads(text.decode("utf-8") if isinstance(text, bytes) else text, **hooks)
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as error:  # from the hooks, or a number of thousands of digits
        reason = str(error)
    raise GranularityError(f"{where}: is truncated or no {what} ({reason})")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs, for readers of JSON. Raise ValueError if a key occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the key '{repeated(name for name, _ in pairs)[:100]}' appears twice")
    return found


def repeated(names: Iterable[str]) -> str:
    """Return the first name that occurs a second time; there must be one."""
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))


def read_safetensors_header(path: str | Path) -> dict[str, Any]:
    """Return the JSON header of a safetensors file (after eight bytes of length): each tensor and `__metadata__`."""
    with open_regular(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(min(length, LONGEST_HEADER))
    if not text.startswith(b"{") or len(text) < length:
        raise GranularityError(f"{path}: is truncated or not a safetensors file; download it again, or convert it")
    return parse_json(text, str(path), "safetensors file")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number
