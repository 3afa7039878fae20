"""JSON that nobody vouches for: plain data, or one line that says what is wrong.

Python's own reader keeps the last of two equal keys, takes NaN for a number, and turns a megabyte of brackets into a
hundred megabytes of lists.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.regular import open_regular, read_regular

LARGEST = 16 << 20  # bytes
DEEPEST = 40  # levels
MOST = 1_000_000  # values and keys; of each there is one comma, colon or bracket
LONGEST_HEADER = 8 << 20  # bytes of the JSON in a safetensors file; thousands of tensors need one


class _Refused(ValueError):
    """Says what is wrong with a text."""


def read_json(path: str | Path, what: str = "JSON", most_bytes: int = LARGEST) -> Any:
    """The plain data in a file.

    Args:
        what: what the file should hold, in messages.

    Raises:
        MissingError: there is no such file.
        GranularityError: it cannot be read or is too large, or see :func:`parse_json`.
    """
    return parse_json(read_regular(path, most_bytes), str(path), what)


def parse_json(
    text: str | bytes, where: str, what: str = "JSON", keep: Callable[[dict[str, Any]], Any] | None = None
) -> Any:
    """The plain data in a text.

    Args:
        where: the file in messages.
        what: what the text should be, in messages.
        keep: called for each object as soon as it is read; what it returns takes the object's place. The size of the
            data is then not bounded, and a number that is not finite is None: publishers write NaN for what is missing.

    Raises:
        GranularityError: no JSON in UTF-8, a key twice, a number that is not finite, or nested or repeated beyond
            reason.
    """

    def unique(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _Refused(f"the key '{repeated(name for name, _ in pairs)[:100]}' is there twice")
        return found if keep is None else keep(found)

    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        if keep is None and sum(map(text.count, ",:[{")) > MOST:
            raise _Refused(f"it holds more than {MOST:,} values")
        found = json.loads(
            text,
            object_pairs_hook=unique,
            parse_constant=_no_number if keep is None else lambda _: None,
            parse_float=_finite if keep is None else float,
            parse_int=_whole,
        )
        if keep is None:
            _check_depth(found)
        return found
    except _Refused as error:
        reason = str(error)
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is no UTF-8"
    except RecursionError:
        reason = f"it is nested more than {DEEPEST} levels deep"
    raise GranularityError(f"{where}: is truncated or no {what} ({reason})")


def repeated(names: Iterable[str]) -> str:
    """The first name that is there a second time; one is."""
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))


def read_safetensors_header(path: str | Path) -> dict[str, Any]:
    """The JSON at the head of a safetensors file: for each tensor its place, and `__metadata__`.

    Layout: https://github.com/huggingface/safetensors, README: eight bytes with the length, then the JSON.

    Raises:
        MissingError: there is no such file.
        GranularityError: it cannot be read, or it is no safetensors file.
    """
    with open_regular(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(min(length, LONGEST_HEADER))
    if not text.startswith(b"{") or len(text) < length:
        raise GranularityError(f"{path}: is truncated or no safetensors file; get it again, or convert it")
    return parse_json(text, str(path), "safetensors file")


def _check_depth(values: Any) -> None:
    level = [values]
    for _ in range(DEEPEST + 1):
        parts = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        if not parts:
            return
        level = [value for part in parts for value in part]
    raise _Refused(f"it is nested more than {DEEPEST} levels deep")


def _no_number(text: str) -> None:
    raise _Refused(f"{text} is no number of JSON's")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise _Refused(f"{text[:40]} is too large a number")
    return number


def _whole(text: str) -> int:
    if len(text) > 100:
        raise _Refused(f"{text[:40]}... is too large a number")
    return int(text)
