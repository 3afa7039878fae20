"""Damage of every kind to a result, and who reads it.

A damage takes a result's folder, by its name or where it lies in the store, a source of chance and the steps of a
chain; it returns what `granularity verify` and readers must name.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from granularity.look import inspection
from granularity.store.artifacts import MANIFEST
from support.tiny_chain import Step, rewrite

CHAIN = Path("results/tiny/train-60")


def problems(path: Path) -> list[str]:
    return inspection.verify(path)["problems"]


def flip(file: Path, rng: random.Random) -> bytes:
    """Change one byte of a file, and return what it was before."""
    original = file.read_bytes()
    changed = bytearray(original)
    changed[rng.randrange(len(changed))] ^= rng.randrange(1, 256)
    file.write_bytes(changed)
    return original


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def readers(chain: list[Step], folder: Path) -> list[Step]:
    """The steps that are given a result, and the report, which finds those of results/tiny by itself."""
    found_by_report = folder.is_relative_to(CHAIN)
    return [step for step in chain if str(folder) in step.given or (step.kind == "report" and found_by_report)]


# ---------------------------------------------------------------- of files


def truncated(folder, rng, chain):
    file = rng.choice(files_of(folder))
    with file.open("r+b") as stream:
        stream.truncate(rng.randrange(file.stat().st_size))
    return file


def lengthened(folder, rng, chain):
    file = rng.choice(files_of(folder))
    with file.open("ab") as stream:
        stream.write(b"\0")
    return file


def flipped(folder, rng, chain):
    file = rng.choice(files_of(folder))
    flip(file, rng)
    return file


def of_equal_size(folder, rng, chain):
    file = rng.choice(files_of(folder))
    file.write_bytes(rng.randbytes(file.stat().st_size))
    return file


def missing(folder, rng, chain):
    file = rng.choice(files_of(folder))
    file.unlink()
    return file


def emptied(folder, rng, chain):
    file = rng.choice(files_of(folder))
    file.write_bytes(b"")
    return file


def swapped_within(folder, rng, chain):
    one, other = (files_of(folder) * 2)[:2]
    if one == other:  # an artifact of one file: nothing to swap it with but its manifest
        other = folder / MANIFEST
        one, other = other, one  # what is left is no manifest
    between = folder.parent / "between"
    one.rename(between)
    other.rename(one)
    between.rename(other)
    return one


def swapped_between(folder, rng, chain):
    """A file of the same name, of another artifact; or else any other file of the chain."""
    file = rng.choice(files_of(folder))
    others = [other for step in chain if step.folder.resolve() != folder.resolve() for other in files_of(step.folder)]
    alike = [other for other in others if other.name == file.name and other.read_bytes() != file.read_bytes()]
    shutil.copyfile(rng.choice(alike or others), file)
    return file


def added(folder, rng, chain):
    file = folder / "more.parquet"
    file.write_bytes(b"PAR1")
    return file


def linked(folder, rng, chain):
    file = rng.choice(files_of(folder))
    elsewhere = folder.parent / f".elsewhere-{file.name}"
    file.rename(elsewhere)
    file.symlink_to(elsewhere.resolve())
    return file


def linked_folder(folder, rng, chain):
    (folder / "link").symlink_to(Path("/etc"))
    return folder / "link"


def a_folder_for_a_file(folder, rng, chain):
    file = rng.choice(files_of(folder))
    file.unlink()
    file.mkdir()
    return file


# ---------------------------------------------------------------- of the manifest, and of the whole


def manifest_edited(folder, rng, chain):
    file = folder / MANIFEST
    file.write_text(file.read_text().replace('"kind": "', '"kind": "x', 1))
    return file


def manifest_reformatted(folder, rng, chain):
    file = folder / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text())))
    return file


def manifest_edited_and_sealed(folder, rng, chain):
    rewrite(folder, lambda manifest: manifest["options"].update(extra=1))
    return folder / MANIFEST


def manifest_of_another(folder, rng, chain):
    others = [step.folder for step in chain if step.folder.resolve() != folder.resolve()]
    shutil.copyfile(rng.choice(others) / MANIFEST, folder / MANIFEST)
    return folder


def manifest_gone(folder, rng, chain):
    (folder / MANIFEST).unlink()
    return folder


def manifest_no_manifest(folder, rng, chain):
    odd = ["", "{}", "[]", "null", "3", '"seal"', '{"seal": 3}', "[" * 100_000, "\ufeff{}", '{"seal": {"seal": []}}']
    (folder / MANIFEST).write_text(rng.choice(odd))
    return folder / MANIFEST


def manifest_a_folder(folder, rng, chain):
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).mkdir()
    return folder


def gone(folder, rng, chain):
    shutil.rmtree(folder.resolve())
    return folder


def replaced(folder, rng, chain):
    """All of another result, sound in itself, in this one's place in the store."""
    theirs = rng.choice([step.folder for step in chain if step.folder.resolve() != folder.resolve()])
    shutil.rmtree(folder.resolve())
    shutil.copytree(theirs.resolve(), folder.resolve())
    return folder / MANIFEST


DAMAGE = [truncated, lengthened, flipped, of_equal_size, missing, emptied, swapped_within, swapped_between, added]
DAMAGE += [linked, linked_folder, a_folder_for_a_file, manifest_edited, manifest_reformatted]
DAMAGE += [manifest_edited_and_sealed, manifest_of_another, manifest_gone, manifest_no_manifest, manifest_a_folder]
DAMAGE += [gone, replaced]
