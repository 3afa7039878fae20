"""Damage of every kind to every kind of artifact: `granularity verify` names it, and so does whatever reads it.

The artifacts are those of a real chain, made once. Damage is done by seeded chance and undone afterwards.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.config import files as config_files
from granularity.config.options import Config
from granularity.data.images import Images
from granularity.learning import trainings
from granularity.look import inspection
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.pixels import stage as pixels
from granularity.store import artifacts
from granularity.store.artifacts import MANIFEST, Artifact
from granularity.store.claim import read_claim
from support import tiny_chain, writing
from support.tallies import tallies
from support.tiny_chain import harmed, rewrite

FLIPS_A_KIND, FLIPS_A_MANIFEST = 24, 12
KINDS = list(STAGES)
CHAIN = Path("results/tiny/train-60")
flips, refused = tallies["flips found"], tallies["damage refused by the next stage"]


@pytest.fixture(scope="module")
def chain(tiny_results):
    """The steps of a finished chain, in the working directory of these tests."""
    folder, made = tiny_results
    with tiny_chain.tiny_world(), contextlib.chdir(folder):
        assert inspection.verify(Path("results"))["problems"] == []
        assert {step.kind for step in made} == {*KINDS}
        yield made
        assert inspection.verify(Path("results"))["problems"] == []


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


# ---------------------------------------------------------------- flips


@pytest.mark.parametrize("kind", KINDS)
def test_a_flip_anywhere_in_any_file_is_found_and_its_file_named(chain, kind):
    rng = random.Random(kind)
    of_kind = [step for step in chain if step.kind == kind]
    files = sum(len(files_of(step.folder)) for step in of_kind)
    for step in of_kind:
        for file in files_of(step.folder):
            for _ in range(max(4, FLIPS_A_KIND // files)):
                original = flip(file, rng)
                found = problems(step.folder)
                file.write_bytes(original)
                assert found == [f"{file}: corrupt (its SHA-256 is not the manifest's)"]
                flips[kind] += 1
        manifest = step.folder / MANIFEST
        for _ in range(FLIPS_A_MANIFEST):
            original = flip(manifest, rng)
            found = problems(step.folder)
            manifest.write_bytes(original)
            assert len(found) == 1 and found[0].startswith(f"{manifest}: corrupt ("), found
            flips["manifests"] += 1
        assert problems(step.folder) == []


# ---------------------------------------------------------------- other damage, and who refuses it


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
    others = [other for step in chain if step.folder != folder for other in files_of(step.folder)]
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


def manifest_edited(folder, rng, chain):
    file = folder / MANIFEST
    file.write_text(file.read_text().replace('"kind": "', '"kind": "x', 1))
    return file


def manifest_reformatted(folder, rng, chain):
    file = folder / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text())))
    return file


def manifest_edited_and_sealed(folder, rng, chain):
    rewrite(folder, lambda manifest: manifest["params"].update(extra=1))
    return folder / MANIFEST


def manifest_of_another(folder, rng, chain):
    others = [step.folder for step in chain if step.folder != folder]
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


DAMAGE = [truncated, lengthened, flipped, of_equal_size, missing, emptied, swapped_within, swapped_between, added]
DAMAGE += [linked, linked_folder, a_folder_for_a_file, manifest_edited, manifest_reformatted]
DAMAGE += [manifest_edited_and_sealed, manifest_of_another, manifest_gone, manifest_no_manifest, manifest_a_folder]


def readers(chain, folder: Path):
    """The steps that are given an artifact, and the report, which finds those of results/tiny by itself."""
    found_by_report = folder.is_relative_to(CHAIN)
    return [step for step in chain if str(folder) in step.given or (step.kind == "report" and found_by_report)]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_is_named_by_verify_and_refused_by_whatever_reads_it(chain, damage, capsys, tmp_path):
    """Every kind of artifact, every kind of reader: none publishes anything."""
    rng = random.Random(damage.__name__)
    read_by = set()
    for step in chain:
        with harmed(step.folder):
            named = str(damage(step.folder, rng, chain))
            if damage is manifest_gone:  # then it is no artifact any more: only those that need it can miss it
                assert not [found for found in artifacts.find("results") if found == step.folder]
            else:
                found = problems(Path("results"))
                assert any(named in line for line in found), (named, found)
                assert all(len(line.splitlines()) == 1 for line in found)
            for reader in readers(chain, step.folder):
                if (step.kind, reader.kind) in read_by:
                    continue
                read_by.add((step.kind, reader.kind))
                output = tmp_path / "out"
                with pytest.raises(GranularityError) as caught:
                    reader.run(output)
                message = str(caught.value)
                assert str(step.folder) in message and len(message.splitlines()) == 1, (reader, message)
                assert list(tmp_path.iterdir()) == []
                refused[step.kind] += 1
    assert problems(Path("results")) == []
    plan = Plan(Config.model_validate(tiny_chain.TINY))
    jobs = [job for stage in STAGES for job in plan.jobs(stage)]
    assert read_by == {(source.stage, job.stage) for job in jobs for of in job.inputs.values() for source in of}


# ---------------------------------------------------------------- who is who


def test_an_artifact_of_another_run_under_the_right_name(chain, tmp_path):
    """Sound in itself. What was made from the one that it replaces is stale, and no stage mixes the two."""
    other = tiny_chain.TINY | {"name": "other", "seeds": {"base": 1, "pretrain": 1, "finetune": 2}}
    theirs = {step.kind: step for step in tiny_chain.steps(config_files.validate(other))}
    for name in ("samples", "pixels"):
        theirs[name].run()
    for name, needs in {"samples": "pixels", "pixels": "samples"}.items():
        mine = CHAIN / name
        with harmed(mine):
            shutil.rmtree(mine)
            shutil.copytree(theirs[name].folder, mine)
            assert problems(mine) == [] or name == "pixels"  # pixels lie beside samples that they were not made from
            stale = [line for line in problems(Path("results/tiny")) if ": stale (made from another" in line]
            assert len(stale) > 5
            for reader in readers(chain, mine):
                if str(CHAIN / needs) in reader.given or reader.kind == "report":
                    with pytest.raises(GranularityError, match=r"another '|is stale"):
                        reader.run(tmp_path / "out")
                    refused["another run"] += 1
    shutil.rmtree("results/other")


def test_neighbours_that_have_changed_places(chain, tmp_path):
    """Two label spaces, two clusterings: each sound, each under the other's name."""
    for one, two in (
        (CHAIN / "hierarchy/random-5", CHAIN / "hierarchy/kmeans-6"),
        (CHAIN / "cluster/superclass-2", CHAIN / "cluster/superclass-3"),
        (CHAIN / "cluster/whole-6", CHAIN / "cluster/superclass-3"),
    ):
        with harmed(one):
            shutil.rmtree(one)
            shutil.copytree(two, one)
            assert problems(one) == []
            assert any(": stale (made from another" in line for line in problems(Path("results/tiny")))
            for reader in readers(chain, one):
                with pytest.raises(GranularityError) as caught:
                    reader.run(tmp_path / "out")
                assert len(str(caught.value).splitlines()) == 1
                refused["neighbours"] += 1


