"""Stage `embed`: the L2-normalised features of every image, from an encoder or from a file of another program."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.shipped import given
from granularity.data.images import Images
from granularity.data.shards import pictures
from granularity.learning.data.feed import Feed, in_order, workers
from granularity.learning.networks.preprocessing import Preprocessing
from granularity.learning.training.precision import computing
from granularity.machine.device import torch_device
from granularity.stages.embed import elsewhere
from granularity.store.artifact import Artifact
from granularity.store.resume import write_rows
from granularity.store.task import Task

Load = Callable[[int], Image.Image]
CHUNK = 1024  # most images between two checkpoints, in whole batches


def run(task: Task) -> None:
    """Write `embedding.npy`: float32 [N, D], rows of unit length in the order of the sample table.

    Every batch is padded to `options.batch_size`, because a matrix product's last bits depend on its shape. So an
    image's embedding does not depend on the other images of its batch, or on where a killed job resumed. Without an
    artifact of stage `encoder`, the published weights named in the options are loaded. Raises GranularityError: the
    encoder cannot be loaded, an image cannot be read, an embedding is not finite, or a file of embeddings lacks one.
    """
    options = task.options
    if options.embeddings is not None:
        samples = task.open("samples")
        ids = samples.table("samples.parquet", {"sample_id": "text"})["sample_id"]
        vectors = elsewhere.rows(options.embeddings, ids)
        with task.create({"samples": samples}, {"embeddings": given(options.embeddings)}) as out:
            out.array("embedding.npy", vectors)
            out.summary["dimension"] = vectors.shape[1]
        return
    place = torch_device(task.device)
    inputs = {role: task.open(role) for role in ("samples", "pixels", "encoder") if task.path(role) is not None}
    if (options.images == "pixels") != ("pixels" in inputs):
        wants = "needs" if options.images == "pixels" else "takes no"
        raise GranularityError(f"embed: images is '{options.images}', which {wants} --pixels")
    resolved = options.model_dump(include={"model", "pretrained", "batch_size", "precision", "images"})
    trained = inputs["encoder"].folder if "encoder" in inputs else None
    encoder = extensions.find("encoder", options.kind).load(options, trained, place)
    resolved |= encoder.about
    resolved["device"] = place.type
    with task.create(inputs, resolved, resumable=True) as out:
        load, total = _images(inputs["samples"], inputs.get("pixels"))
        size, prepared = options.batch_size, Preprocessing(encoder.transform)
        with torch.inference_mode():
            width = encoder.encode(torch.zeros(1, 3, *prepared.shape, device=place)).shape[1]

        def view(index: int, step: int = 0, turn: int = 0) -> np.ndarray:
            return prepared.pixels(load(index))

        def rows_of(pixels: torch.Tensor) -> torch.Tensor:
            images = prepared.numbers(pixels)
            batch = images.new_zeros(size, *images.shape[1:])
            batch[: len(images)] = images
            with torch.inference_mode(), computing(options.precision, place):
                values = encoder.encode(batch).float()  # normalised in float32
                return torch.nn.functional.normalize(values, dim=-1)[: len(images)].cpu()

        def embedded(rows: np.ndarray) -> torch.Tensor:
            return rows_of(torch.from_numpy(np.stack([view(int(row)) for row in rows])))

        def rows_from(first: int) -> Iterator[np.ndarray]:
            batches = [np.arange(start, min(start + size, total)) for start in range(first, total, size)]
            if place.type == "cpu":  # each process reads and embeds its own batches
                embeddings = in_order(embedded, batches, workers(task.threads, len(batches)))
            else:  # other processes decode the next batches while the network works
                feed = Feed(view, batches.__getitem__, len(batches), (*prepared.shape, 3), place)
                embeddings = (rows_of(feed(step)) for step in range(len(batches)))
            for batch, rows in zip(batches, map(torch.Tensor.numpy, embeddings), strict=True):
                if not np.isfinite(rows).all():
                    number = batch[np.flatnonzero(~np.isfinite(rows).all(1))[0]]
                    bad = inputs["samples"].table("samples.parquet", {"sample_id": "text"})["sample_id"][number]
                    raise GranularityError(f"the embedding of {bad} is not finite; check the encoder's weights")
                yield rows

        write_rows(out, "embedding.npy", (total, width), rows_from, size, CHUNK, "embedding")
        out.summary["dimension"] = width


def _images(samples: Artifact, pixels: Artifact | None) -> tuple[Load, int]:
    """Return a function that loads an image by its row, from the originals or from pixels; and the number of images."""
    images = Images(samples)
    if pixels is None:
        return images.load, len(images)
    stored = pictures(pixels)
    if len(stored) != len(images):
        raise GranularityError(f"{pixels.path}: {len(stored)} images, but the sample table has {len(images)}")

    def load(index: int) -> Image.Image:
        values = stored[index]
        return Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values).convert("RGB")

    return load, len(images)
