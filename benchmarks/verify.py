"""Hashing the files of results, beside `xargs -P sha256sum` on the same files.

Two fifths of the bytes are in one file, a twentieth in files of 100 kB, the rest in files of 100 MB. Both sides get the
largest files first and as many workers as there are CPUs, and must find the same digests. Before each turn the page
cache lets go of these files, so they come from the disk.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common import in_turns, row

from granularity.store import hashing


def written(folder: Path, size: int) -> list[Path]:
    """Files of `size` bytes in all, the largest first."""
    block, files = os.urandom(2**20), []
    for total, each in ((size * 2 // 5, size * 2 // 5), (size * 11 // 20, 10**8), (size // 20, 10**5)):
        for _ in range(total // each if each else 0):
            files.append(folder / f"{len(files) % 100:02d}" / str(len(files)))
            files[-1].parent.mkdir(exist_ok=True)
            with files[-1].open("wb") as stream:
                stream.write(len(files).to_bytes(8, "big"))
                for left in range(each - 8, 0, -len(block)):
                    stream.write(block[:left])
    os.sync()
    return files


def theirs(files: list[Path]) -> list[str]:
    names = b"\0".join(os.fsencode(file) for file in files)
    words = ["xargs", "-0", "-P", str(len(os.sched_getaffinity(0))), "-n", "8", "sha256sum", "-z"]
    printed = subprocess.run(words, input=names, stdout=subprocess.PIPE, check=True).stdout.decode()
    found = {line[66:]: line[:64] for line in printed.split("\0") if line}
    return [found[str(file)] for file in files]


def rows(quick: bool, device: str, gb: int = 1, turns: int = 2, folder: str = ".") -> Iterator[dict]:
    size, turns = (10**7, 1) if quick else (gb * 10**9, turns)
    with tempfile.TemporaryDirectory(prefix="granularity-verify-", dir=folder) as name:
        files = written(Path(name), size)
        right = list(hashing.digests(files))

        def cold(work) -> None:
            for file in files:
                with file.open("rb") as stream:
                    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if list(work()) != right:
                raise SystemExit("the digests differ")

        sides = {"ours": lambda: cold(lambda: hashing.digests(files)), "peer": lambda: cold(lambda: theirs(files))}
        seconds = in_turns(sides, turns, time.perf_counter)
        yield row(
            f"hash {size / 1e9:g} GB (seconds; sha256sum)", *seconds.values(), seconds["peer"] / seconds["ours"], 0.8
        )
