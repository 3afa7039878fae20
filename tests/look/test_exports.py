"""What leaves the house is used without this package, and gives what results say; nothing else is written."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import timm
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import granularity
from granularity import cli
from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.learning.options import Model
from granularity.machine import torchvision_compat
from granularity.store.artifact import Artifact, as_text
from support import tasks
from support.trainings import TINY, finetuning, label_space, made_space, pretraining, recipe

SHORT = recipe(epochs=2, augment={"crop": 7})
RUN, SMALL, OWN = (pretraining("manual-digit", seed) for seed in range(3))
FINE = finetuning("manual-digit")
IMAGES = "digits (120 train, 60 val images)"
STEM = Model(args={**TINY, "channels": [4, 8, 8, 16]}, stem="timm")
PUBLISHED = {"published": RUN.name, "early": f"{RUN.id}@1", "finetuned": FINE.id, "small": SMALL.name}
OTHERS = {  # networks whose outputs are not one softmax: run, its source, options
    "sigmoid": (pretraining("several"), "hierarchy", "hierarchy/several", {}),
    "levels": (
        pretraining("several", 1),
        "hierarchy",
        "hierarchy/several",
        {"objective": {"name": "levels", "options": {"weights": [1, 2]}}},
    ),
    "distil": (pretraining("distil"), "embed", "embed", {"objective": {"name": "distil"}}),
}
MINE = """import timm
EXTENDS = "network"
def build(model, channels, seed):
    return timm.create_model("resnet18", in_chans=channels, num_classes=0, **model.args)
