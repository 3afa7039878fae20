"""A trained network as a folder that timm loads, from disk or the Hugging Face hub; or as bare weights."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import timm
import torch
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

from granularity.base.errors import GranularityError, printable
from granularity.learning.options import Model
from granularity.look.api import find_network
from granularity.look.exports import whole
from granularity.store.artifact import Artifact

WEIGHTS = "model.safetensors"
OF_OTHERS = ("tag", "license", "origin_url", "paper_ids", "paper_name", "notes", "description")  # of timm's own weights
OUTPUTS = {  # what the outputs are, by objective, where they are not one softmax over classes
    "levels": "a softmax per level of labels, in this order; the level with the largest weight answers",
    "distil": "an embedding",
    "mask": "pixels of patches",
}
MARKUP, ESCAPED = r"([\\`*_\[\]<>|&#!])", r"\\\1"  # of Markdown
CODE = {
    "timm": """\
import timm
network = timm.create_model("local-dir:.", pretrained=True)  # this folder; without pretrained: random weights
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
""",
    "state_dict": """\
import timm, torch
from safetensors.torch import load_file
network = timm.create_model({name!r}, **{args!r})
{stem}network.load_state_dict(load_file("model.safetensors"))
""",
}
STEM = """\
network.conv1 = torch.nn.Conv2d({channels}, network.bn1.num_features, 3, padding=1, bias=False)
network.maxpool = torch.nn.Identity()
"""
CARD = """\
---
library_name: timm
license: unknown
tags: [{tag}, timm]
---
# {title}

| | |
|---|---|
{rows}

