"""Embed: the L2-normalised features of every image."""

import os
from collections.abc import Iterator
from functools import partial

from granularity.base.shipped import given
from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.learning.clip_options import Encoder, files, outside
from granularity.learning.cost import READERS

# For an encoder like ViT-L/14: memory (measured with batches of 64: 3,800 MB halfway through the first, 1,600 with
# ViT-B/32); milliseconds per image on a CPU; bytes of an image in the three batches that are held.
PUBLISHED_MB, PUBLISHED_MS, PUBLISHED_BYTES = 8000, 1000.0, 3 * 224**2 * 3 * 4


def _plan(plan: Planned) -> Iterator[Job]:
    encoder = plan.config.encoder
    published = not encoder.trained_here
    beyond = (PUBLISHED_MB - NEEDS.memory_mb) * 1e6 + encoder.batch_size * PUBLISHED_BYTES  # beyond a tiny encoder's
    for condition in plan.conditions:
        if plan.embeds(condition):
            where = {"condition": condition.name}
            roles = ("samples", "encoder", *(("pixels",) if encoder.images == "pixels" else ()))
            if encoder.embeddings is not None:
                options, read = {"embeddings": given(encoder.embeddings)}, files(encoder)
                inputs = {"samples": tuple(plan.jobs("samples", **where))}
                yield Job("embed", where, options, inputs, files=tuple(read), memory=partial(_bytes, read), passes=0)
                continue
            yield Job(
                "embed",
                where,
                encoder.model_dump(mode="json", exclude={"captions"}),
                {role: tuple(plan.jobs(role, **where)) for role in roles},
                files=tuple(files(encoder)),
                memory=lambda images: beyond if published else 0,
                readers=READERS,
                slower=PUBLISHED_MS / NEEDS.ms if published and plan.config.device != "cuda" else 1.0,
            )


def _bytes(read: list[str], images: int) -> float:
    """Return the memory that a file of embeddings takes, in bytes: its numbers, and twice as float64."""
    return 5.0 * sum(os.path.getsize(file) for file in read if os.path.isfile(file))


NEEDS = Needs(2000, 1, 30, 5.0, threads=16, thread_mb=1000, gpu=True)
STAGE = Stage(
    name="embed",
    does="Embed every image: with CLIP, another network, or from a file of embeddings.",
    options=Encoder,
    place="{root}/{condition}/embed",
    files=("embedding.npy",),
    plan=_plan,
    needs=NEEDS,
    priority=2,
    message="Embedding the images of {wildcards.condition}",
    inputs={"samples": "samples", "encoder": "encoder?", "pixels": "pixels?"},
    chosen=lambda options: [("encoder", options.kind)] if options.embeddings is None else [],
    outside=outside,
)
