"""Stage `embed`: the L2-normalised CLIP image features of every image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from granularity.base.errors import GranularityError
from granularity.base.section import Precision
from granularity.data import pictures
from granularity.learning import clip
from granularity.learning.precision import computing
from granularity.learning.preprocessing import Preprocessing
from granularity.machine import pipeline, processes
from granularity.machine.device import cpu_threads, torch_device
from granularity.machine.first_process import create, open, write_ranges
from granularity.store.chunks import Ranges
from granularity.store.task import Task

CHUNK = 1024  # images between two saves of the work so far, at most, rounded up to whole batches


@processes.together
def run(task: Task) -> None:
    """Write `embedding.npy`: float32 [N, D], rows of unit length in the order of the sample table.

    Every batch is as large as `options.batch_size`, because a matrix product's last bits depend on its shape: so an
    image's embedding does not depend on which images are embedded beside it, by which of several processes, or on where
    a killed job went on. Without an artifact of stage `encoder`, published weights are loaded, as the options say.

    Raises:
        GranularityError: the encoder cannot be loaded, an image cannot be read, or an embedding is not finite.
    """
    options = task.options
    place = torch_device(task.device, task.threads)
    processes.check_size(options.processes)
    inputs = {role: open(task, role) for role in ("samples", "pixels", "encoder") if task.path(role) is not None}
    if (options.images == "pixels") != ("pixels" in inputs):
        raise GranularityError(f"embed: images is '{options.images}', which {_wants(options.images)} --pixels")
    resolved = options.model_dump(include={"model", "pretrained", "batch_size", "precision", "images"})
    model, transform, revision = clip.load(options, inputs["encoder"].folder if "encoder" in inputs else None, place)
    # Paths do not say what lies there today.
    resolved |= {"architecture": clip.configuration(options.model), "weights_sha256": clip.weights_digest(model)}
    resolved["preprocessing"] = clip.resolved(model)
    if revision is not None:
        resolved["revision"] = revision
    # On a CPU, sums over threads decide the last bits; and another device has others.
    resolved |= {"threads": cpu_threads(place), "device": place.type}
    with create(task, inputs, resolved, resumable=True) as out:
        images = pictures.of(inputs["samples"], inputs.get("pixels"))
        size, total = options.batch_size, len(images)
        encode = encoder(model, transform, place, options.precision)
        threads = max(1, task.threads // processes.local_size())

        def embed(ranges: Ranges) -> Iterator[np.ndarray]:
            found = encode(images.load, ranges, size, threads)
            for (start, _), rows in zip(ranges, found, strict=True):
                if not np.isfinite(rows).all():
                    number = start + int(np.flatnonzero(~np.isfinite(rows).all(1))[0])
                    bad = inputs["samples"].table("samples.parquet", {"sample_id": "text"})["sample_id"][number]
                    raise GranularityError(f"the embedding of {bad} is not finite; check the encoder's weights")
                yield rows

        whole = -(-CHUNK // size) * size
        array = write_ranges(out, "embedding.npy", total, embed, size, whole, "embedding")
        if array is not None:
            out.summary["dimension"] = array.shape[1]


def encoder(
    model: torch.nn.Module, transform: Callable, place: torch.device, precision: Precision
) -> Callable[..., Iterator[np.ndarray]]:
    """A function that embeds the images of some ranges: float32 [n, D] of each, in their order.

    While the network works on a batch, the next ones are decoded, and on a GPU copied there.

    Args:
        precision: of products; what comes of them is normalised in float32.
    """
    prepared = Preprocessing(transform)
    on_gpu = place.type == "cuda"

    def encode(load: Callable, ranges: Ranges, size: int, threads: int) -> Iterator[np.ndarray]:
        def buffer() -> torch.Tensor:
            if on_gpu:
                return torch.zeros(size, *prepared.shape, 3, dtype=torch.uint8, pin_memory=True)
            return torch.zeros(size, 3, *prepared.shape)

        def fill(index: int, row: np.ndarray) -> None:
            if on_gpu:
                row[:] = prepared.pixels(load(index))
            else:
                prepared.numbers(load(index), row)

        copy = pipeline.copier(place)

        def features(count: int, batch: torch.Tensor) -> torch.Tensor:
            batch = copy(batch)
            with torch.inference_mode(), computing(precision, place):
                values = model.encode_image(prepared.numbers_of(batch) if on_gpu else batch)
                return torch.nn.functional.normalize(values.float(), dim=-1)[:count]

        batches = pipeline.filled(ranges, buffer, fill, threads)
        for found in pipeline.brought((features(*batch) for batch in batches), place):
            yield found.numpy()

    return encode


def _wants(images: str) -> str:
    return "wants" if images == "pixels" else "takes no"
