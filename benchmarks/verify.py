"""Hashing the files of results, against `xargs -P sha256sum` on the same files, in the same run, one after the other.

    python benchmarks/verify.py FOLDER --gb 20

Makes files of that many GB (10^9 bytes) in a new folder below FOLDER, which is removed afterwards: two fifths in one
file (8 GB of 20), a twentieth in files of 100 kB, the rest in files of 100 MB. Both sides get the largest files first
and as many workers as there are CPUs, and must find the same digests. Before a `cold` round the page cache lets go of
these files, so they come from the disk; before a `warm` one all have been read, which is left out where they do not fit
into half of the memory that is free. The best of all rounds counts.

Prints a table, and one JSON object a row: `work`, `ours` and `peer` (seconds), `ratio` (how many times as fast as
the peer) and `goal` (the least of it; null for peers that are shown for comparison).
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from granularity.store import hashing

GOAL = 0.8
CPUS = str(len(os.sched_getaffinity(0)))
# OpenSSL uses the processor's SHA instructions, which the sha256sum of some distributions does not.
PEERS = {"sha256sum": ["sha256sum", "-z"], "openssl": ["openssl", "dgst", "-sha256", "-r"]}
BLOCK = os.urandom(2**20)


def make(folder: Path, size: int) -> list[Path]:
    """Files of `size` bytes in all, the largest first."""
    parts = [(size * 2 // 5, size * 2 // 5), (size * 11 // 20, 10**8), (size // 20, 10**5)]
    files = []
    for total, each in parts:
        for _ in range(total // each if each else 0):
            files.append(folder / f"{len(files) % 100:02d}" / str(len(files)))
            files[-1].parent.mkdir(exist_ok=True)
            with files[-1].open("wb") as stream:
                stream.write(len(files).to_bytes(8, "big"))
                for left in range(each - 8, 0, -len(BLOCK)):
                    stream.write(BLOCK[:left])
    os.sync()
    return files


def let_go(files: list[Path]) -> None:
    """Drop these files, and nobody else's, from the page cache."""
    for file in files:
        with file.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ours(files: list[Path]) -> dict[str, str]:
    return {str(file): digest for file, digest in zip(files, hashing.digests(files), strict=True)}


def theirs(command: list[str], files: list[Path]) -> dict[str, str]:
    names = b"\0".join(os.fsencode(file) for file in files)
    words = ["xargs", "-0", "-P", CPUS, "-n", "8", *command]
    printed = subprocess.run(words, input=names, stdout=subprocess.PIPE, check=True).stdout.decode()
    lines = printed.replace("\0", "\n").split("\n")
    return {line[66:]: line[:64] for line in lines if line}


def seconds(work, files: list[Path], is_cold: bool, right: dict[str, str]) -> float:
    if is_cold:
        let_go(files)
    started = time.perf_counter()
    found = work()
    taken = time.perf_counter() - started
    if found != right:
        raise SystemExit("the digests differ")
    return taken


def memory_available() -> int:
    (line,) = [one for one in Path("/proc/meminfo").read_text().splitlines() if one.startswith("MemAvailable")]
    return int(line.split()[1]) * 1024


def rows(files: list[Path], size: int, peers: dict[str, list[str]], rounds: int):
    """One dict per state of the page cache and peer."""
    right = ours(files)
    for state in ("cold", "warm"):
        if state == "warm" and size > memory_available() / 2:
            print(f"warm: left out, {size / 1e9:g} GB are more than half of the memory that is free")
            continue
        taken = {name: [] for name in ("ours", *peers)}
        for _ in range(rounds):
            taken["ours"].append(seconds(lambda: ours(files), files, state == "cold", right))
            for name, command in peers.items():
                work = lambda command=command: theirs(command, files)  # noqa: E731
                taken[name].append(seconds(work, files, state == "cold", right))
        mine = min(taken["ours"])
        for name in peers:
            peer = min(taken[name])
            yield {
                "work": f"{size / 1e9:g} GB, {len(files)} files, {state}, against {name}",
                "ours": round(mine, 2),
                "peer": round(peer, 2),
                "ratio": round(peer / mine, 3),
                "goal": GOAL if name == "sha256sum" else None,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gb", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="granularity-verify-", dir=given.folder))
    try:
        size = int(given.gb * 1e9)
        files = make(folder, size)
        peers = {name: command for name, command in PEERS.items() if shutil.which(command[0])}
        found = list(rows(files, size, peers, given.rounds))
    finally:
        shutil.rmtree(folder)
    print(f"{CPUS} CPUs; load {os.getloadavg()[0]:.1f}")
    for row in found:
        print(
            f"{row['work']:55s} {row['ours']:8.2f} s {row['peer']:8.2f} s   {row['ratio']:.3f} x   goal {row['goal']}"
        )
    for row in found:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
