"""Two drivers at once on one folder of results, started at random offsets.

    python tests/drivers.py 50

Each time the smallest chain is begun by two checkouts whose `results` is one folder. Both must succeed, every result
must have the digest of a run alone, and no generation may vanish once it is there.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support import tiny_chain
from support.checkout import Checkout
from support.stores import leftovers, made_in, stamps_in

LONGEST_OFFSET = 30.0  # seconds between the two starts, at most
OPTIONS = ("--nolock", "--configfile", "tiny.yaml")


def side_by_side(
    folder: Path, expected: dict[str, str], seed: int, longest: float = LONGEST_OFFSET, targets: tuple[str, ...] = ()
) -> float:
    """Run two drivers; returns the seconds between their starts.

    Args:
        expected: the generations of a run alone, without reports, which hold measured costs.
        seed: of the time between the starts, at most `longest` seconds.
        targets: what both make; the report by default.

    Raises:
        AssertionError: one failed, a generation vanished, or something has another digest.
    """
    results, seen = folder / "shared", {}
    results.mkdir(parents=True)
    offset = random.Random(seed).uniform(0.0, longest)
    drivers, began = [], time.monotonic()
    for name in ("first", "second"):
        (folder / name).mkdir()
        checkout = Checkout(folder / name)
        tiny_chain.configure(checkout)
        checkout.path("results").symlink_to(results)
        while drivers and time.monotonic() < began + offset:
            time.sleep(0.05)
        with checkout.path("driver.log").open("w") as log:
            place = {"cwd": checkout.folder, "env": checkout.environment, "start_new_session": True}
            drivers.append(
                (checkout, subprocess.Popen(["snakemake", *targets, *OPTIONS], stdout=log, stderr=log, **place))
            )
    while any(driver.poll() is None for _, driver in drivers):
        there = {path: path.stat().st_ino for path in results.glob(".store/[!.]*/*")}
        assert seen.items() <= there.items(), f"vanished or replaced: {sorted(seen.items() - there.items())}"
        seen = there
        time.sleep(0.05)
    for checkout, driver in drivers:
        assert driver.returncode == 0, checkout.path("driver.log").read_text()[-3000:]
        assert stamps_in(checkout.path("results"))
        assert "Nothing to be done" in checkout.snakemake("-n", *targets, *OPTIONS)
    made = {key: digest for key, digest in made_in(results).items() if not key.startswith("report/")}
    assert made == expected and leftovers(results) == [], leftovers(results)
    return offset


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    print(f"in {folder}, which is kept if something is wrong", flush=True)
    checkout = Checkout(folder)
    checkout.snakemake(*tiny_chain.configure(checkout))
    made = made_in(checkout.path("results"))
    expected = {key: digest for key, digest in made.items() if not key.startswith("report/")}
    for number in range(int(sys.argv[1])):
        offset = side_by_side(folder / str(number), expected, number)
        shutil.rmtree(folder / str(number))
        print(f"{number + 1}: both succeeded, started {offset:.1f} s apart; {len(expected)} digests equal", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
