"""Embed: the L2-normalised CLIP features of every image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from granularity.base.stage import Job, Needs, Stage
from granularity.data.listing import contents
from granularity.learning.clip_options import Encoder, files

PUBLISHED_MB, PUBLISHED_MS = 8000, 1000.0  # an encoder of the size of ViT-L/14: its memory; an image on a CPU


def _plan(plan: Any) -> Iterator[Job]:
    encoder = plan.config.encoder
    published = not encoder.trained_here
    for condition in plan.conditions:
        if plan.embeds(condition):
            where = {"condition": condition.name}
            yield Job(
                "embed",
                where,
                encoder.model_dump(mode="json", exclude={"captions"}),
                {"samples": tuple(plan.jobs("samples", **where)), "encoder": tuple(plan.jobs("encoder", **where))},
                files=tuple(files(encoder)),
                memory=lambda images: (PUBLISHED_MB - NEEDS.memory_mb) * 1e6 if published else 0,
                slower=PUBLISHED_MS / NEEDS.ms if published and plan.config.device != "cuda" else 1.0,
            )


NEEDS = Needs(2000, 1, 30, 5.0, gpu=True)
STAGE = Stage(
    name="embed",
    does="Embed every image with CLIP.",
    options=Encoder,
    place="{root}/{condition}/embed",
    files=("embedding.npy",),
    plan=_plan,
    needs=NEEDS,
    message="Embedding the images of {wildcards.condition}",
    inputs={"samples": "samples", "encoder": "encoder?"},
    shared=True,
    outside=lambda options: contents(files(options)),
)
