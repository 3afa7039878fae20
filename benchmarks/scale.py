"""Label spaces at the scale of ImageNet-21k: time and peak memory of each step, every step a command of its own.

    python benchmarks/scale.py                    # 12,845,721 images in 21,843 archives; 7 GB of disk, about 10 minutes
    python benchmarks/scale.py --images 200000    # a quick look

Makes one tar per synset, of the 21,843 labels that timm lists, with empty members (image bytes play no part), and runs
on them what the workflow would: the sample table from the archives, with WordNet, then WordNet levels and random IDs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

from granularity.look.label_checks import imagenet21k_synsets

BLOCK = 512


def write_archive(file: Path, synset: str, members: int) -> None:
    """A tar of empty files SYNSET_0.JPEG, SYNSET_1.JPEG, ...: one header each, made together."""
    header = np.frombuffer(tarfile.TarInfo(f"{synset}_00000000.JPEG").tobuf(), dtype=np.uint8)
    blocks = np.tile(header, (members, 1))
    digits = np.arange(members)[:, None] // 10 ** np.arange(7, -1, -1) % 10 + ord("0")
    blocks[:, 10:18] = digits
    blocks[:, 148:156] = ord(" ")  # the checksum counts itself as spaces
    sums = blocks.sum(1, dtype=np.int64)
    octal = sums[:, None] // 8 ** np.arange(5, -1, -1) % 8 + ord("0")
    blocks[:, 148:154], blocks[:, 154], blocks[:, 155] = octal, 0, ord(" ")
    with file.open("wb") as stream:
        stream.write(blocks.tobytes())
        stream.write(bytes(2 * BLOCK))


def run(step: str, *command: str) -> float:
    """Run a command; print its wall clock, its processor time and the peak memory of its largest process."""
    started = time.monotonic()
    pid = os.posix_spawnp(
        command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    )
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - started
    if status:
        sys.exit(f"{step} failed: {' '.join(command)}")
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{step:16s} {seconds:8.1f} s, {cpu:7.1f} s CPU {usage.ru_maxrss / 2**20:8.2f} GiB", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=12_743_321 + 102_400)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--wordnet", default="/usr/share/wordnet")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tars").mkdir()
        synsets = imagenet21k_synsets()
        # As uneven as the real thing: from one image to thousands.
        shares = np.random.default_rng(0).dirichlet(np.full(len(synsets), 1.5))
        sizes = 1 + np.floor(shares * (arguments.images - len(synsets))).astype(int)
        sizes[0] += arguments.images - sizes.sum()
        for synset, size in zip(synsets, sizes, strict=True):
            write_archive(folder / "tars" / f"{synset}.tar", synset, size)
        print(f"{sizes.sum():,} images in {len(synsets):,} archives; {arguments.threads} threads")
        options = {
            "source": "imagenet21k",
            "root": str(folder / "tars"),
            "ranks": ["living_thing", "synset"],
            "target": "living_thing",
            "wordnet": arguments.wordnet,
            "validation": min(102_400, arguments.images // 10),
            "checksums": "size",
        }
        samples = str(folder / "samples")
        threads = str(arguments.threads)
        command = ["granularity", "samples", "--options", json.dumps(options), "--threads", threads, "-o", samples]
        total = run("sample table", *command)
        spaces = [(f"wordnet-{k}", "wordnet", {"level": k}) for k in (0, 1, 2, 4, 6, 9)]
        spaces += [(f"random-{g}", "random", {"classes": g}) for g in (22, 5632)]
        spaces += [("target", "manual", {"rank": "living_thing"})]
        for space, family, definition in spaces:
            options = {"space": space, "family": family, "params": definition}
            command = ["granularity", "hierarchy", "--samples", samples, "--options", json.dumps(options)]
            total += run(space, *command, "-o", str(folder / space))
        print(f"{'all':16s} {total:8.1f} s")


if __name__ == "__main__":
    main()
