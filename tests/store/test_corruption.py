"""Damage of every kind to every kind of artifact: `granularity verify` names it, and so does whatever reads it.

The artifacts are those of a real chain, made once. Damage is done by seeded chance, through the names that people use
and in the store itself, and undone afterwards.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.data.images import Images
from granularity.learning import trainings
from granularity.look import inspection
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.pixels import stage as pixels
from granularity.store import claim, generations, hashing
from granularity.store.artifacts import MANIFEST, Artifact
from support import tasks, tiny_chain, writing
from support.damage import DAMAGE, files_of, flip, problems, readers
from support.tallies import tallies
from support.tiny_chain import harmed, lead

FLIPS_A_KIND = 90  # more than 1,000 in all
KINDS = list(STAGES)
flips, refused, mended = (tallies[what] for what in ("flips found", "damage refused by the next stage", "mended"))


def by_name_or_in_store(name: Path, number: int) -> Path:
    """A folder, every other time by its name, and else where it lies in the store."""
    return name if number % 2 else Path(os.path.relpath(name.resolve()))


# ---------------------------------------------------------------- flips


@pytest.mark.parametrize("kind", KINDS)
def test_a_flip_anywhere_in_any_file_is_found_and_its_file_named(chain, kind):
    """Wherever it is done from, both ways of looking find it, and no reader takes it."""
    rng = random.Random(kind)
    folders = [step.folder for step in chain if step.kind == kind]
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(harmed(folder))
        places = [(name, file.relative_to(name)) for name in folders for file in (*files_of(name), name / MANIFEST)]
        assert len(places) <= FLIPS_A_KIND
        for number in range(FLIPS_A_KIND):
            name, file = places[number % len(places)]
            harmed_by, looked_at = by_name_or_in_store(name, number // len(places)), by_name_or_in_store(name, number)
            original = flip(harmed_by / file, rng)
            (found,) = problems(looked_at)
            with pytest.raises(GranularityError, match=re.escape(str(name / file))):
                Artifact.open(name)
            (harmed_by / file).write_bytes(original)
            if file.name == MANIFEST:
                assert found.startswith(f"{looked_at / file}: corrupt ("), found
            else:
                assert found == f"{looked_at / file}: corrupt (its SHA-256 is not the manifest's)"
            flips["manifests" if file.name == MANIFEST else kind] += 1
        assert [line for folder in folders for line in problems(folder)] == []


@pytest.mark.parametrize("times", ["as they come", "set back"])
def test_a_flip_voids_the_record_of_a_hash(chain, times):
    """The record stands while inode, size and times are the same; of these nobody can set back the last."""
    rng = random.Random(times)
    with contextlib.ExitStack() as stack:
        for step in chain:
            stack.enter_context(harmed(step.folder))
        for step in chain:
            artifact = Artifact.open(step.folder)
            digests = {name: entry["sha256"] for name, entry in artifact.manifest["files"].items()}
            hashing.remember(artifact.folder, digests)
        time.sleep(0.1)  # a file system's clock may tick that slowly
        for step in chain:
            artifact = Artifact.peek(step.folder)
            for name in artifact.manifest["files"]:
                file = step.folder / name
                assert name in hashing.known(artifact.folder, [name])
                before = file.stat()
                original = flip(file, rng)
                if times == "set back":
                    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
                    assert file.stat().st_mtime_ns == before.st_mtime_ns
                assert (file.stat().st_ino, file.stat().st_size) == (before.st_ino, before.st_size)
                assert hashing.known(artifact.folder, [name]) == {}
                with pytest.raises(GranularityError, match=re.escape(f"{file}: corrupt (its SHA-256")):
                    Artifact.open(step.folder)
                file.write_bytes(original)
                flips[f"recorded, times {times}"] += 1
        assert problems(Path("results")) == []


# ---------------------------------------------------------------- other damage, and who refuses it


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_is_named_by_verify_and_refused_by_whatever_reads_it(chain, damage, tmp_path):
    """Every kind of artifact, every kind of reader: none publishes anything."""
    rng = random.Random(damage.__name__)
    read_by = set()
    for number, step in enumerate(chain):
        with harmed(step.folder):
            place = by_name_or_in_store(step.folder, number)
            named = str(damage(place, rng, chain)).replace(str(place), str(step.folder))
            found = problems(Path("results"))
            assert any(named in line for line in found), (named, found)
            assert all(len(line.splitlines()) == 1 for line in found)
            for reader in readers(chain, step.folder):
                if (step.kind, reader.kind) in read_by:
                    continue
                read_by.add((step.kind, reader.kind))
                with pytest.raises(GranularityError) as caught:
                    reader.run(tmp_path / "out")
                message = str(caught.value)
                assert str(step.folder) in message and len(message.splitlines()) == 1, (reader, message)
                assert writing.names(tmp_path) == []
                refused[step.kind] += 1
    assert problems(Path("results")) == []
    plan = Plan(Config.model_validate(tiny_chain.TINY))
    jobs = [job for stage in STAGES for job in plan.jobs(stage)]
    assert read_by == {(source.stage, job.stage) for job in jobs for of in job.inputs.values() for source in of}


# ---------------------------------------------------------------- what mends it


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_result_is_put_aside_and_made_again_alike(chain, kind, capfd):
    """By the command that made it: the name, the stamp and every digest are as they were."""
    rng = random.Random(kind)
    step = next(step for step in chain if step.kind == kind)
    stamp = generations.stamp_of(step.folder)
    before, folder, aside = stamp.read_text(), step.folder.resolve(), Path("results/.store/.aside")
    assert not list(aside.glob("*"))
    file = rng.choice(files_of(step.folder))
    file.chmod(0o644)
    flip(file, rng)
    harm = file.read_bytes()
    step.run()
    (kept,) = aside.iterdir()
    assert (kept / file.name if kept.joinpath(file.name).exists() else next(kept.rglob(file.name))).read_bytes() == harm
    assert f"{file.name}: corrupt (its SHA-256 is not the manifest's); kept in" in capfd.readouterr().err
    assert step.folder.resolve() == folder and problems(step.folder) == []
    assert stamp.read_text() == before or kind in tasks.TIMED
    generations.remove(kept.absolute())
    mended["damaged results"] += 1


def no_stamp(name: Path, other: Path) -> str | None:
    generations.stamp_of(name).unlink()
    return None  # Snakemake sees that it is missing


def an_empty_stamp(name: Path, other: Path) -> Path:
    generations.stamp_of(name).write_text("")
    return generations.stamp_of(name)


def a_torn_stamp(name: Path, other: Path) -> Path:
    generations.stamp_of(name).write_text(generations.stamp_of(name).read_text()[:-9])
    return generations.stamp_of(name)


def the_stamp_of_another(name: Path, other: Path) -> Path:
    generations.stamp_of(name).write_bytes(generations.stamp_of(other).read_bytes())
    return generations.stamp_of(name)


def no_name(name: Path, other: Path) -> Path:
    name.unlink()
    return name


def a_name_of_nothing(name: Path, other: Path) -> Path:
    name.unlink()
    name.symlink_to("../" * (len(name.parts) - 2) + ".store/samples/0123456789abcdef")
    return name


def the_name_of_another(name: Path, other: Path) -> Path:
    lead(name, other, stamped=False)
    return generations.stamp_of(name)


NAMES = [no_stamp, an_empty_stamp, a_torn_stamp, the_stamp_of_another, no_name, a_name_of_nothing, the_name_of_another]


@pytest.mark.parametrize("damage", NAMES, ids=lambda damage: damage.__name__)
def test_a_damaged_name_is_found_and_mended_without_computing(chain, damage):
    rng = random.Random(damage.__name__)
    lie = [path.stat().st_mtime_ns for path in generations.all_of(Path("results/.store"))]
    for step in chain:
        name, stamp = step.folder, generations.stamp_of(step.folder)
        was = (name.resolve(), stamp.read_text())
        other = rng.choice([one.folder for one in chain if one.folder.resolve() != name.resolve()])
        named = damage(name, other)
        found = problems(Path("results"))
        assert (found == []) if named is None else any(line.startswith(f"{named}: ") for line in found), found
        assert all(len(line.splitlines()) == 1 for line in found)
        step.run()
        assert (name.resolve(), stamp.read_text()) == was
        assert problems(name) == []
        mended["names and stamps"] += 1
    assert [path.stat().st_mtime_ns for path in generations.all_of(Path("results/.store"))] == lie


# ---------------------------------------------------------------- work that a killed job had finished


@pytest.mark.parametrize(
    ("kind", "owner", "name", "call"), [("pixels", Images, "hashed", 70), ("finetune", trainings, "train", 4)]
)
def test_work_that_was_damaged_after_a_kill_is_done_again(
    chain, kind, owner, name, call, kill_at, monkeypatch, tmp_path, capfd
):
    monkeypatch.setattr(pixels, "CHUNK", 20)
    step = next(step for step in chain if step.kind == kind)
    undisturbed = Artifact.open(step.folder).digest
    rng = random.Random(kind)
    damages = [flip, lambda file, _: file.write_bytes(b""), lambda file, _: file.write_bytes(rng.randbytes(99))]
    for number, damage in enumerate(damages):
        output = tmp_path / str(number) / "out"  # each has a store of its own
        kill_at(owner, name, call)
        with pytest.raises(kill_at.Killed):
            step.run(output)
        # Of the images themselves, a job that is resumed writes the part anew that nobody knows of.
        runs = list((output.parent / generations.STORE / "run").glob("*/*"))
        left = runs or writing.work(output).iterdir()
        kept = [file for file in left if file.is_file() and file.name != "pixels.npy"]
        assert len(kept) >= 3
        damage(rng.choice(kept), rng)
        capfd.readouterr()
        step.run(output)
        said = "until `granularity gc`, and made again" if runs else "a corrupt checkpoint; this part is done again"
        assert said in capfd.readouterr().err
        assert Artifact.open(output).digest == undisturbed
        if not runs:  # which are put aside
            assert writing.names(output.parent) == ["out"]
        flips["kept work"] += 1


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"token": 3}', "[" * 100_000, "\x00"])
def test_a_claim_that_is_none(tmp_path, text):
    """A file of another origin in its place: nobody's, and the next writer takes it over."""
    file = claim.claim_file(tmp_path / ".store", "thing", writing.key("thing", {}))
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert claim.read_claim(file) is None
    with writing.create(tmp_path / "thing") as out:
        assert claim.read_claim(file)["pid"] == os.getpid()
        out.json("x.json", {})
    assert writing.names(tmp_path) == ["thing"]


# ---------------------------------------------------------------- verify itself


def test_verify_looks_into_linked_folders_once_and_ends(chain, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/tiny").symlink_to(Path("results/tiny").resolve())
    (tmp_path / "results/again").symlink_to(tmp_path / "results")
    mine = {step.folder.resolve() for step in chain if step.folder.is_relative_to("results/tiny")}
    found = inspection.verify(tmp_path / "results")
    assert (found["artifacts"], found["unnamed"], found["problems"]) == (len(mine), 0, [])


def test_verify_looks_at_what_no_name_leads_to(chain):
    """Old results, to which one may go back: damage to them is found, too."""
    step = next(step for step in chain if step.kind == "hierarchy")
    rng = random.Random(0)
    with harmed(step.folder):
        real = Path(os.path.relpath(step.folder.resolve()))
        step.folder.unlink()
        generations.stamp_of(step.folder).unlink()
        result = inspection.verify(Path("results"))
        assert (result["unnamed"], result["problems"]) == (1, [])
        for file in files_of(real):
            original = flip(file, rng)
            assert problems(Path("results")) == [f"{file}: corrupt (its SHA-256 is not the manifest's)"]
            file.write_bytes(original)
            flips["without a name"] += 1