"""
ELSEWHERE = """
import os, re, sys
sys.path.append({site!r})
import numpy, torch
beside = {{}}  # what a torchvision of another build lacks
exec(open({compat!r}).read(), beside)
beside["define_missing_operators"]()
import timm
from pathlib import Path
from PIL import Image
found = {{}}
for folder in map(Path, sys.argv[1:]):
    os.chdir(folder)
    known = {{}}
    exec(re.search("```python\\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1], known)
    network = known["network"]
    with torch.inference_mode():
        found[folder.name] = network(torch.from_numpy(numpy.load("../images.npy"))).numpy()
        if folder.name == "finetuned":
            files = sorted(Path("../originals").iterdir())
            images = [known["transform"](Image.open(file)) for file in files]
            found["predicted"] = network(torch.stack(images)).argmax(1).numpy()
assert not [name for name in sys.modules if name.startswith("granularity")]
numpy.savez("../logits.npz", **found)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """A condition: label spaces, one with several labels per image; two pretrainings, a finetuning that was kept."""
    folder = tmp_path_factory.mktemp("exports") / "results"
    where, spaces = folder / "mine/train-120", folder / "mine/train-120/hierarchy"
    data = {"samples": where / "samples", "pixels": where / "pixels"}
    tasks.run("samples", data["samples"], {"validation": 60, "train_size": 120})
    tasks.run("pixels", data["pixels"], samples=data["samples"])
    ids = Artifact.open(data["samples"]).table("samples.parquet")["sample_id"]
    vectors = np.random.default_rng(0).normal(size=(len(ids), 4)).tolist()
    pd.DataFrame({"sample_id": ids, "vector": vectors}).to_parquet(folder.parent / "vectors.parquet")
    tasks.run(
        "embed", where / "embed", {"embeddings": str(folder.parent / "vectors.parquet")}, samples=where / "samples"
    )
    for name, rank in (("target", "loops"), ("manual-digit", "digit")):
        made_space(spaces / name, data["samples"], "manual", {"rank": rank})
    label_space(spaces / "several", data["samples"], [[i % 2, 2] for i in range(120)], [None] * 3)
    pretrain, space, own = where / "pretrain", spaces / "manual-digit", folder.parent / "mine.py"
    own.write_text(MINE)
    extensions.load([own])
    networks = {"net": (RUN, STEM), "small": (SMALL, Model(args=TINY)), "own": (OWN, Model(name="mine", args=TINY))}
    for name, (run, model) in networks.items():
        options = {"network": name, "model": model, "recipe": SHORT, "runs": [run.name], "keep": [1]}
        tasks.run("pretrain", pretrain / name / "all", options, **data, hierarchy=space)
    extensions.load([])
    for name, (run, role, source, more) in OTHERS.items():
        options = {"network": name, "model": STEM, "recipe": SHORT, "runs": [run.name], **more}
        tasks.run("pretrain", pretrain / name / "all", options, **data, **{role: where / source})
    options = {"recipe": SHORT, "runs": [FINE.name], "keep": True, "transfer": "to"}
    tasks.run("finetune", where / "finetune/to/net/all", options, **data, pretrain=pretrain / "net/all")
    measured = {"name": "right", "measure": "accuracy", "of": ["backbones"], "splits": ["val"], "runs": [RUN.name]}
    tasks.run("measure", where / "measure/right/net/all", measured, **data, pretrain=pretrain / "net/all")
    return folder


def export(*words: object) -> None:
    cli.app(["export", *map(str, words)], standalone_mode=False)


def test_networks_and_their_cards_say_the_same_where_this_package_is_not(results, tmp_path):
    for name, run in PUBLISHED.items():
        form = ("--format", "state_dict") if name == "small" else ()
        export("backbone", run, "--to", tmp_path / name, "--results", results, *form)
    job = Artifact.open(results / "mine/train-120/finetune/to/net/all")
    predictions, images = job.table("predictions.parquet"), np.random.default_rng(0).normal(size=(5, 1, 7, 7))
    np.save(tmp_path / "images.npy", images.astype(np.float32))
    (tmp_path / "originals").mkdir()
    samples = Images(Artifact.open(results / "mine/train-120/samples"))
    for row in np.flatnonzero(samples.table["sample_id"].isin(predictions["sample_id"])):
        samples.load(row, "L").save(tmp_path / f"originals/{row:05d}.png")
    code = ELSEWHERE.format(site=sysconfig.get_path("purelib"), compat=torchvision_compat.__file__)
    command = [sys.executable, "-I", "-S", "-c", code, *(tmp_path / name for name in PUBLISHED)]
    known = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # of the package's own entry point
    subprocess.run(command, check=True, env=known, cwd=tmp_path)
    found = np.load(tmp_path / "logits.npz")
    for name, run in PUBLISHED.items():
        with torch.inference_mode():
            ours = granularity.backbone(run, results)(torch.from_numpy(images).float()).numpy()
        np.testing.assert_allclose(found[name], ours, rtol=1e-5, atol=1e-6)
    assert not np.allclose(found["published"], found["early"])
    assert found["predicted"].tolist() == predictions[FINE.id].tolist()  # as the result itself says
    card, config = ((tmp_path / "finetuned" / name).read_text() for name in ("README.md", "config.json"))
    assert f"{job.table('runs.parquet')['val_error'][0]:.2f} %" in card and "(n = 60)" in card and job.digest in card
    assert '"epochs": 2' in card and "Licence" in card and "outputs: the target's (loops), a softmax" in card
    assert f"| base seed | 0 |\n| pretraining run | {RUN.id} |" in card
    assert f"| images finetuned on | {IMAGES} |\n| images pretrained on | {IMAGES} |" in card
    pretrained = (tmp_path / "published/README.md").read_text()
    assert f"| images pretrained on | {IMAGES} |" in pretrained and "finetuned" not in pretrained
    assert json.loads(config)["label_names"] == job.table("classes.parquet")["name"].tolist()
    assert not {"license", "tag", "url", "origin_url"} & {*json.loads(config)["pretrained_cfg"]}  # timm's
    assert len(json.loads((tmp_path / "small/labels.json").read_text())["label_names"]) == 10


def test_a_card_says_what_outputs_are_where_they_are_not_one_softmax(results, tmp_path):
    said = {}
    for name, (run, *_) in OTHERS.items():
        export("backbone", run.name, "--to", tmp_path / name, "--results", results)
        said[name] = (tmp_path / name / "README.md").read_text()
    assert "3 classes; outputs: its own, a sigmoid per class" in said["sigmoid"]
    assert "a softmax per level of labels" in said["levels"] and '"weights": ' in said["levels"]
    assert "no classes; outputs: its own, an embedding" in said["distil"] and "| error |" not in said["distil"]
    assert "tags: [image-feature-extraction, timm]" in said["distil"]
    assert "label_names" not in json.loads((tmp_path / "distil/config.json").read_text())


# ---------------------------------------------------------------- label spaces


def test_label_spaces_are_read_by_datasets_with_the_names_of_their_classes(results, tmp_path):
    export("labels", results, "--to", tmp_path / "made")
    read = datasets.Dataset.from_parquet(str(tmp_path / "made"), cache_dir=str(tmp_path / "cache"))
    assert set(granularity.__all__) <= set(dir(granularity))
    spaces = granularity.label_spaces(results).set_index("space")
    assert read.column_names == ["sample_id", *spaces.index]
    for space in ("target", "manual-digit"):
        labels = granularity.labels(spaces["path"][space])
        assert read["sample_id"][:] == labels["sample_id"].tolist()
        assert read.features[space].int2str(read[space][:]) == labels["name"].tolist()
    assert read.features["several"].feature.names == ["class 0", "class 1", "class 2"]
    assert read["several"][:3] == [[0, 2], [1, 2], [0, 2]]


def test_label_spaces_with_their_images_are_a_data_set_of_this_workflow(results, tmp_path):
    words = ("--space", "target", "--space", "manual-digit", "--images")
    export("labels", results / "mine/train-120", "--to", tmp_path / "data/train.parquet", *words)
    options = {"source": "parquet", "root": str(tmp_path / "data"), "validation": 20}
    options |= {"ranks": ["target", "manual-digit"], "target": "target"}
    again = tasks.run("samples", tmp_path / "again", options).table("samples.parquet")
    before = Artifact.open(results / "mine/train-120/samples").table("samples.parquet")
    known = before[before["split"] == "train"].set_index("sha256").loc[again["sha256"]]
    named = again[["target", "manual-digit"]].values.tolist()
    assert len(named) == 120 and named == known[["loops", "digit"]].values.tolist()


def test_a_balanced_subset_is_what_another_configuration_trains_on(results, tmp_path):
    def subset(count: int, seed: int = 0) -> list[str]:
        file = tmp_path / f"{count}-{seed}.txt"
        levels = ["--space", "target", "--space", "manual-digit"]
        export("subset", results, "--images", count, *levels, "--seed", seed, "--to", file)
        return file.read_text().splitlines()

    frame = Artifact.open(results / "mine/train-120/samples").table("samples.parquet").set_index("sample_id")
    frame = frame[frame["split"] == "train"]
    chosen = subset(50)
    assert chosen == [one for one in frame.index if one in {*chosen}] and len({*chosen}) == 50
    assert {*subset(20)} < {*chosen} and {*chosen} != {*subset(50, seed=1)} and {*subset(120)} == {*frame.index}
    there, taken = (part.groupby(["loops", "digit"], observed=True).size() for part in (frame, frame.loc[chosen]))
    for sizes, counts in (
        (there.groupby("loops").sum(), taken.groupby("loops").sum()),
        *((there[one], taken[one].reindex(there[one].index, fill_value=0)) for one in there.index.levels[0]),
    ):  # a class with less than another has no image left
        assert ((counts >= counts.max() - 1) | (counts == sizes.reindex(counts.index))).all()
    options = {"validation": 60, "train_size": "all", "subset": str(tmp_path / "50-0.txt")}
    again = tasks.run("samples", tmp_path / "again", options).table("samples.parquet")
    assert {*again.loc[again["split"] == "train", "sample_id"]} == {*chosen} and (again["split"] == "val").sum() == 60


def test_embeddings_leave_with_a_map_labels_and_images_and_come_back(results, tmp_path):
    file, where = tmp_path / "seen.parquet", results / "mine/train-120"
    export("embeddings", where, "--to", file, "--images")
    read = pd.read_parquet(file).set_index("sample_id")
    table = Artifact.open(where / "samples").table("samples.parquet").set_index("sample_id")
    assert read.index.equals(table.index) and read["split"].tolist() == table["split"].tolist()
    assert read["digit"].tolist() == table["digit"].tolist() and read[["x", "y"]].notna().all(axis=None)
    assert hashlib.sha256(read["image"].iloc[7]["bytes"]).hexdigest() == table["sha256"].iloc[7]
    labels = granularity.labels(where / "hierarchy/manual-digit").set_index("sample_id")["name"]
    assert read["label space: manual-digit"][labels.index].to_dict() == labels.to_dict()
    assert read["label space: several"].iloc[0] == "class 0 + class 2"
    assert set(read["prediction: manual-digit"].dropna()) <= set(table["loops"])
    again = tasks.run("embed", tmp_path / "embed", {"embeddings": str(file)}, samples=where / "samples")
    before = Artifact.open(where / "embed").array("embedding.npy")
    np.testing.assert_allclose(again.array("embedding.npy"), before, atol=1e-7)


# ---------------------------------------------------------------- histories, and results in Python


def test_histories_are_a_table_or_event_files(results, tmp_path):
    export("history", results, "--to", tmp_path / "table")
    table = pd.read_csv(tmp_path / "table/history.csv")
    trained = [FINE, RUN, SMALL, OWN, *(run for run, *_ in OTHERS.values())]
    assert table.groupby("run", sort=False).size().to_dict() == {run.id: 2 for run in trained}
    losses = Artifact.open(results / "mine/train-120/finetune/to/net/all").table("history.parquet")["train_loss"]
    assert table[table["run"] == FINE.id]["train_loss"].tolist() == losses.tolist()
    for name, of, below in (("events", results, "mine/train-120/"), ("one", results / "mine/train-120/finetune", "")):
        export("history", of, "--to", tmp_path / name, "--format", "tensorboard")
        folder = tmp_path / name / f"{below}finetune/net/to/manual-digit-{FINE.id}"
        events = EventAccumulator(str(folder)).Reload().Scalars("train_loss")
        assert [(one.step, one.value) for one in events] == [(i + 1, np.float32(loss)) for i, loss in enumerate(losses)]


def test_runs_are_one_long_table(results):
    table = granularity.runs(results)
    error = Artifact.open(results / "mine/train-120/finetune/to/net/all").table("runs.parquet")["val_error"][0]
    fine = table.query("stage == 'finetune' and measure == 'val_error'").iloc[0]
    assert (fine["run"], fine["parent"], fine["value"]) == (FINE.id, RUN.id, error)
    assert (fine["condition"], fine["transfer"], fine["finetune_seed"]) == ("mine/train-120", "to", 0)
    measured = Artifact.open(results / "mine/train-120/measure/right/net/all").table("values.parquet")
    found = table[table["stage"] == "measure"]
    assert found[["key", "value"]].values.tolist() == measured[["key", "value"]].values.tolist()
    assert (found["space"] == "manual-digit").all() and (found["measure"] == "right").all()


def test_the_package_is_light_to_import():
    heavy = "{'numpy', 'pandas', 'torch', 'pyarrow', 'pydantic', 'typer'}"
    code = f"import sys, granularity; assert not {heavy} & {{*sys.modules}}, sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, torch; assert 'granularity' not in sys.modules"  # its entry point leaves others alone
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- what is refused


def _of_another_version(manifest: bytes) -> bytes:
    said = {name: value for name, value in json.loads(manifest).items() if name != "seal"}
    return as_text(said | {"schema_version": 0}).encode()


REFUSED = {
    "a stem that timm lacks": (["backbone", SMALL.id], "timm has no arguments .*--format state_dict"),
    "a network of the user's": (["backbone", OWN.id], "is a network from your own file, not one of timm's"),
    "no such run": (["backbone", "no-p0-00000000"], "no-p0-00000000: .* are not in .*; finetuned"),
    "an epoch that was not kept": (["backbone", f"{RUN.id}@0"], r"epoch 0 was not kept; kept: \[1, 2\]"),
    "no epoch": (["backbone", f"{RUN.id}@last"], "must be the name or the id of a run, or RUN@EPOCH"),
    "no such space": (["labels", "--space", "no"], "--space no: .* has manual-digit, several, target"),
    "several labels": (["subset", "--images", "9", "--space", "several"], "--space several: its images have several"),
    "too many images": (["subset", "--images", "121", "--space", "target"], "--images 121: there are 120 training"),
    "damage": (["backbone", RUN.id], "runs.parquet: corrupt .*snakemake recomputes it"),
    "another version": (["history"], "schema_version 0, but this version reads"),
}
HARMS = {"damage": ("runs.parquet", lambda data: bytes(len(data)))}
HARMS |= {"another version": ("manifest.json", _of_another_version)}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(results, tmp_path, case):
    words, said = REFUSED[case]
    if case in HARMS:
        results = Path(shutil.copytree(results, tmp_path / "results", symlinks=True))
        file = results / "mine/train-120/pretrain/net/all" / HARMS[case][0]
        file.chmod(0o644)
        file.write_bytes(HARMS[case][1](file.read_bytes()))
    given = ["--results", results] if words[0] == "backbone" else [results]
    with pytest.raises(GranularityError, match=said) as error:
        export(*words, *given, "--to", tmp_path / "out/made")
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["backbone", "labels", "subset", "embeddings", "history"])
def test_nothing_is_replaced(results, tmp_path, command):
    given = [RUN.id, "--results", results] if command == "backbone" else [results]
    given += ["--images", 9, "--space", "target"] if command == "subset" else []
    with pytest.raises(GranularityError, match="exists already"):
        export(command, *given, "--to", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_would_give_other_outputs_is_not_exported(results, tmp_path, monkeypatch):
    create = timm.create_model

    def create_another(*args, **more):
        network = create(*args, **more)
        if args[0].startswith("local-dir:"):
            network.fc.bias.data += 0.01
        return network

    monkeypatch.setattr(timm, "create_model", create_another)
    with pytest.raises(GranularityError, match="other outputs on random images; nothing was exported"):
        export("backbone", RUN.id, "--to", tmp_path / "made", "--results", results)
    assert list(tmp_path.iterdir()) == []


def test_without_tensorboard_the_table_is_left(results, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(GranularityError, match="install the package tensorboard, or use --format csv"):
        export("history", results, "--to", tmp_path / "made", "--format", "tensorboard")
    assert list(tmp_path.iterdir()) == []
