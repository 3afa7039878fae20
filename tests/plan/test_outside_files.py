"""What a plan says of the user's files and folders, and when it looks at them."""

import json

import pytest

from granularity.config.options import Config
from granularity.plan.commands import listing
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from support.sampling import save, section


@pytest.fixture
def photos(tmp_path):
    """A plan of two training-set sizes of one folder of images."""
    for name in ("cat", "dog"):
        save(tmp_path / "photos" / name / "1.png")
    samples = {"source": "folder", "root": str(tmp_path / "photos"), "ranks": ["kind"], "target": "kind"}
    config = {"samples": samples | {"validation": 1}, "conditions": [{"train_size": 1}, {"train_size": "all"}]}
    return Plan(Config.model_validate(config | {"label_spaces": {"kmeans": [2]}}))


# ---------------------------------------------------------------- for the key of a result


def changed(stage, options, edit):
    """The digests of what a stage reads outside that an edit changes, by what is read."""
    before = STAGES[stage].outside(options)
    edit()
    after = STAGES[stage].outside(options)
    return {name for name in {**before, **after} if before.get(name) != after.get(name)}


def test_samples_count_images_and_files_of_labels(tmp_path):
    root, taxonomy = tmp_path / "data", tmp_path / "taxonomy.csv"
    save(root / "1.png")
    (root / "images.csv").write_text("path,kind\n1.png,a\n")
    taxonomy.write_text("kind,more\na,b\n")
    options = section(source="table", root=root, labels="images.csv", taxonomy=taxonomy, ranks=["kind"], target="kind")
    assert set(STAGES["samples"].outside(options)) == {str(root), str(root / "images.csv"), str(taxonomy)}
    assert changed("samples", options, lambda: taxonomy.write_text("kind,more\na,c\n")) == {str(taxonomy)}
    assert changed("samples", options, lambda: (root / "1.png").write_bytes(b"")) == {str(root)}
    assert STAGES["samples"].outside(section()) == {}
    noun = tmp_path / "data.noun"
    noun.write_text("")
    options = section(source="folder", root=root, wordnet=tmp_path, ranks=["synset"], target="synset")
    assert changed("samples", options, lambda: noun.write_text("edited")) >= {str(noun)}


def test_shifted_test_sets_count(tmp_path):
    sets = {"root": tmp_path / "imagenet", "shifted": {"v2": tmp_path / "v2"}, "extra_splits": ["v2"]}
    save(tmp_path / "v2" / "0" / "1.png")
    options = section(source="imagenet", ranks=["synset"], target="synset", **sets)
    assert changed("samples", options, lambda: save(tmp_path / "v2" / "0" / "2.png")) == {str(tmp_path / "v2")}


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        ("encoder", {"model": "{file}"}),
        ("embed", {"model": "ViT-B-32", "pretrained": "{file}"}),
        ("embed", {"embeddings": "{file}"}),
        ("pretrain", {"init": {"timm": "{file}"}}),
    ],
)
def test_files_that_options_name_count(tmp_path, stage, options):
    file = tmp_path / "weights"
    file.write_text("1")
    options = STAGES[stage].model.model_validate(json.loads(json.dumps(options).replace("{file}", str(file))))
    assert changed(stage, options, lambda: file.write_text("2")) == {str(file)}


def test_what_planning_looks_at_is_what_keys_hold(photos):
    plans = photos, Plan(Config.model_validate({"studies": ["granularity_t5"]}))
    looked = {}
    for job in (job for plan in plans for stage in STAGES for job in plan.jobs(stage)):
        stage = STAGES[job.stage]
        looked[job.stage] = bool(listing(job))
        assert looked[job.stage] == bool(stage.outside(stage.model.model_validate(job.options))), job
    assert looked["encoder"] and looked["verdicts"] and not looked["report"]


def test_published_rows_count_by_the_name_of_their_paper():
    verdicts = STAGES["verdicts"]
    found = verdicts.outside(verdicts.model(study="granularity_t5"))
    assert set(found) == {"granularity", "claims of granularity_t5"} and len(found["granularity"]) == 64
    assert verdicts.outside(verdicts.model(study="label_granularity")).keys() == {
        "granularity",
        "claims of label_granularity",
    }
