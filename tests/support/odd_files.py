"""What a file may turn out to be: no file at all, or JSON made to take all memory."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path


def a_fifo(file: Path) -> None:
    os.mkfifo(file)


def a_socket(file: Path) -> None:
    with contextlib.chdir(file.parent), socket.socket(socket.AF_UNIX) as one:  # its address has room for 100 bytes
        one.bind(file.name)


def a_link(target: str) -> Callable[[Path], None]:
    return lambda file: file.symlink_to(target)


def a_hole(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(1 << 40)


KINDS = {
    "a FIFO": a_fifo,
    "a socket": a_socket,
    "a device": a_link("/dev/zero"),
    "a terminal": a_link("/dev/ptmx"),
    "a link to nothing": a_link("nothing"),
    "a folder": Path.mkdir,
    "a terabyte": a_hole,
}


def twice(text: str, key: str = "x") -> str:
    return f'{{"{key}": {text}, "{key}": {text}}}'


JSONS = {
    "deep": "[" * 60 + "]" * 60,
    "deeper than Python's stack": '{"a":' * 100_000,
    "a million lists": "[" + "[]," * 1_500_000 + "[]]",
    "a key twice": twice("1"),
    "NaN": '{"x": NaN}',
    "an infinite number": '{"x": 1e999}',
    "a number of a million digits": '{"x": ' + "9" * 1_000_000 + "}",
    "half a text": '{"x": "',
    "UTF-16": '{"x": 1}'.encode("utf-16").decode("latin-1"),
}
