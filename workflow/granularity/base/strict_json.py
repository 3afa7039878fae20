"""JSON: plain data, or one line that says what is wrong; no key twice, and no NaN, as Python's own reader takes."""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular, read_regular

LARGEST = 16 << 20  # bytes
LONGEST_HEADER = 8 << 20  # bytes of the JSON in a safetensors file; thousands of tensors need one


def read_json(path: str | Path, what: str = "JSON", most_bytes: int = LARGEST) -> Any:
    """The plain data in a file, see :func:`granularity.base.regular.read_regular` and :func:`parse_json`."""
    return parse_json(read_regular(path, most_bytes), str(path), what)


def parse_json(
    text: str | bytes, where: str, what: str = "JSON", keep: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """The plain data in a text; GranularityError: no JSON in UTF-8, a key twice, or a number that is not finite.

    `where` and `what` are the file, and what it should be, in messages. What `keep` returns for each object takes its
    place; a number that is not finite is None then, as publishers write NaN for what is missing.
    """
    hooks: dict[str, Any] = {"object_pairs_hook": unique, "parse_constant": _finite, "parse_float": _finite}
    if keep is not None:
        hooks = {"object_pairs_hook": lambda pairs: keep(unique(pairs)), "parse_constant": lambda _: None}
    try:
        return json.loads(text.decode("utf-8") if isinstance(text, bytes) else text, **hooks)
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is no UTF-8"
    except RecursionError:
        reason = "it is nested too deep"
    except ValueError as error:  # of the hooks, or a number of thousands of digits
        reason = str(error)
    raise GranularityError(f"{where}: is truncated or no {what} ({reason})")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For readers of JSON: the object of these pairs; ValueError where a key is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the key '{repeated(name for name, _ in pairs)[:100]}' is there twice")
    return found


def repeated(names: Iterable[str]) -> str:
    """The first name that is there a second time; one is."""
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))


def read_safetensors_header(path: str | Path) -> dict[str, Any]:
    """The JSON at the head of a safetensors file, after eight bytes with its length: each tensor, `__metadata__`."""
    with open_regular(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(min(length, LONGEST_HEADER))
    if not text.startswith(b"{") or len(text) < length:
        raise GranularityError(f"{path}: is truncated or no safetensors file; get it again, or convert it")
    return parse_json(text, str(path), "safetensors file")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is no finite number")
    return number
