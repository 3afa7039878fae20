"""Damage of every kind to a result, and who reads it.

A damage takes a result's folder, by its name or where it lies in the store, a source of chance and the steps of a
chain; it returns what `granularity verify` and readers must name.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from granularity.look import inspection
from granularity.store.place import MANIFEST
from support.tiny_chain import Step

CHAIN = Path("results/tiny/train-60")
Damage = Callable[[Path, random.Random, list[Step]], Path]
ODD = ["", "{}", "[]", "null", "3", '"seal"', '{"seal": 3}', "[" * 100_000, "\ufeff{}", '{"seal": {"seal": []}}']


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


def a_file(change: Callable[[Path, random.Random], object]) -> Damage:
    def damage(folder: Path, rng: random.Random, chain: list[Step]) -> Path:
        file = rng.choice(files_of(folder))
        change(file, rng)
        return file

    return damage


def the_manifest(change: Callable[[Path, random.Random], object], named: str = MANIFEST) -> Damage:
    def damage(folder: Path, rng: random.Random, chain: list[Step]) -> Path:
        change(folder / MANIFEST, rng)
        return folder / named

    return damage


def a_folder_instead(file: Path, rng: random.Random) -> None:
    file.unlink()
    file.mkdir()


def linked(file: Path, rng: random.Random) -> None:
    elsewhere = file.parent / f".elsewhere-{file.name}"
    file.rename(elsewhere)
    file.symlink_to(elsewhere.resolve())


def swapped_within(folder: Path, rng: random.Random, chain: list[Step]) -> Path:
    one, other = (files_of(folder) * 2)[:2]
    if one == other:  # an artifact of one file: nothing to swap it with but its manifest
        one, other = folder / MANIFEST, one  # what is left is no manifest
    between = folder.parent / "between"
    one.rename(between)
    other.rename(one)
    between.rename(other)
    return one


def others(folder: Path, chain: list[Step]) -> list[Path]:
    return [step.folder for step in chain if step.folder.resolve() != folder.resolve()]


def swapped_between(folder: Path, rng: random.Random, chain: list[Step]) -> Path:
    """A file of the same name, of another artifact; or else any other file of the chain."""
    file = rng.choice(files_of(folder))
    theirs = (one for other in others(folder, chain) for one in files_of(other))
    theirs = [one for one in theirs if one.read_bytes() != file.read_bytes()]
    alike = [one for one in theirs if one.name == file.name]
    shutil.copyfile(rng.choice(alike or theirs), file)
    return file


def manifest_of_another(folder: Path, rng: random.Random, chain: list[Step]) -> Path:
    shutil.copyfile(rng.choice(others(folder, chain)) / MANIFEST, folder / MANIFEST)
    return folder


def gone(folder: Path, rng: random.Random, chain: list[Step]) -> Path:
    shutil.rmtree(folder.resolve())
    return folder


def replaced(folder: Path, rng: random.Random, chain: list[Step]) -> Path:
    """All of another result, sound in itself, in this one's place in the store."""
    theirs = rng.choice(others(folder, chain))
    shutil.rmtree(folder.resolve())
    shutil.copytree(theirs.resolve(), folder.resolve())
    return folder / MANIFEST


DAMAGE: dict[str, Damage] = {
    "truncated": a_file(lambda file, rng: os.truncate(file, rng.randrange(file.stat().st_size))),
    "lengthened": a_file(lambda file, rng: file.write_bytes(file.read_bytes() + b"\0")),
    "flipped": a_file(flip),
    "missing": a_file(lambda file, rng: file.unlink()),
    "a folder for a file": a_file(a_folder_instead),
    "linked": a_file(linked),
    "swapped within": swapped_within,
    "swapped between": swapped_between,
    "manifest edited": the_manifest(
        lambda file, rng: file.write_text(file.read_text().replace('"kind": "', '"kind": "x', 1))
    ),
    "manifest reformatted": the_manifest(lambda file, rng: file.write_text(json.dumps(json.loads(file.read_text())))),
    "manifest no manifest": the_manifest(lambda file, rng: file.write_text(rng.choice(ODD))),
    "manifest of another": manifest_of_another,
    "manifest gone": the_manifest(lambda file, rng: file.unlink(), named=""),
    "manifest a folder": the_manifest(a_folder_instead, named=""),
    "gone": gone,
    "replaced": replaced,
}
