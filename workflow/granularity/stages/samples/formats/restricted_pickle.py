"""The data in a pickle, read without unpickling it.

A pickle is a program, and Python's unpickler runs it. Here its instructions are only parsed (by `pickletools`), and
those that build text, numbers, containers and arrays of bytes are followed. No name in the file is ever looked up: a
function that the file calls is one of those below, which are known by their names and never called, or an error.

Layouts: the protocols 0 to 4, as CPython's Lib/pickletools.py defines them; ndarray.__reduce__ and dtype.__reduce__ of
NumPy. Strings of Python 2 are bytes, and are read as Latin-1.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from granularity.base.errors import GranularityError
from granularity.base.regular import read_regular

MAX_BYTES = 512 << 20  # CIFAR-100's training file, the largest that is published, has 155 MB ...
MAX_INSTRUCTIONS = 2_000_000  # ... and some 200,000; each costs memory, up to 64 times its own length
ADMITTED = (
    "numpy ndarray",
    "numpy dtype",
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray _reconstruct",  # NumPy 2
    "_codecs encode",  # how Python 3 writes bytes in protocols 0 to 2
)

NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT")
TEXT = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
LITERALS = {*NUMBERS, *TEXT, "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Refused(Exception):
    """A pickle that is not read; says what is wrong with it."""


@dataclass(frozen=True)
class _Name:
    name: str


class _Uint8:
    pass


@dataclass
class _Array:
    values: np.ndarray | None = None  # until its BUILD


def load(file: Path) -> dict[str, Any]:
    """The dictionary in a pickle: of text, numbers, lists, tuples, dictionaries and arrays (uint8, read-only).

    Keys are text; other values are as they were written: a string of Python 2 is a str, bytes of Python 3 are bytes.

    Raises:
        GranularityError: it cannot be read, is larger than 512 MB, truncated or no pickle of a dictionary, or names
            a function, class or dtype that plain data has no need of.
    """
    data = read_regular(file, MAX_BYTES)
    try:
        return _Machine(len(data)).run(data)
    except _Refused as error:
        raise GranularityError(f"{file}: {error}; nothing in it was executed; get it from its publisher") from None
    except (ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
        reason = str(error)[:200] if isinstance(error, ValueError) else type(error).__name__
        raise GranularityError(f"{file}: is truncated or no pickle ({reason}); get it from its publisher") from None


class _Machine:
    """Follows the instructions of one pickle."""

    def __init__(self, size: int):
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.left = size  # of the bytes that text may still be turned into: each comes from a byte of the file

    def run(self, data: bytes) -> dict[str, Any]:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if number >= MAX_INSTRUCTIONS:
                raise _Refused(f"has more than {MAX_INSTRUCTIONS} instructions")
            self.step(opcode.name, argument)
        result = _expect(self.stack.pop(), dict)
        return {key: value.values if isinstance(value, _Array) else value for key, value in result.items()}

    def step(self, name: str, argument: Any) -> None:
        """Follow one instruction."""
        stack = self.stack
        if name in LITERALS:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in TUPLES:
            stack.append(tuple(self.pop(TUPLES[name])))
        elif name == "TUPLE":
            stack.append(tuple(self.since_mark()))
        elif name == "LIST":
            stack.append(self.since_mark())
        elif name == "DICT":
            stack.append(_fill({}, self.since_mark()))
        elif name in ("APPEND", "APPENDS"):
            items = self.since_mark() if name == "APPENDS" else self.pop(1)
            _expect(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self.since_mark() if name == "SETITEMS" else self.pop(2)
            _fill(_expect(stack[-1], dict), items)
        elif name in ("GLOBAL", "INST"):
            stack.append(_admit(argument))
        elif name == "STACK_GLOBAL":
            stack.append(_admit(" ".join(_expect(part, str) for part in self.pop(2))))
        elif name == "REDUCE":
            stack.append(self.reduce(*self.pop(2)))
        elif name == "BUILD":
            (state,) = self.pop(1)
            self.build(stack[-1], state)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise _Refused(f"has the instruction {name}, which plain data has no need of")

    def pop(self, count: int) -> list[Any]:
        start = len(self.stack) - count
        if start < 0:
            raise IndexError
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def since_mark(self) -> list[Any]:
        return self.pop(len(self.stack) - self.marks.pop())

    def reduce(self, function: Any, arguments: Any) -> Any:
        """What a call of one of the functions above would give."""
        match _expect(function, _Name).name, arguments:
            case "_codecs encode", (str() as text, "latin1" | "latin-1"):
                return self.bytes_of(text)
            case str(name), (_Name("numpy ndarray"), (0,), "b" | b"b") if name.endswith(" _reconstruct"):
                return _Array()
            case "numpy dtype", ("u1" | b"u1", int(), int()):
                return _Uint8()
            case "numpy dtype", (str() | bytes() as code, *_):
                raise _Refused(f"holds an array of dtype {code[:20]!r}; only bytes ('u1') are read")
        raise _Refused(f"calls {function.name!r} in a way that plain data has no need of")

    def build(self, target: Any, state: Any) -> None:
        """Fill in what a call of :meth:`reduce` left open."""
        match target, state:
            case _Uint8(), (3 | 4, "|" | b"|", None, None, None, *_):
                pass
            case _Array(None), (1, tuple() as shape, _Uint8(), int() as fortran, str() | bytes() as raw):
                if len(shape) > 4 or any(type(length) is not int or length < 0 for length in shape):
                    raise _Refused("holds an array of an impossible shape")
                if math.prod(shape) != len(raw):
                    raise _Refused(f"holds an array of shape {shape}, but {len(raw)} bytes for it")
                values = np.frombuffer(self.bytes_of(raw), np.uint8)
                target.values = values.reshape(shape, order="F" if fortran else "C")
            case _:
                raise _Refused("sets the state of an object that plain data has no need of")

    def bytes_of(self, text: str | bytes) -> bytes:
        if isinstance(text, bytes):
            return text
        self.left -= len(text)
        if self.left < 0:
            raise _Refused("turns the same text into bytes again and again")
        return text.encode("latin-1")


def _admit(name: str) -> _Name:
    if name not in ADMITTED:
        raise _Refused(f"asks for {name[:100].replace(' ', '.')!a}, which plain data has no need of")
    return _Name(name)


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise _Refused(f"has another object where a {kind.__name__.strip('_').lower()} should be")
    return value


def _fill(target: dict[str, Any], items: list[Any]) -> dict[str, Any]:
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str | bytes):
            raise _Refused("has a dictionary whose keys are no text")
        target[key.decode("latin-1") if isinstance(key, bytes) else key] = value
    return target
