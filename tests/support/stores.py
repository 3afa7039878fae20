"""What lies in a store, and a checkout that is copied."""

import shutil
from pathlib import Path

from granularity.store import place
from granularity.store.artifact import PARTS, Artifact
from support.checkout import Checkout


def copied(source: Checkout, folder: Path) -> Checkout:
    """A copy of a checkout with all its results, and Snakemake's records of them."""
    folder.mkdir(exist_ok=True)
    made = Checkout(folder)
    for name in ("results", ".snakemake"):
        shutil.copytree(source.path(name), made.path(name), symlinks=True)
    return made


def made_in(results: Path) -> dict[str, str]:
    """The results of jobs in a folder's store, and their digests: KIND/KEY -> digest; all of them verified."""
    found = [one for one in place.all_of(results / place.STORE) if one.parent.name not in PARTS]
    return {f"{one.parent.name}/{one.name}": Artifact.open(one).digest for one in found}


def stamps_in(results: Path) -> dict[str, str]:
    """The stamps below a folder, by name, where there are any; each fits the sound result that its name leads to."""
    found = {}
    for name in place.find(results):
        stamp = place.stamp_of(name)
        if stamp.exists():
            assert Artifact.open(name).unlike(stamp) is None, stamp
            found[str(name.relative_to(results))] = stamp.read_text()
    return found


def leftovers(results: Path) -> list[Path]:
    """What writers have left in a folder's store beside generations, and beside names and stamps."""
    store = results / place.STORE
    beside = [path for path in results.rglob(".*") if store not in (path, *path.parents)]
    inside = [path for at in (place.NEW, place.WORK, place.LOCKS, place.ASIDE) for path in (store / at).glob("*")]
    return inside + [path for path in beside if not path.name.startswith(".snakemake")]
