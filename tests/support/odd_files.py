"""What a file may turn out to be: no file at all, or JSON made to take all memory."""

import contextlib
import os
import socket
from pathlib import Path


def a_socket(file: Path) -> None:
    with contextlib.chdir(file.parent), socket.socket(socket.AF_UNIX) as one:  # its address has room for 100 bytes
        one.bind(file.name)


def a_hole(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 40)


KINDS = {
    "a FIFO": os.mkfifo,
    "a socket": a_socket,
    "a device": lambda file: file.symlink_to("/dev/zero"),
    "a terminal": lambda file: file.symlink_to("/dev/ptmx"),
    "a link to nothing": lambda file: file.symlink_to("nothing"),
    "a folder": Path.mkdir,
    "a terabyte": a_hole,
}


JSONS = {
    "deeper than Python's stack": '{"a":' * 100_000,
    "a key twice": '{"x": 1, "x": 1}',
    "NaN": '{"x": NaN}',
    "an infinite number": '{"x": 1e999}',
    "a number of a million digits": '{"x": ' + "9" * 1_000_000 + "}",
    "half a text": '{"x": "',
    "UTF-16": '{"x": 1}'.encode("utf-16").decode("latin-1"),
}
