"""One of everything that is found by name, in files of a user's own, through Snakemake to the report."""

import json
from pathlib import Path

import pandas as pd
import pytest

from granularity.base import extensions
from granularity.config import files
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store.artifact import Artifact

pytestmark = pytest.mark.workflow

ROOT = Path(__file__).parents[2]

SOURCE = '''"""Squares and bars of two sizes, drawn here."""
from pydantic import Field

EXTENDS = "source"
NEEDS_ROOT = False
IMAGES = 240
OPTIONS = {"brightness": (int, Field(200, description="Of what is drawn, 1 to 255."))}


def read(params, threads=1):
    import io
    import numpy as np
    import pandas as pd
    from PIL import Image
    from granularity.stages.samples.source import Source

    rng, rows, images = np.random.default_rng(0), [], []
    for i in range(IMAGES):
        shape, size = ("square", "bar")[i % 2], ("small", "large")[i // 2 % 2]
        image = np.zeros((8, 8), dtype=np.uint8)
        top, left = rng.integers(0, 3, 2)
        length = 2 if size == "small" else 5
        image[top : top + length, left : left + (length if shape == "square" else 1)] = params.brightness
        stream = io.BytesIO()
        Image.fromarray(image).save(stream, "PNG")
        images.append(stream.getvalue())
        rows.append({"sample_id": f"drawing {i}", "shape": shape, "sort": f"{size} {shape}"})
    return Source(pd.DataFrame(rows), images=images)
'''
OBJECTIVE = '''"""Cross-entropy with smoothed labels."""
from pydantic import Field
from granularity.base.section import Section
from granularity.learning.training.objectives import labels

EXTENDS = "objective"
NEEDS = "hierarchy"
describe, classes = labels.describe, labels.classes


class Options(Section):
    smoothing: float = Field(0.1, ge=0, lt=1)


def make(source, data, recipe, options):
    made = labels.make(source, data, recipe, Section())
    plain = made.loss

    def loss(outputs, picked):
        return (1 - options.smoothing) * plain(outputs, picked) - options.smoothing * outputs.log_softmax(1).mean()

    made.loss = loss
    return made
'''
AUGMENTATION = '''"""Negatives, of a share of the images."""
import random

from PIL import ImageOps

EXTENDS = "augmentation"


def alter(image, options, seed):
    return ImageOps.invert(image) if random.Random(seed).random() < options.policy_args["share"] else image
'''
FAMILY = '''"""Labels by how bright an image is: classes of as many images each."""

import numpy as np
from pydantic import Field

from granularity.data.shards import pictures
from granularity.stages.hierarchy.labels import Labels
from granularity.stages.hierarchy.space import Space

EXTENDS, NEEDS = "family", ("pixels",)
OPTION = (list[int], Field([], description="Labels by brightness: numbers of classes."))


def spaces(option, samples):
    for classes in option:
        yield Space(f"brightness-{classes}", "brightness", {"classes": classes})


def labels(training, classes):
    images = pictures(training.pixels)
    light = np.array([images[row].mean() for row in training.rows(training.frame)])
    numbers = light.argsort().argsort() * classes // len(light)
    return Labels(numbers.astype(np.int32), [f"brightness {i}" for i in range(classes)])
'''
SECTION = '''"""Seconds of each stage."""
from granularity.stages.report.sections import Part

EXTENDS = "section"
HEADING = "Time spent"


def build(loaded):
    return Part({"time_spent": loaded.cost[["stage", "wall_seconds"]]})
'''
# The other kinds are the examples of docs/development.md.
PAGE = (ROOT / "docs/development.md").read_text(encoding="utf-8")
NAMES = ("remainder", "perceptron", "length")
EXAMPLES = {name: PAGE[PAGE.index(f"# {name}.py\n") :].split("```")[0] for name in NAMES}
OWN = {"shapes": SOURCE, "brightness": FAMILY, "smoothed": OBJECTIVE, "negative": AUGMENTATION, "time_spent": SECTION}
FILES = OWN | EXAMPLES
CONFIG = {
    "name": "own",
    "extensions": [f"mine/{name}.py" for name in FILES],
    "samples": {
        "source": "shapes",
        "brightness": 150,
        "ranks": ["shape", "sort"],
        "target": "shape",
        "validation": 80,
    },
    "conditions": [{"train_size": 100}],
    "label_spaces": {"remainder": [3], "brightness": [4]},
    "pretrain": {"batch_size": 20, "epochs": 2, "warmup_epochs": 0.5, "lr": 0.05},
    "finetune": {
        "augment": {"policy": "negative", "policy_args": {"share": 0.5}},
        "batch_size": 20,
        "epochs": 2,
        "warmup_epochs": 0.5,
        "lr": 0.05,
        "optimizer": "lion",
    },
    "networks": [
        {
            "name": "mlp",
            "model": {"name": "perceptron", "args": {"side": 8}, "stem": "timm"},
            "objective": {"name": "smoothed", "options": {"smoothing": 0.2}},
        },
    ],
    "measures": [{"name": "length", "of": ["backbones", "untrained"], "splits": ["train", "val"]}],
    "seeds": {"pretrain": 2, "finetune": 2},
}


