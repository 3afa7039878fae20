"""Embed: the L2-normalised CLIP features of every image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from granularity.base.stage import Job, Needs, Stage
from granularity.data.listing import contents
from granularity.learning.clip_options import files
from granularity.stages.embed.options import Embed

# An encoder of the size of ViT-L/14: its memory (measured with batches of 64: 3,800 MB halfway through the first, and
# 1,600 with ViT-B/32); milliseconds per image on a CPU; bytes of an image in the three batches that are held.
PUBLISHED_MB, PUBLISHED_MS, PUBLISHED_BYTES = 8000, 1000.0, 3 * 224**2 * 3 * 4


def _plan(plan: Any) -> Iterator[Job]:
    encoder, processes = plan.config.encoder, plan.config.jobs.embed_processes
    published = not encoder.trained_here
    for condition in plan.conditions:
        if plan.embeds(condition):
            where = {"condition": condition.name}
            roles = ("samples", "encoder", *(("pixels",) if encoder.images == "pixels" else ()))
            yield Job(
                "embed",
                where,
                encoder.model_dump(mode="json", exclude={"captions"}) | {"processes": processes},
                {role: tuple(plan.jobs(role, **where)) for role in roles},
                files=tuple(files(encoder)),
                memory=lambda images: _published(encoder.batch_size) if published else 0,
                processes=processes,
                slower=PUBLISHED_MS / NEEDS.ms if published and plan.config.device != "cuda" else 1.0,
            )


def _published(batch_size: int) -> float:
    """Bytes beyond what a job of a tiny encoder takes."""
    return (PUBLISHED_MB - NEEDS.memory_mb) * 1e6 + batch_size * PUBLISHED_BYTES


NEEDS = Needs(2000, 1, 30, 5.0, gpu=True)
STAGE = Stage(
    name="embed",
    does="Embed every image with CLIP.",
    options=Embed,
    place="{root}/{condition}/embed",
    files=("embedding.npy",),
    plan=_plan,
    needs=NEEDS,
    message="Embedding the images of {wildcards.condition}",
    inputs={"samples": "samples", "encoder": "encoder?", "pixels": "pixels?"},
    asked=lambda options: options.model_dump(mode="json", exclude={"processes"}),
    shared=True,
    outside=lambda options: contents(files(options)),
)