def test_an_artifact_of_another_kind_in_the_place_of_every_input(chain, tmp_path):
    by_kind = {step.kind: step.folder for step in chain}
    for reader in {step.kind: step for step in chain}.values():
        for place, word in enumerate(reader.given):
            right = next((step.kind for step in chain if str(step.folder) == word), None)
            if right is None:
                continue
            for kind, folder in by_kind.items():
                if kind != right:
                    reader_of_it = tiny_chain.Step(
                        reader.kind, reader.folder, [*reader.words[:place], str(folder), *reader.words[place + 1 :]]
                    )
                    with pytest.raises(GranularityError, match=f"is a '{kind}' artifact where '{right}' is needed"):
                        reader_of_it.run(tmp_path / "out")
                    refused["another kind"] += 1


# ---------------------------------------------------------------- forgery


def test_a_forger_who_makes_digest_key_and_seal_anew_is_found_by_what_was_made_before(chain, tmp_path):
    """The limit of all this, as docs/artifacts.md says: hashes are no signature.

    The forged artifact itself is sound. What was made from the old one says that it was made from another.
    """
    folder = CHAIN / "hierarchy/random-5"
    with harmed(folder):
        file = folder / "properties.json"
        file.write_text(file.read_text().replace('"granularity": 5', '"granularity": 6'))
        size, digest = file.stat().st_size, artifacts.hash_file(file)
        rewrite(folder, lambda m: m["files"]["properties.json"].update(sha256=digest, bytes=size), whole=True)
        assert problems(folder) == []
        assert any(f"{folder.resolve()} holds now" in line for line in problems(Path("results/tiny")))
        pretrain = next(step for step in chain if step.kind == "finetune")
        with pytest.raises(GranularityError, match="stale"):
            pretrain.run(tmp_path / "out")
    with harmed(folder):  # parameters decide no digest: this one nobody can tell
        rewrite(folder, lambda manifest: manifest["params"].update(seed=7), whole=True)
        assert problems(Path("results")) == []


