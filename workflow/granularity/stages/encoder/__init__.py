"""Encoder: a small CLIP model trained here, if no published weights are named."""

from collections.abc import Iterator

from granularity.base.errors import GranularityError
from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.base.strict_json import read_json
from granularity.learning.clip_options import Encoder, files, outside


def _plan(plan: Planned) -> Iterator[Job]:
    encoder = plan.config.encoder
    if not encoder.trained_here:
        return
    side = _side(encoder)
    for condition in plan.conditions:
        if plan.embeds(condition):
            yield Job(
                "encoder",
                {"condition": condition.name},
                encoder.model_dump(mode="json", exclude={"batch_size", "precision", "images"}),
                {"samples": tuple(plan.jobs("samples", condition=condition.name))},
                files=tuple(files(encoder)),
                passes=encoder.captions.epochs,
                memory=lambda images: 2 * images * side**2 * 3 * 4,
            )


def _side(encoder: Encoder) -> int:
    try:
        return read_json(encoder.model)["vision_cfg"]["image_size"]
    except (GranularityError, LookupError, TypeError):
        return 224


STAGE = Stage(
    name="encoder",
    does="Train a small CLIP model on captions of the training split (if no published weights are named).",
    options=Encoder,
    place="{root}/{condition}/encoder",
    files=("open_clip_config.json", "open_clip_model.safetensors", "history.parquet"),
    plan=_plan,
    needs=Needs(1500, 1, 30, 2.0, gpu=True),
    message="Training the CLIP encoder of {wildcards.condition} on captions",
    inputs={"samples": "samples"},
    seeded=True,
    outside=outside,
)
