"""The configuration: closed, explained, and generated files that do not drift."""

import functools
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.config import options as cfg
from granularity.config.cells import cells
from granularity.learning.runs import Run
from granularity.plan.graph import Plan
from granularity.plan.trainings import deep
from support import default_run

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted([*ROOT.glob("config/examples/*.yaml"), *ROOT.glob("studies/*/study.yaml")])


@pytest.fixture(autouse=True)
def in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_generated_files_have_not_drifted():
    assert (ROOT / "config/options.yaml").read_text() == files.default_yaml(), "run: granularity config default"
    assert (ROOT / "config/schema.json").read_text() == files.schema_json(), "run: granularity config schema"


def test_the_commented_defaults_are_the_defaults():
    assert files.load(ROOT / "config/options.yaml") == cfg.Config()


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.parent.name if file.stem == "study" else file.stem)
def test_every_experiment_is_valid(file, tmp_path, monkeypatch):
    """Those that need data expect it below data/, and WordNet where Debian puts it: here both are empty folders."""
    for folder in ("config", "studies"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    own = tmp_path / file.relative_to(ROOT)
    own.write_text(file.read_text().replace("wordnet: /usr/share/wordnet", f"wordnet: {tmp_path}"))
    written = {key: value for _, says in files.read(own) for key, value in says.items()}
    others = [one["data"]["samples"] for one in written.get("transfers", []) if "data" in one]
    samples = (written.get("samples", {}), *others)
    folders = [folder for one in samples for folder in one.get("shifted", {}).values()]
    model = written.get("encoder", {}).get("model", "")
    folders += [model.removeprefix("local-dir:")] * model.startswith("local-dir:")
    for root in {*folders, *(one["root"] for one in samples if "root" in one)}:
        assert root.startswith("data/")
        (tmp_path / root).mkdir(parents=True)
        (tmp_path / root / "something").touch()
    for cell in cells(files.load(own)):
        plan = Plan(cell.config)
        assert all(one.spaces for one in plan.conditions if not one.name.startswith("data-")) and plan.jobs("report")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_conda_environments_have_the_pins_of_constraints(kind):
    """Of this version of the package, too: conda makes an environment again where its file has changed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / f"envs/{kind}.yaml").read_text()
    pins = next(entry["pip"] for entry in yaml.safe_load(text)["dependencies"] if isinstance(entry, dict))
    names = [re.split("[<>=]", one)[0] for one in project["dependencies"] + project["optional-dependencies"][kind]]
    assert [pin.split("==")[0] for pin in pins] == names and f"# granularity {project['version']}" in text
    assert {*map(str.lower, pins)} <= {*(ROOT / "envs/constraints.txt").read_text().lower().split()}


def runs_of(plan, stage, **values):
    """Every run of a stage, job by job."""
    return [Run.parse(name) for job in plan.jobs(stage, **values) for name in job.options["runs"]]


@pytest.mark.parametrize("level", ["run", "space", "family", "condition", "auto"])
def test_jobs_hold_every_run_once_whatever_they_hold(level):
    plan = Plan(default_run.config(jobs=dict.fromkeys(("pretrain", "finetune", "measure"), level)))
    for stage in ("pretrain", "finetune"):
        assert sorted(runs_of(plan, stage), key=repr) == sorted(runs_of(Plan(default_run.config()), stage), key=repr)


def ids(**values):
    """Ids of the pretrainings that the default run with other values plans, by label space and seed."""
    runs = runs_of(Plan(default_run.config(**values)), "pretrain", condition="train-300")
    return {(run.space, run.pretrain_seed): run.id for run in runs}


@pytest.mark.parametrize(
    "values",
    [
        {"samples": {"validation": 800}},
        {"seeds": {"base": 1}},
        {"pixels": {"mode": "RGB"}},
        {"model": {"args": {"channels": [4, 4, 8, 8]}}},
        {"jobs": {"processes": 2}},
        {"networks": [{"name": "n", "recipe": {"lr": 0.1}}]},
        {"networks": [{"name": "n", "init": "timm:pyproject.toml"}]},
    ],
)
def test_an_id_digests_what_a_run_is_made_from(values):
    before, after = ids(), ids(**values)
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())


def test_an_id_digests_the_encoder_and_the_clusters_of_clustered_spaces_alone():
    before = ids()
    for values in ({"encoder": {"captions": {"granularity": "coarse"}}}, {"cluster": {"restarts": 1}}):
        after = ids(**values)
        changed = {space for (space, seed), one in before.items() if after[space, seed] != one}
        clustered = {space for space, _ in before if space.startswith(("kmeans", "rebalanced", "regrouped"))}
        assert changed == clustered


OTHER = {"model": {"name": "convnext_atto"}}


@pytest.mark.parametrize(
    ("written", "args", "stem"),
    [
        ([OTHER], None, "timm"),
        ([{"model": {"args": {"stem_width": 8}}}, OTHER], None, "timm"),
        ([OTHER, {"model": {"args": {"patch_size": 2}}}], {"patch_size": 2}, "timm"),
        ([{"model": {"name": "resnet34", "stem": "small"}}], None, "small"),
        ([{"model": {"name": "resnet18"}}], cfg.Config().model.args, "small"),
        ([{"model": {"args": {"stem_width": 8}}}], {"stem_width": 8}, "small"),
        ([OTHER, {"model": {"name": "resnet18"}}], cfg.Config().model.args, "small"),
    ],
)
def test_another_architecture_begins_with_its_own_arguments(written, args, stem, tmp_path):
    """Whether the files are merged here or, plainly, by Snakemake, whose --config is the last of them."""
    own = [tmp_path / f"{number}.yaml" for number in range(len(written))]
    for file, says in zip(own, written, strict=True):
        file.write_text(yaml.safe_dump(says))
    everything = [files.DEFAULT, *own]
    plainly = functools.reduce(deep, (says for _, says in files.read(*everything)))
    found = [files.load(*everything), files.validate(plainly, everything)]
    found.append(files.validate(plainly, everything[:-1], written[-1]))
    if len(own) == 1:
        found.append(files.validate(written[0]))  # as of a module, without files
    assert {(str(one.model.args), one.model.stem) for one in found} == {(str(args), stem)}


def test_what_comes_with_the_workflow_is_found_from_any_folder_and_ids_are_the_same(tmp_path, monkeypatch):
    samples = {"source": "torchvision", "root": str(tmp_path), "taxonomy": "config/taxonomies/mnist.csv"}

    def planned():
        (tmp_path / "something").touch()
        encoder = {"model": "config/encoders/digits-tiny.json", "captions": {"template": "a {}"}}
        given = {"samples": samples, "encoder": encoder}
        given |= {"label_spaces": {"kmeans": [10]}, "extensions": ["studies/cifar10_plain/plain_cnn.py"]}
        plan = Plan(files.validate(given))
        jobs = [job for stage in ("samples", "encoder", "pretrain") for job in plan.jobs(stage)]
        return {Path(file).resolve() for job in jobs for file in job.files}, [job.options for job in jobs]

    here = planned()
    monkeypatch.chdir(tmp_path)
    assert planned() == here and here[0] == {ROOT / samples["taxonomy"], ROOT / "config/encoders/digits-tiny.json"}


def test_arguments_of_an_optimiser_or_a_policy_are_inherited_whole():
    """Those of one may be unknown to another."""
    pretrain = {"optimizer": "adamw", "optimizer_args": {"betas": [0.9, 0.95], "eps": 1e-6}}
    pretrain["augment"] = {"policy": "RandAugment", "policy_args": {"magnitude": 5}}
    found = files.validate({"name": "n", "pretrain": pretrain, "finetune": {"epochs": 12}}).finetune
    assert (found.optimizer_args, found.augment.policy_args) == (pretrain["optimizer_args"], {"magnitude": 5})
    own = {"optimizer": "sgd", "optimizer_args": {}, "augment": {"policy": None, "policy_args": {}}}
    found = files.validate({"name": "n", "pretrain": pretrain, "finetune": own}).finetune
    assert (found.optimizer_args, found.augment.policy_args, found.lr) == ({}, {}, 0.3)


def test_an_id_does_not_depend_on_names_or_neighbours():
    """Equal ids are equal results, whatever the configuration is called and whatever stands beside a run."""
    before = ids()
    after = ids(name="other", label_spaces={"kmeans_superclass": []}, networks=[{"name": "n"}], finetune={"lr": 0.1})
    assert all(before[key] == one for key, one in after.items())


def test_a_file_may_change_another(tmp_path):
    (tmp_path / "below").mkdir()
    base, own = tmp_path / "below/first.yaml", tmp_path / "second.yaml"
    base.write_text("name: first\npretrain: {lr: 0.3, epochs: 7}\nmodel: {args: {layers: [1, 1, 1, 0]}}\n")
    own.write_text("base: below/first.yaml\nname: second\npretrain: {lr: 0.2}\nmodel: {name: vit_tiny_patch16_224}\n")
    config = files.load(own)
    assert (config.name, config.pretrain.lr, config.pretrain.epochs) == ("second", 0.2, 7)
    assert config.model.args is None  # those of another architecture
    said = {"base": "below/first.yaml", "name": "second", "pretrain": {"lr": 0.2}}  # as Snakemake reads it
    said["model"] = {"name": "vit_tiny_patch16_224"}
    assert files.validate(said, [own, own.parent / "below/../second.yaml"]) == config  # it names a file twice
    (tmp_path / "third.yaml").write_text("base: below/first.yaml\nname: third\n")
    both = files.load(own, tmp_path / "third.yaml")  # which does not bring back what their base says
    assert (both.name, both.pretrain.lr, both.model.args) == ("third", 0.2, None)
    # a file of the command line is named before those of the workflow and again behind them
    assert files.load(own, base, own) == files.load(base, own)
    for text, message in (
        ("../second.yaml", "is based on this file"),
        ("none.yaml", "none.yaml: "),
        ("[1]", "must be the"),
    ):
        base.write_text(f"name: first\nbase: {text}\n")
        with pytest.raises(GranularityError, match=message):
            files.load(own)
    with pytest.raises(GranularityError, match="base: belongs in a file of its own"):
        files.validate({"base": "below/first.yaml"})
