"""A run as an RO-Crate: what the package rocrate reads of it, and what the profiles require."""

import hashlib
import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from rocrate import vocabs
from rocrate.rocrate import ROCrate

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.config.options import Config
from granularity.look.exports.crate import PROFILES
from granularity.plan.graph import Plan, plans
from granularity.store import place
from granularity.store.artifact import Artifact
from support import minimal_results, tiny_chain


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """Every artifact of the smallest chain, with a line of text for its data."""
    folder = tmp_path_factory.mktemp("crate")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        minimal_results.write(Plan(Config.model_validate(tiny_chain.TINY)))
    return folder / "results/tiny"


def export(*words: object) -> None:
    cli.app(["export", "crate", *map(str, words)], standalone_mode=False)


def ids(found: object) -> set[str]:
    return {getattr(one, "id", one) for one in (found if isinstance(found, list) else [found])}


def test_a_crate_names_every_result_its_job_and_its_inputs(results, tmp_path):
    export(results, "--to", tmp_path / "run.zip", "--license", "https://spdx.org/licenses/CC-BY-4.0")
    crate = ROCrate(tmp_path / "run.zip")
    assert crate.license.id == "https://spdx.org/licenses/CC-BY-4.0"
    made = {name.relative_to(results.parent).as_posix(): Artifact.open(name) for name in place.find(results)}
    assert len(made) > 10
    jobs = {one.id: one for one in crate.get_entities() if one.type == "CreateAction" and one.id != "#run"}
    assert len(jobs) == len({one.folder for one in made.values()})
    for name, artifact in made.items():
        dataset, job = crate.get(f"{name}/"), jobs[f"#job-{artifact.manifest['key']}"]
        assert dataset["identifier"] == artifact.digest and f"{name}/" in ids(job["result"])
        assert job["startTime"] <= job["endTime"] and job["description"]
        version = artifact.manifest["all_packages"]["granularity"]
        assert job["instrument"]["softwareVersion"] == version
        given = job.get("object", [])
        sources = {entry["digest"] for entry in artifact.manifest["inputs"].values()}
        assert {one["identifier"] for one in (given if isinstance(given, list) else [given])} == sources
    run, main = crate.get("#run"), crate.mainEntity
    assert run["instrument"] == main and main.id == "workflow/Snakefile" and "ComputationalWorkflow" in main.type
    assert ids(main["hasPart"]) == {job["instrument"].id for job in jobs.values()}
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        said = yaml.safe_load(archive.read("configuration.yaml"))
        assert Config.model_validate(said).name == "tiny"
        for one in crate.get_entities():
            if one.get("sha256"):
                assert hashlib.sha256(archive.read(one.id)).hexdigest() == one["sha256"]
        held = set(archive.namelist())
    assert {"tiny/report/report.html", "rules/stages.smk"} <= held and not any(
        name.endswith((".npy", ".safetensors")) for name in held
    )
    assert "embedding.npy" in crate.get("tiny/train-60/embed/")["description"]


def test_a_crate_has_what_its_profiles_require(results, tmp_path):
    """Every MUST of the profiles. (roc-validator needs rich<14 and a network; by hand, 0.13 found nothing missing.)"""
    export(results, "--to", tmp_path / "run")
    crate = ROCrate(tmp_path / "run")
    root, main = crate.root_dataset, crate.mainEntity
    assert ids(crate.metadata["conformsTo"]) == {"https://w3id.org/ro/crate/1.1", PROFILES["Workflow RO-Crate"]}
    assert ids(root["conformsTo"]) == {*PROFILES.values()}
    assert all(one.type == "CreativeWork" and one["name"] and one["version"] for one in root["conformsTo"])
    assert all(root.get(name) for name in ("name", "description", "datePublished", "license"))
    assert {*main.type} == {"File", "SoftwareSourceCode", "ComputationalWorkflow"}
    assert main["programmingLanguage"].type == "ComputerLanguage"
    actions = [one for one in crate.get_entities() if one.type == "CreateAction"]
    tools = {one["instrument"].id: one["instrument"] for one in actions if one["instrument"] != main}
    assert {one.type for one in tools.values()} == {"SoftwareApplication"} and {*tools} == ids(main["hasPart"])
    assert {one.id for one in actions} == ids(root["mentions"])
    for one in crate.get_entities():
        if {"File", "Dataset"} & {*([one.type] if isinstance(one.type, str) else one.type)}:
            assert (tmp_path / "run" / unquote(one.id)).exists()
        known = {*vocabs.RO_CRATE["@context"], "@id", "@type", "sha256"}  # sha256: of Workflow Run's own context
        assert {*one.properties()} <= known
        for value in one.values():
            assert all(isinstance(ref, str) or ref.id for ref in (value if isinstance(value, list) else [value]))


def test_arrays_leave_if_asked_for(results, tmp_path):
    export(results, "--output", tmp_path / "run", "--arrays")
    assert (tmp_path / "run/tiny/train-60/embed/embedding.npy").is_file()
    assert "Left out" not in ROCrate(tmp_path / "run").get("tiny/train-60/embed/")["description"]


def test_a_crate_holds_one_run(results, tmp_path):
    (tmp_path / "results/unfinished").mkdir(parents=True)
    (tmp_path / "results/tiny").symlink_to(results)
    (tmp_path / "results/unfinished/samples").symlink_to((results / "train-60/samples").resolve())
    with pytest.raises(GranularityError, match=r"results of other runs than .*tiny; name one"):
        export(tmp_path / "results", "--to", tmp_path / "run")


def test_the_configuration_of_a_draw_can_be_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seeds = {"seeds": {**tiny_chain.TINY["seeds"], "draws": 2}}
    _, draw, _ = plans(files.checked(tiny_chain.TINY | seeds))
    minimal_results.write(draw)
    export("results/tiny/draw-1", "--to", "run")
    assert Config.model_validate(yaml.safe_load(Path("run/configuration.yaml").read_text())).name == "tiny-draw-1"


def test_what_is_no_finished_run_is_one_line_and_leaves_nothing(results, tmp_path, monkeypatch):
    for where, said in ((results / "train-60", "contains no report"), (tmp_path, "contains no report")):
        with pytest.raises(GranularityError, match=said):
            export(where, "--to", tmp_path / "made/run")
    monkeypatch.setitem(sys.modules, "rocrate.rocrate", None)
    with pytest.raises(GranularityError, match="needs the package rocrate"):
        export(results, "--to", tmp_path / "made/run")
    assert list(tmp_path.iterdir()) == []
