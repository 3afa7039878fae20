"""Stage `encoder`: a small CLIP model trained here, for want of published weights.

Contrastive training (open_clip's ClipLoss) on image-caption pairs of the training split. A caption names the class of
its image at the fine or the coarse rank, so the embedding knows what the captions say: with fine captions, k-means
label spaces are partly the human fine labels in disguise. That is why the granularity of captions is an option.
All images are held in memory: this is for data sets of thousands of images, not millions.
"""

from __future__ import annotations

import numpy as np
import open_clip
import pandas as pd
import torch

from granularity.base.progress import say, track
from granularity.base.seeds import seed_of
from granularity.data.images import Images
from granularity.learning import clip
from granularity.learning.clip_options import Encoder
from granularity.learning.loop import Batches, minimise
from granularity.machine.device import cpu_threads, torch_device
from granularity.store.task import Task


def run(task: Task) -> None:
    """Write `open_clip_config.json` and `open_clip_model.safetensors` (an open_clip `local-dir:`).

    `history.parquet`: `epoch`, `lr`, `train_loss`, `val_loss`. Both losses are contrastive, means over whole batches;
    the latter is over the validation images, or, where they are more than the training images, over as many of them,
    drawn once.

    Raises:
        GranularityError: an unknown architecture, or a loss that is no longer finite.
    """
    params: Encoder = task.options
    place = torch_device(task.device, task.threads)
    table = task.open("samples")
    options = params.captions
    name = clip.architecture(params.model)
    resolved = {"seed": task.seed, "model": params.model, **options.model_dump(), "threads": cpu_threads(place)}
    resolved["architecture"] = clip.configuration(params.model)
    ranks = table.facts["ranks"]
    rank = ranks[-1] if options.granularity == "fine" else table.facts["target"]
    resolved["caption_rank"] = rank
    with task.create({"samples": table}, resolved, resumable=True) as out:
        torch.manual_seed(seed_of(task.seed, "encoder", "init"))
        model, transform, tokenizer = clip.fresh(params.model, place)
        loss_of = open_clip.ClipLoss()

        frame = table.table("samples.parquet", ["split", rank])
        images = Images(table)
        captions = [options.template.replace("{}", value) for value in frame[rank]]

        def pairs(rows: np.ndarray, what: str) -> tuple[torch.Tensor, torch.Tensor]:
            pixels = torch.stack([transform(images.load(int(i))) for i in track(rows, len(rows), what)])
            return pixels.to(place), tokenizer([captions[i] for i in rows]).to(place)

        rows = np.flatnonzero(frame["split"] == "train")
        train = pairs(rows, "decoding")
        val = pairs(_validation(frame, len(rows), task.seed), "decoding for validation")

        def loss_on(images, texts):
            return loss_of(model.encode_image(images, True), model.encode_text(texts, True), model.logit_scale.exp())

        def validate(epoch: int) -> dict[str, float]:
            model.eval()
            with torch.no_grad():
                # The loss depends on the batch size: whole batches only, unless there is not one.
                starts = range(0, max(1, len(val[0]) - options.batch_size + 1), options.batch_size)
                losses = [loss_on(*(part[s : s + options.batch_size] for part in val)) for s in starts]
                return {"val_loss": float(torch.stack(losses).mean())}

        def gradients_at(step: int) -> torch.Tensor:
            loss = loss_on(*(part[batches(step).to(place)] for part in train))
            loss.backward()
            return loss.detach()

        batches = Batches(len(train[0]), options.batch_size, seed_of(task.seed, "encoder"))
        history = minimise(
            model,
            torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=options.weight_decay, fused=True),
            gradients_at,
            epochs=options.epochs,
            steps_per_epoch=batches.per_epoch,
            warmup_epochs=options.epochs / 10,
            seed=seed_of(task.seed, "encoder"),
            checkpoint=out.work / "encoder.safetensors",
            after_epoch=validate,
        )
        say(f"encoder: {options.epochs} epochs, contrastive loss {history[-1]['train_loss']:.3f}")
        preprocess = open_clip.get_model_preprocess_cfg(model)
        config = {"model_cfg": open_clip.get_model_config(name), "preprocess_cfg": preprocess}
        out.json(clip.CONFIG, config)
        out.tensors(clip.WEIGHTS, {key: value.cpu() for key, value in model.state_dict().items()})
        out.table("history.parquet", pd.DataFrame(history))
        out.summary |= {
            "caption_rank": rank,
            "captions": sorted(set(captions)),
            "parameters": sum(value.numel() for value in model.parameters()),
            **history[-1],
        }


def _validation(frame: pd.DataFrame, most: int, seed: int) -> np.ndarray:
    """Rows of the validation images that the loss is measured on, ascending."""
    rows = np.flatnonzero(frame["split"] == "val")
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed_of(seed, "encoder", "validation")).choice(rows, most, replace=False))
