"""Stage `embed`: the L2-normalised CLIP image features of every image."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.learning import clip
from granularity.machine.device import cpu_threads, torch_device
from granularity.store.chunks import write_rows
from granularity.store.task import Task

CHUNK = 1024  # images between two saves of the work so far, at most, rounded up to whole batches


def run(task: Task) -> None:
    """Write `embedding.npy`: float32 [N, D], rows of unit length in the order of the sample table.

    Every batch is padded to `options.batch_size` images, because a matrix product's last bits depend on its shape: so
    an image's embedding does not depend on which images are embedded beside it, or on where a killed job went on.
    Without an artifact of stage `encoder`, published weights are loaded, as the options say.

    Raises:
        GranularityError: the encoder cannot be loaded, an image cannot be read, or an embedding is not finite.
    """
    options = task.options
    place = torch_device(task.device, task.threads)
    inputs = {role: task.open(role) for role in ("samples", "encoder") if task.path(role) is not None}
    resolved = {"model": options.model, "pretrained": options.pretrained, "batch_size": options.batch_size}
    model, transform, revision = clip.load(options, inputs["encoder"].folder if "encoder" in inputs else None, place)
    # Paths do not say what lies there today.
    resolved |= {"architecture": clip.configuration(options.model), "weights_sha256": clip.weights_digest(model)}
    if revision is not None:
        resolved["revision"] = revision
    # On a CPU, sums over threads decide the last bits; and another device has others.
    resolved |= {"threads": cpu_threads(place), "device": place.type}
    with task.create(inputs, resolved, resumable=True) as out:
        images = Images(inputs["samples"])
        size = options.batch_size

        def embed(start: int, stop: int) -> np.ndarray:
            batch = torch.stack(list(pool.map(lambda index: transform(images.load(index)), range(start, stop))))
            padded = torch.zeros(size, *batch.shape[1:])
            padded[: len(batch)] = batch
            with torch.inference_mode():
                features = model.encode_image(padded.to(place), normalize=True)
            values = features[: len(batch)].float().cpu().numpy()
            if not np.isfinite(values).all():
                bad = images.table["sample_id"].iloc[start + int(np.flatnonzero(~np.isfinite(values).all(1))[0])]
                raise GranularityError(f"the embedding of {bad} is not finite; check the encoder's weights")
            return values

        with ThreadPoolExecutor(task.threads) as pool:
            whole = -(-CHUNK // size) * size
            array = write_rows(out, "embedding.npy", len(images), embed, size, whole, "embedding")
        out.summary["dimension"] = array.shape[1]
