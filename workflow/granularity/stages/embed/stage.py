"""Stage `embedding`: the L2-normalised CLIP image features of every image."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from granularity.config.options import Device, Encoder
from granularity.data.images import Images
from granularity.learning import clip
from granularity.machine.device import cpu_threads, torch_device
from granularity.store import artifacts
from granularity.store.artifacts import Artifact
from granularity.store.chunks import write_rows


def run(
    params: Encoder,
    samples: Path,
    encoder: Path | None,
    output: Path,
    device: Device = "auto",
    threads: int = 1,
    chunk: int = 1024,
) -> None:
    """Write `embedding.npy`: float32 [N, D], rows of unit length in the order of the sample table.

    Every batch is padded to `params.batch_size` images, because a matrix product's last bits depend on its shape: so
    an image's embedding does not depend on which images are embedded beside it, or on where a killed job went on.

    Args:
        encoder: the artifact of an encoder trained here; None where the configuration names published weights.
        chunk: images between two saves of the work so far at most, rounded up to whole batches; does not change the
            result.

    Raises:
        GranularityError: the encoder cannot be loaded, an image cannot be read, or an embedding is not finite.
    """
    place = torch_device(device, threads)
    inputs = {"samples": Artifact.open(samples, "samples")}
    if encoder is not None:
        inputs["encoder"] = Artifact.open(encoder, "encoder")
    resolved = {"model": params.model, "pretrained": params.pretrained, "batch_size": params.batch_size}
    model, transform = clip.load(params, inputs["encoder"].path if encoder is not None else None, place)
    # Paths do not say what lies there today.
    resolved |= {"architecture": clip.configuration(params.model), "weights_sha256": clip.weights_digest(model)}
    # On a CPU, sums over threads decide the last bits; and another device has others.
    resolved |= {"threads": cpu_threads(place), "device": place.type}
    unhashed = inputs["samples"].params.get("checksums") == "size"
    if unhashed:  # then the samples tell images of the same names and sizes apart by where they lie alone
        resolved["root"] = inputs["samples"].params.get("root")
    with artifacts.create(
        output, "embedding", "granularity.stages.embed.stage", inputs, resolved, resumable=True, shared=not unhashed
    ) as out:
        if out.cached:
            return
        images = Images(inputs["samples"])
        size = params.batch_size

        def embed(start: int, stop: int) -> np.ndarray:
            batch = torch.stack(list(pool.map(lambda index: transform(images.load(index)), range(start, stop))))
            padded = torch.zeros(size, *batch.shape[1:])
            padded[: len(batch)] = batch
            with torch.inference_mode():
                features = model.encode_image(padded.to(place), normalize=True)
            values = features[: len(batch)].float().cpu().numpy()
            if not np.isfinite(values).all():
                bad = images.table["sample_id"].iloc[start + int(np.flatnonzero(~np.isfinite(values).all(1))[0])]
                raise artifacts.GranularityError(f"the embedding of {bad} is not finite; check the encoder's weights")
            return values

        with ThreadPoolExecutor(threads) as pool:
            whole = -(-chunk // size) * size
            array = write_rows(out, "embedding.npy", len(images), embed, size, whole, "embedding")
        out.summary["dimension"] = array.shape[1]
