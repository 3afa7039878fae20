"""A tiny encoder, trained for an epoch."""

from pathlib import Path

from granularity.learning.clip_options import Encoder
from granularity.store.artifact import Artifact
from support import tasks

TINY = str(Path(__file__).parents[2] / "config" / "encoders" / "digits-tiny.json")


def options(model: str = TINY, pretrained: str | None = "captions", **captions) -> Encoder:
    captions = {"epochs": 1, "batch_size": 10, **captions}
    return Encoder(model=model, pretrained=pretrained, captions=captions, batch_size=8)


def train(params: Encoder, table: Path, output: Path, seed: int = 0) -> Artifact:
    return tasks.run("encoder", output, params, seed, samples=table)
