"""Results that are sound in themselves and not what they should be: others' in their place, and forgeries."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.config import files as config_files
from granularity.config.options import Config
from granularity.look import inspection, status
from granularity.plan.graph import Plan
from granularity.store import generations, hashing
from granularity.store.artifacts import MANIFEST, Artifact
from support import tiny_chain, writing
from support.damage import CHAIN, problems, readers
from support.tallies import tallies
from support.tiny_chain import harmed, lead, rewrite

refused = tallies["damage refused by the next stage"]


def outdated() -> set[str]:
    """Names in the chain of which `granularity status` says that they would be made again."""
    jobs = status.look(Plan(Config.model_validate(tiny_chain.TINY)))
    return {str(job.folder) for job in jobs if job.state == "outdated" and job.folder.is_relative_to(CHAIN)}


def restamp(name: Path) -> None:
    made = Artifact.peek(name)
    generations.stamp_of(name).write_text(generations.stamp_text(made.kind, made.digest))


# ---------------------------------------------------------------- who is who


def test_a_result_of_another_run_under_the_right_name(chain, tmp_path):
    """Its stamp tells. With its own stamp it is sound; what follows is outdated then, and no stage mixes the two."""
    other = tiny_chain.TINY | {"name": "other", "seeds": {"base": 1, "pretrain": 1, "finetune": 2}}
    theirs = {step.kind: step for step in tiny_chain.steps(config_files.validate(other))}
    for name in ("samples", "pixels"):
        theirs[name].run()
    assert outdated() == set()
    for name, needs in {"samples": "pixels", "pixels": "samples"}.items():
        mine = CHAIN / name
        with harmed(mine):
            lead(mine, theirs[name].folder, stamped=False)
            (found,) = problems(Path("results/tiny"))
            assert found.startswith(f"{mine}.stamp: is the stamp of another result than {mine} leads to")
            restamp(mine)
            assert problems(Path("results")) == []
            # And itself: it has another seed, or was made from other samples than lie beside it.
            read = {one.folder for one in readers(chain, mine) if one.folder.is_relative_to(CHAIN)}
            assert outdated() == {str(folder) for folder in {mine, *read}}
            mixed = [one for one in readers(chain, mine) if str(CHAIN / needs) in one.given or one.kind == "report"]
            assert [one.kind for one in mixed] == ["pretrain", "finetune", "measure", "report"]
            for reader in mixed:
                with pytest.raises(GranularityError, match=r"was made from another '"):
                    reader.run(tmp_path / "out")
                refused["another run"] += 1
            assert writing.names(tmp_path) == []
    assert outdated() == set()
    for name in ("samples", "pixels"):
        generations.remove(theirs[name].folder.resolve())
    shutil.rmtree("results/other")


NEIGHBOURS = (
    ("hierarchy/random-5", "hierarchy/kmeans-6"),
    ("cluster/superclass-2", "cluster/superclass-3"),
    ("cluster/whole-6", "cluster/superclass-3"),
)


@pytest.mark.parametrize(("one", "two"), NEIGHBOURS)
def test_neighbours_that_have_changed_places(chain, tmp_path, one, two):
    """Two label spaces, two clusterings: each sound, each under the other's name, or in the other's place."""
    one, two = CHAIN / one, CHAIN / two
    with harmed(one), harmed(two):
        first, second = one.resolve(), two.resolve()
        lead(one, second, stamped=False)
        lead(two, first, stamped=False)
        assert len([line for line in problems(Path("results")) if "is the stamp of another result" in line]) == 2
        restamp(one)
        restamp(two)
        assert problems(Path("results")) == [] and outdated() != set()
    with harmed(one):  # one label space, one clustering, twice
        lead(one, two)
        assert problems(Path("results")) == []
        assert str(readers(chain, one)[0].folder) in outdated()
        for reader in readers(chain, one):
            with pytest.raises(GranularityError) as caught:
                reader.run(tmp_path / "out")
            assert len(str(caught.value).splitlines()) == 1, reader
            refused["neighbours"] += 1
    with harmed(one), harmed(two):
        between = one.resolve().with_name(".between")
        one.resolve().rename(between)
        two.resolve().rename(first)
        between.rename(second)
        found = problems(Path("results"))
        for name in (one, two):
            assert f"{name / MANIFEST}: is of another result than its place in the store says" in found
        for reader in [*readers(chain, one), *readers(chain, two)]:
            with pytest.raises(GranularityError, match="is of another result than its place in the store says"):
                reader.run(tmp_path / "out")
            refused["neighbours"] += 1
    assert writing.names(tmp_path) == []


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

    The forged result itself is sound. Its stamp tells, and once that is forged, what was made from the old one.
    """
    folder = CHAIN / "hierarchy/random-5"
    with harmed(folder):
        file = folder / "properties.json"
        file.write_text(file.read_text().replace('"granularity": 5', '"granularity": 6'))
        size, digest = file.stat().st_size, hashing.digest_of(file)
        rewrite(folder, lambda m: m["files"]["properties.json"].update(sha256=digest, bytes=size), whole=True)
        (found,) = problems(Path("results"))
        assert found.startswith(f"{folder}.stamp: is the stamp of another result")
        restamp(folder)
        assert problems(Path("results")) == []
        assert str(CHAIN / "pretrain/resnet18/all") in outdated()
        report = next(step for step in chain if step.kind == "report")
        with pytest.raises(GranularityError, match="than the report is given; run snakemake"):
            report.run(tmp_path / "out")
        assert writing.names(tmp_path) == []


def test_a_forged_fact_is_found_and_a_forged_parameter_is_not(chain):
    """Facts decide the digest, as files do. Other parameters are for people; no stage reads them."""
    folder = CHAIN / "samples"
    facts = Artifact.peek(folder).facts
    with harmed(folder):
        rewrite(folder, lambda manifest: manifest["params"].update(target="digit"), whole=True)
        assert "target" in facts and any(line.startswith(f"{folder}.stamp: ") for line in problems(Path("results")))
    with harmed(folder):
        free = next(name for name in Artifact.peek(folder).params if name not in facts)
        rewrite(folder, lambda manifest: manifest["params"].update({free: "forged"}), whole=True)
        assert problems(Path("results")) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["options"].update(size=16),
        lambda m: m["made_from"].update(samples=["0" * 64]),
        lambda m: m["packages"].update(pillow="0"),
        lambda m: m.update(seed=7),
        lambda m: m["code"].update(digest="0" * 16),
    ],
    ids=["options", "made_from", "packages", "seed", "code"],
)
def test_a_result_that_says_that_it_was_made_otherwise_is_in_the_wrong_place(chain, change):
    folder = CHAIN / "pixels"
    with harmed(folder):
        rewrite(folder, change)
        (found,) = problems(folder)
        assert found == f"{folder / MANIFEST}: corrupt (its key does not match what it was made from)"
        rewrite(folder, lambda manifest: None, whole=True)
        assert problems(folder) == [f"{folder / MANIFEST}: is of another result than its place in the store says"]


def test_an_input_that_is_renamed_in_a_forged_manifest_is_refused_by_who_has_it(chain, tmp_path):
    folder = CHAIN / "pixels"
    with harmed(folder):
        rewrite(folder, lambda m: m["inputs"]["samples"].update(digest="0" * 64), whole=True)
        for reader in [one for one in readers(chain, folder) if str(CHAIN / "samples") in one.given]:
            with pytest.raises(GranularityError, match=f"{folder}: was made from another 'samples' than"):
                reader.run(tmp_path / "out")
            refused["renamed inputs"] += 1


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
