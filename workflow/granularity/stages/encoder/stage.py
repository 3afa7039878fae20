"""Stage `encoder`: a small CLIP model trained here on thousands of images, all held in memory (docs/encoder.md)."""

from collections.abc import Callable

import numpy as np
import open_clip
import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.base.progress import say, track
from granularity.base.seeds import seed_of
from granularity.data.images import Images
from granularity.learning.clip_options import Encoder
from granularity.learning.data.order import Batches
from granularity.learning.encoders import open_clip as clip
from granularity.learning.options import Recipe
from granularity.learning.training.loop import minimise
from granularity.machine.device import torch_device
from granularity.store.task import Task

LR, WEIGHT_DECAY = 2e-3, 0.1  # peak; warm-up over a tenth of the epochs, then half a cosine


def run(task: Task) -> None:
    """Write `open_clip_config.json` and `open_clip_model.safetensors` (an open_clip `local-dir:`).

    `history.parquet`: `epoch`, `lr`, `train_loss`, `val_loss`. Both losses are contrastive, averaged over whole
    batches. The latter is over the validation images, or, if they outnumber the training images, over as many of them,
    drawn once. Raises GranularityError: an unknown architecture, or a loss that is no longer finite.
    """
    params: Encoder = task.options
    place = torch_device(task.device)
    table = task.open("samples")
    options, ranks = params.captions, table.facts["ranks"]
    rank = ranks[-1] if options.granularity == "fine" else table.facts["target"]
    name, seed = clip.architecture(params.model), seed_of(task.seed, "encoder")
    resolved = {"seed": task.seed, "model": params.model, **options.model_dump()}
    resolved |= {"architecture": clip.configuration(params.model), "caption_rank": rank}
    with task.create({"samples": table}, resolved, resumable=True) as out:
        torch.manual_seed(seed_of(task.seed, "encoder", "init"))
        model, transform, tokenizer = clip.fresh(params.model, place)
        loss_of = open_clip.ClipLoss()
        frame, images = table.table("samples.parquet", ["split", rank]), Images(table)
        captions = [options.template.replace("{}", value) for value in frame[rank]]
        _check_length(sorted(set(captions)), tokenizer, params.model)

        def pairs(rows: np.ndarray, words: str) -> tuple[torch.Tensor, torch.Tensor]:
            pixels = torch.stack([transform(images.load(int(i))) for i in track(rows, len(rows), words)])
            return pixels.to(place), tokenizer([captions[i] for i in rows]).to(place)

        rows, held_out = (np.flatnonzero(frame["split"] == split) for split in ("train", "val"))
        if len(held_out) > len(rows):
            rng = np.random.default_rng(seed_of(task.seed, "encoder", "validation"))
            held_out = np.sort(rng.choice(held_out, len(rows), replace=False))
        train, val = pairs(rows, "decoding"), pairs(held_out, "decoding for validation")

        def loss_on(images, texts):
            return loss_of(model.encode_image(images, True), model.encode_text(texts, True), model.logit_scale.exp())

        def validate(epoch: int) -> dict[str, float]:
            model.eval()
            with torch.no_grad():
                # The loss depends on the batch size: use whole batches only, unless there is none.
                starts = range(0, max(1, len(val[0]) - options.batch_size + 1), options.batch_size)
                losses = [loss_on(*(part[s : s + options.batch_size] for part in val)) for s in starts]
                return {"val_loss": float(torch.stack(losses).mean())}

        def gradients_at(step: int) -> torch.Tensor:
            loss = loss_on(*(part[batches(step).to(place)] for part in train))
            loss.backward()
            return loss.detach()

        batches = Batches(len(train[0]), options.batch_size, seed)
        recipe = Recipe(lr=LR, epochs=options.epochs, warmup_epochs=options.epochs / 10)
        history = minimise(
            model,
            recipe,
            gradients_at,
            batches.per_epoch,
            seed,
            out.work / "encoder.safetensors",
            validate,
            torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, fused=True),
        )
        say(f"encoder: {options.epochs} epochs, contrastive loss {history[-1]['train_loss']:.3f}")
        config = {"model_cfg": open_clip.get_model_config(name)}
        out.json(clip.CONFIG, config | {"preprocess_cfg": open_clip.get_model_preprocess_cfg(model)})
        out.tensors(clip.WEIGHTS, {key: value.cpu() for key, value in model.state_dict().items()})
        out.table("history.parquet", pd.DataFrame(history))
        parameters = sum(value.numel() for value in model.parameters())
        out.summary |= {
            "caption_rank": rank,
            "captions": sorted(set(captions)),
            "parameters": parameters,
            **history[-1],
        }


def _check_length(captions: list[str], tokenizer: Callable[[list[str]], torch.Tensor], model: str) -> None:
    """Log how many captions are as long as the encoder reads. Raise GranularityError if two are alike that far."""
    tokens = tokenizer(captions)
    full = (tokens[:, -1] != 0).nonzero().flatten().tolist()
    seen: dict[tuple[int, ...], str] = {}
    for i in full:
        other = seen.setdefault(tuple(tokens[i].tolist()), captions[i])
        if other != captions[i]:
            problem = f"the encoder reads {tokens.shape[1]} tokens of a caption, and {other!r} and {captions[i]!r} are"
            how = f"shorten the names or the template, or raise context_length in {model}"
            raise GranularityError(f"encoder.captions: {problem} alike so far; {how}")
    if full:
        say(f"encoder: {len(full)} of {len(captions)} captions have {tokens.shape[1]} tokens or more and may be cut")