def configure(checkout):
    checkout.path("mine").mkdir(exist_ok=True)
    for name, text in FILES.items():
        checkout.path(f"mine/{name}.py").write_text(text)
    checkout.path("own.yaml").write_text(json.dumps(CONFIG))
    return ["--configfile", "own.yaml"]


@pytest.fixture(scope="module")
def own(finished_run):
    """A checkout with a finished run of a configuration that names one of everything."""
    return finished_run("own", configure)


def test_they_go_through_to_the_report(own):
    page = own.path("results/own/report/report.html").read_text()
    assert "remainder-3" in page and "Time spent" in page
    values = pd.read_parquet(own.path("results/own/train-100/measure/length/mlp/all/values.parquet"))
    assert set(values["key"]) == {"mean_norm"} and set(values["split"]) == {"train", "val"}
    assert 0 in set(values["epoch"])
    assert "all sound" in own.run("granularity", "verify", "results")
    assert "Nothing to be done" in own.snakemake("-n", "--configfile", "own.yaml")


def test_what_they_bring_is_an_option_like_any_other(own):
    bad = own.path("bad.yaml")
    bad.write_text("samples: {brightnes: 3}\nlabel_spaces: {remainder: [1.5]}\n")
    output = own.run("granularity", "config", "check", "-f", "own.yaml", "-f", "bad.yaml", code=1)
    assert "did you mean 'brightness'?" in output and "label_spaces.remainder.0 = 1.5" in output


def test_the_code_of_a_job_has_the_files_that_it_is_made_with(own, monkeypatch):
    """So an edit makes again what is made with the file: the content of each counts (tests/store/test_code.py)."""
    monkeypatch.chdir(own.folder)
    plan, held = Plan(files.load("own.yaml")), {}
    for job in (job for stage in STAGES for job in plan.jobs(stage)):
        for file in plan.code(job):
            held.setdefault(Path(file).stem, set()).add(job.stage)
    extensions.load([])
    assert {name: held[name] for name in FILES} == {
        "shapes": {"samples"},
        "smoothed": {"pretrain"},
        "negative": {"finetune"},
        "remainder": {"hierarchy", "report"},
        "brightness": {"hierarchy", "report"},
        "perceptron": {"pretrain", "finetune", "measure"},
        "length": {"measure"},
        "time_spent": {"report"},
    }


def test_a_file_that_is_none_is_one_line_before_anything_runs(own):
    own.path("mine/odd.py").write_text("def broken(:\n")
    own.path("odd.yaml").write_text("extensions: [mine/odd.py]\n")
    output = own.snakemake("-n", "--configfile", "odd.yaml", code=1)
    assert "cannot be imported (SyntaxError" in output and "Traceback" not in output


def test_a_family_is_given_the_images_where_it_asks_for_them(own):
    inputs = {}
    for space in ("remainder-3", "brightness-4"):
        made = Artifact.open(own.path(f"results/own/train-100/hierarchy/{space}"))
        inputs[space] = set(made.manifest["inputs"])
    assert inputs == {"remainder-3": {"samples"}, "brightness-4": {"samples", "pixels"}}
    frame = Artifact.open(own.path("results/own/train-100/samples")).table("samples.parquet", ["sample_id", "sort"])
    label = made.table("labels.parquet").merge(frame).groupby("sort", observed=True)["label"].mean()
    assert label["small bar"] < label["small square"] < label["large square"]
    assert made.json("properties.json")["class_size"] == {"min": 25, "median": 25.0, "max": 25}