```python
{code}network.eval()
```
**Licence.** None is given here: whoever publishes the weights chooses one, as far as the licence of the images allows.
"""


def export(run: str, results: Path, to: Path, form: str = "timm") -> None:
    """Write a network into a new folder, after loading it again and comparing outputs (docs/exports.md). Raises
    GranularityError: there is no such network; it is not one of timm's; the written network gives other outputs; or
    `to` exists.
    """
    networks, row, epoch = find_network(run, results)
    about, (source, file) = networks.about(row, epoch), networks.at(row, epoch)
    model, channels = Model.model_validate(about["model"]), about["channels"]
    module, small = f"{model.name}.py", model.stem == "small"
    if module in [Path(name).name for name in source.manifest["code"]["modules"]] or not timm.is_model(model.name):
        problem = f"model.name = {model.name} is a network from your own file, not one of timm's"
        raise GranularityError(f"{run}: {problem}; copy that file and {source.path / file}")
    if form == "timm" and small:
        problem = "model.stem = small: timm has no arguments for a first convolution of stride 1 without max-pooling"
        raise GranularityError(
            f"{run}: {problem}; --format state_dict writes weights and the lines of code that load them"
        )
    network = networks.load(row, epoch=epoch)
    side = min(about["crop"] or about["side"], about["side"])
    data = {"input_size": (channels, side, side), "mean": tuple(about["mean"]), "std": tuple(about["std"])}
    share = math.nextafter(side / about["side"], side == about["side"])  # timm divides by this and rounds down
    data |= {"interpolation": "bicubic", "crop_pct": share, "crop_mode": "center"}
    classes = source.table("classes.parquet")
    classes = classes[classes["space"] == row["space"]] if "space" in classes else classes
    labels = {"label_names": classes.sort_values("label")["name"].tolist()} if len(classes) else {}
    args = {"in_chans": channels, "num_classes": about["outputs"], **(model.args or {})}
    written = timm.create_model(model.name, **args)
    if small:  # as STEM says
        written.conv1 = torch.nn.Conv2d(channels, written.bn1.num_features, 3, padding=1, bias=False)
        written.maxpool = torch.nn.Identity()
    with whole(to) as folder:
        folder.mkdir()
        if form == "timm":
            written.load_state_dict(network.state_dict())
            written.pretrained_cfg = {k: v for k, v in written.pretrained_cfg.items() if k not in OF_OTHERS}
            save_for_hf(written, folder, labels, safe_serialization=True, data_config=data)
            written = timm.create_model(f"local-dir:{folder}", pretrained=True)
        else:
            save_file({name: value.contiguous() for name, value in network.state_dict().items()}, folder / WEIGHTS)
            written.load_state_dict(load_file(folder / WEIGHTS))
            (folder / "labels.json").write_text(json.dumps(labels, indent=2), encoding="utf-8")
        images = torch.randn(8, channels, side, side, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            if not torch.allclose(network(images), written.eval()(images), rtol=1e-4, atol=1e-5):
                problem = (
                    f"timm {timm.__version__} builds a different network from it, with other outputs on random images"
                )
                raise GranularityError(f"{run}: {problem}; nothing was exported")
        code = CODE[form].format(name=model.name, args=args, stem=STEM.format(channels=channels) if small else "")
        (folder / "README.md").write_text(_card(source, file, row, about, data, code), encoding="utf-8")


def _card(source: Artifact, file: str, row: pd.Series, about: dict[str, Any], data: dict[str, Any], code: str) -> str:
    """The model card."""
    lineage, how = source.lineage(), "finetuned" if "parent" in row else "pretrained"
    samples, recipe, space = lineage.get("samples"), source.params["recipe"], lineage.get(row["space"])
    errors = source.table("runs.parquet", ["run_id", "val_error"]).set_index("run_id")["val_error"]
    counts = {} if samples is None else samples.summary["images"]
    error = "none" if pd.isna(errors[row["run_id"]]) else f"{errors[row['run_id']]:.2f} %"
    classes = "no classes" if pd.isna(row["granularity"]) else f"{row['granularity']} classes"
    several = space is not None and space.json("properties.json").get("multi_label")
    softmax = "a sigmoid per class" if recipe["loss"] == "sigmoid" or several else "a softmax"
    images, objective = {f"images {how} on": _images(samples)}, {}
    if how == "pretrained":
        objective = source.params["objective"]
        outputs = f"its own, {OUTPUTS.get(objective['name'], softmax)}"
    else:
        outputs = f"the target's ({'unknown' if samples is None else samples.facts['target']}), a softmax"
        before = next((one.lineage().get("samples") for one in lineage.values() if one.kind == "pretrain"), None)
        images = {"pretraining run": row["parent"], **images, "images pretrained on": _images(before)}
    square = "pixels" not in lineage or lineage["pixels"].params["format"] == "raw"
    fitted = "centre square cut out, resized to {} px (Pillow's ImageOps.fit, bicubic; timm's transform resizes first)"
    fitted = (fitted if square else "short side resized to {} px (bicubic)").format(about["side"])
    rows = {
        "run": f"{Path(row['file']).stem}, epoch {about['epoch']}",
        "base seed": str(source.manifest["seed"]),
        **images,
        "label space": f"{row['space']} ({row['family']}), {classes}; outputs: {outputs}",
        **({"objective": json.dumps(objective)} if objective else {}),
        "error": f"{error}, on validation images (n = {counts.get('val', 'unknown')}), at the end of the training; "
        "for pretrained networks, the parent of the predicted class is compared with the target",
        "images": f"{fitted}, centre of {data['input_size'][-1]} px cut out, "
        f"{'grey' if about['channels'] == 1 else 'RGB'}, scaled to 0..1, mean {data['mean']}, std {data['std']}",
        "result": f"{source.kind} {source.digest}; SHA-256 of its file {source.manifest['files'][file]['sha256']}",
        "recipe": json.dumps(recipe),
    }
    if classes == "no classes" and how == "pretrained":
        del rows["error"]
    table = "\n".join(f"| {name} | {re.sub(MARKUP, ESCAPED, printable(text))} |" for name, text in rows.items())
    tag = "image-classification" if "error" in rows else "image-feature-extraction"
    return CARD.format(title=f"{about['model']['name']}, {how}", tag=tag, rows=table, code=code)


def _images(samples: Artifact | None) -> str:
    """Name a data set and its numbers of images."""
    if samples is None:
        return "unknown"
    counts = ", ".join(f"{count} {split}" for split, count in samples.summary["images"].items())
    return f"{samples.params.get('hub') or samples.params['source']} ({counts} images)"
