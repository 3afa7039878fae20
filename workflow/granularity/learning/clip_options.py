"""Options of the CLIP encoder, which stage `encoder` trains where there are no published weights, and `embed` uses."""

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, PlainSerializer, model_validator

from granularity.base.section import Count, Precision, Section
from granularity.base.shipped import given, located
from granularity.data.listing import contents


class Captions(Section):
    """The training of the contrastive encoder of the default run (used with `pretrained: captions` only)."""

    granularity: Literal["fine", "coarse"] = Field(
        "fine",
        description="What a caption names: the finest human rank, or only the target rank. Whatever captions name "
        "leaks into the embedding, and so into every k-means label space: see docs/encoder.md.",
    )
    template: str = Field("a handwritten digit: {}", description="The caption; {} is replaced by the class name.")
    epochs: Count = Field(40, description="Passes over the training split.")
    batch_size: Count = Field(50, description="Image-caption pairs per step.")

    @property
    def identity(self) -> dict[str, Any]:
        """What is in ids of runs: rates too, as they were options when ids were given out."""
        return super().identity | {"lr": 2e-3, "weight_decay": 0.1}

    @model_validator(mode="after")
    def _has_placeholder(self):
        if self.template.count("{}") != 1:
            raise ValueError("template: needs exactly one {} for the class name")
        return self


class Encoder(Section):
    later: ClassVar[frozenset[str]] = frozenset({"precision", "images"})

    model: Annotated[str, AfterValidator(located), PlainSerializer(given)] = Field(
        "config/encoders/digits-tiny.json",
        description="An open_clip architecture (ViT-L-14), a hub model (hf-hub:ORG/NAME or hf-hub:ORG/NAME@REVISION), "
        "a folder (local-dir:PATH), or an open_clip model configuration file (*.json).",
    )
    pretrained: str | None = Field(
        "captions",
        description="Its weights: `captions` (train it here, on captions of the training split), an open_clip tag "
        "(openai, or openai@REVISION), or a checkpoint file. Null with hf-hub: and local-dir: models.",
    )
    captions: Captions = Captions()
    batch_size: int = Field(64, ge=1, le=65536, description="Images per step. Part of the result: see docs/encoder.md.")
    precision: Precision = Field(
        "float32", description="As in `pretrain`; vectors of bfloat16 agree with float32's to two or three digits."
    )
    images: Literal["originals", "pixels"] = Field(
        "originals",
        description="What is embedded: the files of the data set, or what stage `pixels` has made of them, so that "
        "every file is read and decoded once. Squares of `pixels.size`: other images, and another embedding.",
    )

    @model_validator(mode="after")
    def _weights_known(self):
        schema = self.model.startswith(("hf-hub:", "local-dir:"))
        if schema and self.pretrained is not None:
            raise ValueError(f"pretrained: '{self.model}' carries its own weights; set pretrained to null")
        if not schema and self.pretrained is None:
            raise ValueError(f"pretrained: '{self.model}' needs an open_clip tag, a checkpoint file, or 'captions'")
        return self

    @property
    def trained_here(self) -> bool:
        return self.pretrained == "captions"


def files(encoder: Encoder) -> list[str]:
    """The user's files that an encoder is read from; a change to one makes the embedding again."""
    if encoder.model.startswith("local-dir:"):
        folder = Path(encoder.model.removeprefix("local-dir:"))
        return sorted(str(file) for file in folder.glob("*") if file.is_file())
    return [name for name in (encoder.model, encoder.pretrained) if name is not None and os.path.isfile(name)]


def outside(encoder: Encoder) -> dict[str, str]:
    """Digests of :func:`files`, by their paths as the configuration has them."""
    return {given(name): digest for name in files(encoder) for digest in contents([name]).values()}
