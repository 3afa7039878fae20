"""The configuration: closed, explained, and generated files that do not drift."""

import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

from granularity.base.errors import GranularityError
from granularity.config import files, generated
from granularity.config import options as cfg
from granularity.learning.runs import Run
from granularity.plan.graph import Plan
from granularity.stages.hierarchy.space import TARGET

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def refused(values):
    with pytest.raises(GranularityError) as error:
        files.validate(values)
    return str(error.value)


def test_generated_files_have_not_drifted():
    assert (ROOT / "config/config.yaml").read_text() == generated.default_yaml(), "run: granularity config default"
    assert (ROOT / "config/schema.json").read_text() == generated.schema_json(), "run: granularity config schema"


def test_the_commented_default_is_the_default():
    assert files.load(ROOT / "config/config.yaml") == cfg.Config()


@pytest.mark.parametrize("file", sorted((ROOT / "config/experiments").glob("*.yaml")), ids=lambda file: file.name)
def test_every_experiment_is_valid(file, tmp_path, monkeypatch):
    """Those that need data expect it below data/, and WordNet where Debian puts it: here both are empty folders."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    own = tmp_path / file.name
    own.write_text(file.read_text().replace("wordnet: /usr/share/wordnet", f"wordnet: {tmp_path}"))
    written = yaml.safe_load(own.read_text())
    others = [one["data"]["samples"] for one in written.get("transfers", []) if "data" in one]
    for root in {one["root"] for one in (written.get("samples", {}), *others) if "root" in one}:
        assert root.startswith("data/")
        (tmp_path / root).mkdir(parents=True)
    config = files.load(ROOT / "config/config.yaml", own)
    plan = Plan(config)
    assert all(one.spaces for one in plan.conditions if not one.name.startswith("data-")) and plan.jobs("report")


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_conda_environments_have_the_same_pins(kind):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / f"envs/{kind}.yaml").read_text())
    pins = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pins == project["dependencies"] + project["optional-dependencies"][kind]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"clustr": {}}, ["clustr", "unknown key", "did you mean 'cluster'"]),
        ({"cluster": {"iteratons": 3}}, ["cluster.iteratons = 3", "did you mean 'iterations'", "restarts"]),
        ({"pretrain": {"augment": {"flp": True}}}, ["pretrain.augment.flp", "did you mean 'flip'"]),
        ({"cluster": {"iterations": "ten"}}, ['cluster.iterations = "ten"', "valid integer"]),
        ({"cluster": {"iterations": 0}}, ["cluster.iterations = 0", "greater than or equal to 1"]),
        ({"label_spaces": {"kmeans": [301]}}, ["label_spaces.kmeans", "301 is more than the 300 training images"]),
        ({"label_spaces": {"manual": ["species"]}}, ["label_spaces.manual", "species", "digit"]),
        ({"conditions": [{"train_size": 300}, {"train_size": 300}]}, ["conditions", "twice"]),
        ({"conditions": [{"train_size": 901}]}, ["train_size 901", "1797"]),
        ({"conditions": [{"train_size": "many"}]}, ["conditions.0.train_size", '"many"']),
        ({"pretrain": {"batch_size": 301}}, ["pretrain.batch_size", "301", "300 training images"]),
        ({"samples": {"source": "folder"}}, ["samples.root", "needs the folder"]),
        ({"samples": {"source": "folder", "root": "/no/such"}}, ["samples.root", "/no/such"]),
        ({"samples": {"target": "species"}}, ["samples.target", "species"]),
        ({"encoder": {"model": "ViT-L-14", "pretrained": None}}, ["encoder.pretrained", "open_clip tag"]),
        ({"encoder": {"model": "hf-hub:a/b"}}, ["encoder.pretrained", "null"]),
        ({"encoder": {"model": "gone.json"}}, ["encoder.model", "gone.json"]),
        ({"encoder": {"model": "local-dir:/no/such", "pretrained": None}}, ["encoder.model", "/no/such"]),
        ({"encoder": {"captions": {"template": "no place"}}}, ["encoder.captions.template", "{}"]),
        ({"pretrain": {"augment": {"crop": 40}}}, ["augment.crop", "40"]),
        ({"name": "../evil"}, ["name", "../evil"]),
        ({"name": "a b; rm"}, ["name"]),
        ({"device": "gpu"}, ["device", "'auto', 'cpu' or 'cuda'"]),
        ({"seeds": {"base": -1}}, ["seeds.base = -1"]),
        ({"pretrain": {"lr": float("nan")}}, ["pretrain.lr"]),
        ({"jobs": {"pretrain": "seed"}}, ["jobs.pretrain", "'run', 'space', 'family', 'condition' or 'auto'"]),
    ],
)
def test_mistakes_name_key_value_and_what_is_allowed(values, words):
    message = refused(values)
    for word in words:
        assert word in message
    assert "Traceback" not in message and "pydantic" not in message


def test_every_mistake_is_named_at_once():
    assert len(refused({"clustr": {}, "name": 3, "seeds": {"base": "x"}}).splitlines()) == 3


def test_the_file_that_holds_the_mistake_is_named(tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("cluster: {iterations: 3}\n")
    bad.write_text("cluster: {restarts: none}\n")
    with pytest.raises(GranularityError, match=r"bad\.yaml: cluster\.restarts"):
        files.load(good, bad)
    bad.write_text("cluster: [3\n")
    with pytest.raises(GranularityError, match=r"bad\.yaml: not readable as YAML"):
        files.load(bad)
    with pytest.raises(GranularityError, match="no such configuration file"):
        files.load(tmp_path / "none.yaml")


def test_later_files_win_key_by_key(tmp_path):
    over = tmp_path / "over.yaml"
    over.write_text("pretrain: {lr: 0.5}\nlabel_spaces: {kmeans_superclass: []}\n")
    config = files.load(ROOT / "config/config.yaml", over)
    assert (config.pretrain.lr, config.pretrain.epochs) == (0.5, 30)
    assert config.label_spaces.kmeans_superclass == [] and config.label_spaces.random == [10, 30, 90]


def test_an_unknown_space_of_a_condition_is_refused():
    message = refused({"conditions": [{"train_size": 300, "spaces": ["kmeans-7"]}]})
    assert message.startswith("conditions.0.spaces: ") and "kmeans-7" in message and "random-30" in message


def runs_of(plan, stage, **values):
    """Every run of a stage, job by job."""
    return [Run.parse(name) for job in plan.jobs(stage, **values) for name in job.options["runs"]]


def test_run_names_are_unique_and_parse_back():
    plan = Plan(cfg.Config())
    runs = runs_of(plan, "pretrain") + runs_of(plan, "finetune")
    assert len({run.id for run in runs}) == len(runs)
    names = [name for stage in ("pretrain", "finetune") for job in plan.jobs(stage) for name in job.options["runs"]]
    assert [run.name for run in runs] == names
    with pytest.raises(GranularityError, match="not the name of a run"):
        Run.parse("nonsense")


def test_every_arm_has_the_seeds_asked_for():
    plan = Plan(files.validate({"seeds": {"pretrain": 2, "finetune": 6}}))
    for condition in plan.conditions:
        finetunes = [run.space for run in runs_of(plan, "finetune", condition=condition.name)]
        pretrains = [run.space for run in runs_of(plan, "pretrain", condition=condition.name)]
        for space in condition.spaces:
            assert finetunes.count(space.name) == 12
            assert pretrains.count(space.name) == (12 if space.name == TARGET else 2)


@pytest.mark.parametrize("level", ["run", "space", "family", "condition", "auto"])
def test_jobs_hold_every_run_once_whatever_they_hold(level):
    plan = Plan(files.validate({"jobs": {"pretrain": level, "finetune": level, "measure": level}}))
    for stage in ("pretrain", "finetune"):
        assert sorted(runs_of(plan, stage), key=repr) == sorted(runs_of(Plan(cfg.Config()), stage), key=repr)


def ids(**values):
    """Ids of the pretrainings that a configuration plans, by label space and seed."""
    runs = runs_of(Plan(files.validate(values)), "pretrain", condition="train-300")
    return {(run.space, run.pretrain_seed): run.id for run in runs}


@pytest.mark.parametrize(
    "values",
    [
        {"samples": {"validation": 800}},
        {"seeds": {"base": 1}},
        {"pixels": {"mode": "RGB"}},
        {"model": {"args": {"channels": [4, 4, 8, 8]}}},
        {"pretrain": {"lr": 0.1}},
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
        clustered = {space for space, _ in before if space.startswith(("kmeans", "rebalanced"))}
        assert changed == clustered


def test_an_id_does_not_depend_on_names_or_neighbours():
    """Equal ids are equal results, whatever the configuration is called and whatever stands beside a run."""
    before = ids()
    after = ids(name="other", label_spaces={"kmeans_superclass": []}, networks=[{"name": "n"}], finetune={"lr": 0.1})
    assert all(before[key] == one for key, one in after.items())
