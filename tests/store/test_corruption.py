"""Damage of every kind to every kind of artifact: `granularity verify` names it, and so does whatever reads it.

The artifacts are those of a real chain, made once. Damage is done by seeded chance, through the names that people use
and in the store itself, and undone afterwards.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.look import inspection
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import place
from support import tasks, tiny_chain, writing
from support.damage import DAMAGE, files_of, flip, problems, readers
from support.tiny_chain import harmed

KINDS = [name for name, stage in STAGES.items() if not stage.of_study]


def by_name_or_in_store(name: Path, number: int) -> Path:
    """A folder, every other time by its name, and else where it lies in the store."""
    return name if number % 2 else Path(os.path.relpath(name.resolve()))


# ---------------------------------------------------------------- damage, and who refuses it


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_named_by_verify_and_refused_by_whatever_reads_it(chain, damage, tmp_path):
    """No reader publishes anything. A flipped byte: in every kind of artifact, for every kind of reader."""
    rng = random.Random(damage)
    read_by = set()
    for number, step in enumerate(chain if damage == "flipped" else rng.sample(chain, 2)):
        with harmed(step.folder):
            where = by_name_or_in_store(step.folder, number)
            named = str(DAMAGE[damage](where, rng, chain)).replace(str(where), str(step.folder))
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
    assert problems(Path("results")) == []
    if damage != "flipped":
        return
    plan = Plan(Config.model_validate(tiny_chain.TINY))
    jobs = [job for stage in STAGES for job in plan.jobs(stage)]
    assert read_by == {(source.stage, job.stage) for job in jobs for of in job.inputs.values() for source in of}


# ---------------------------------------------------------------- what mends it


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_result_is_put_aside_and_made_again_alike(chain, kind, capfd):
    """By the command that made it: the name, the stamp and every digest are as they were."""
    rng = random.Random(kind)
    step = next(step for step in chain if step.kind == kind)
    stamp = place.stamp_of(step.folder)
    before, folder, aside = stamp.read_text(), step.folder.resolve(), Path("results/.store/.aside")
    assert not list(aside.glob("*"))
    file = rng.choice(files_of(step.folder))
    file.chmod(0o644)
    flip(file, rng)
    harm = file.read_bytes()
    step.run()
    (kept,) = aside.iterdir()
    assert (kept / file.name if kept.joinpath(file.name).exists() else next(kept.rglob(file.name))).read_bytes() == harm
    assert f"{file.name}: corrupt (its SHA-256 differs from the manifest); moved to" in capfd.readouterr().err
    assert step.folder.resolve() == folder and problems(step.folder) == []
    assert stamp.read_text() == before or kind in tasks.TIMED
    shutil.rmtree(kept)


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
        place.stamp_of(step.folder).unlink()
        result = inspection.verify(Path("results"))
        assert (result["unnamed"], result["problems"]) == (1, [])
        for file in files_of(real):
            original = flip(file, rng)
            assert problems(Path("results")) == [f"{file}: corrupt (its SHA-256 differs from the manifest)"]
            file.write_bytes(original)