def test_an_input_that_is_renamed_in_a_forged_manifest_is_stale(chain):
    folder = CHAIN / "pixels"
    with harmed(folder):
        rewrite(folder, lambda m: m["inputs"]["samples"].update(digest="0" * 64), whole=True)
        assert any("pixels: stale" in line for line in problems(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["files"].update({"../../../../../../etc/passwd": {"sha256": "0" * 64, "bytes": 1}}),
        lambda m: m["files"].update({"/etc/passwd": {"sha256": "0" * 64, "bytes": 1}}),
        lambda m: m["files"].update({"a\0b": {"sha256": "0" * 64, "bytes": 1}}),
        lambda m: m["files"].update({"pixels.npy": {"sha256": 3, "bytes": "many"}}),
        lambda m: m.update(files=[]),
        lambda m: m.update(digest="$(touch pwned)"),
        lambda m: m.update(kind=["pixels"]),
        lambda m: m.update(inputs={"samples": "../samples"}),
        lambda m: m.update(cost={}),
        lambda m: m.update(command="rm -rf /"),
        lambda m: m["code"].update(modules=["granularity./etc/passwd"]),
        lambda m: m["code"].update(modules=["granularity.no_such_module"]),
        lambda m: m["code"].update(modules=["os", "/etc/passwd", "/dev/zero"]),
        lambda m: m["code"].update(modules="os"),
        lambda m: m["code"].update(modules=["a\0b"]),
        lambda m: m.update(options=[]),
        lambda m: m.pop("summary"),
        lambda m: m.update(schema_version=99),
        lambda m: m["inputs"]["samples"].update(path="."),
        lambda m: m["inputs"]["samples"].update(path="../pixels"),
        lambda m: m["inputs"]["samples"].update(path="a\0b"),
        lambda m: m["inputs"]["samples"].update(path="long" * 5000),
        lambda m: m["inputs"]["samples"].update(path="/proc/self/mem"),
    ],
)
def test_forged_manifests_of_any_form_cost_no_traceback(chain, change):
    """Whatever is in them: verify, inspect and readers give a line, or take it for sound."""
    folder = CHAIN / "pixels"
    with harmed(folder):
        rewrite(folder, change)
        for line in problems(Path("results")):
            assert len(line.splitlines()) == 1 and line.startswith(("results/", str(Path.cwd())))
        for look in (inspection.describe, inspection.as_json):
            with contextlib.suppress(GranularityError):
                look(folder)
        with contextlib.suppress(GranularityError):
            Artifact.open(folder)
    assert not Path("pwned").exists()


# ---------------------------------------------------------------- work that a killed job had finished


@pytest.mark.parametrize(
    ("kind", "owner", "name", "call"), [("pixels", Images, "load", 70), ("finetune", trainings, "train", 4)]
)
def test_work_that_was_damaged_after_a_kill_is_done_again(
    chain, kind, owner, name, call, kill_at, monkeypatch, tmp_path, capfd
):
    monkeypatch.setattr(pixels, "CHUNK", 20)
    step = next(step for step in chain if step.kind == kind)
    undisturbed = Artifact.open(step.folder).digest
    rng = random.Random(kind)
    for damage in (flip, lambda file, _: file.write_bytes(b""), lambda file, _: file.write_bytes(rng.randbytes(99))):
        kill_at(owner, name, call)
        with pytest.raises(kill_at.Killed):
            step.run(tmp_path / "out")
        kept = [file for file in tmp_path.glob(".out.work-*/*") if file.is_file()]
        assert len(kept) >= 3
        damage(rng.choice(kept), rng)
        capfd.readouterr()
        step.run(tmp_path / "out")
        assert "a corrupt checkpoint; this part is done again" in capfd.readouterr().err
        assert Artifact.open(tmp_path / "out").digest == undisturbed
        shutil.rmtree(tmp_path / "out")
        flips["kept work"] += 1


@pytest.mark.parametrize("claim", ["", "[]", "{}", "null", '{"token": 3}', "[" * 100_000, "\x00"])
def test_a_claim_that_is_none(tmp_path, claim):
    """A file of another origin in its place: nobody's, and the next writer takes it over."""
    (tmp_path / ".thing.claim").write_text(claim)
    assert read_claim(tmp_path / "thing") is None
    with writing.create(tmp_path / "thing", "thing", ("granularity.base.seeds",), {}, {}) as out:
        out.json("x.json", {})
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


# ---------------------------------------------------------------- verify itself


def test_verify_looks_into_linked_folders_once_and_ends(chain, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/tiny").symlink_to(Path("results/tiny").resolve())
    (tmp_path / "results/again").symlink_to(tmp_path / "results")
    assert inspection.verify(tmp_path / "results")["artifacts"] == len(list(Path("results/tiny").rglob(MANIFEST)))
