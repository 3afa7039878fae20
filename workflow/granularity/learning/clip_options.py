"""Options of the encoder, which stage `encoder` trains if there are no published weights, and stage `embed` uses."""

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, PlainSerializer, ValidationInfo, field_validator, model_validator

from granularity.base import extensions
from granularity.base.section import Count, Precision, Section
from granularity.base.shipped import given, located
from granularity.data.listing import contents

OPEN_CLIP = "open_clip"  # loads models whose names have no known prefix
Shipped = Annotated[str, AfterValidator(located), PlainSerializer(given)]


class Captions(Section):
    """Training of the contrastive encoder of the default run (used only with `pretrained: captions`)."""

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
        """The values that enter ids of runs; they include rates, which were options when ids were first assigned."""
        return super().identity | {"lr": 2e-3, "weight_decay": 0.1}

    @model_validator(mode="after")
    def _has_placeholder(self):
        if self.template.count("{}") != 1:
            raise ValueError("template: needs exactly one {} for the class name")
        return self


class Encoder(Section):
    later: ClassVar[frozenset[str]] = frozenset({"precision", "images", "embeddings"})

    model: Shipped = Field(
        "config/encoders/digits-tiny.json",
        description="An open_clip architecture (ViT-L-14), a hub model (hf-hub:ORG/NAME or hf-hub:ORG/NAME@REVISION), "
        "a folder (local-dir:PATH), or an open_clip model configuration file (*.json). Or a network of timm "
        "(timm:NAME, timm:hf-hub:ORG/NAME, timm:local-dir:PATH), or NAME:MODEL for a file of your own.",
    )
    pretrained: str | None = Field(
        "captions",
        description="Its weights: `captions` (train it here, on captions of the training split), an open_clip tag "
        "(openai, or openai@REVISION), or a checkpoint file. Null with hf-hub: and local-dir: models. For timm: null "
        "(its own weights), a safetensors file, or `random`.",
    )
    embeddings: Shipped | None = Field(
        None,
        description="Replaces all other keys: a file with a vector per image, from another program. Parquet with "
        "`sample_id` and a column of vectors or several columns of numbers; or FILE.npy with FILE.txt or FILE.parquet "
        "beside it.",
    )
    captions: Captions = Captions()
    batch_size: int = Field(64, ge=1, le=65536, description="Images per step. Part of the result: see docs/encoder.md.")
    precision: Precision = Field(
        "float32", description="As in `pretrain`; bfloat16 vectors agree with float32 vectors to two or three digits."
    )
    images: Literal["originals", "pixels"] = Field(
        "originals",
        description="What is embedded: the files of the data set, or the output of stage `pixels`, so that every file "
        "is read and decoded once. That output has squares of `pixels.size`, so the embedding differs.",
    )

    @field_validator("pretrained")
    @classmethod
    def _of_open_clip(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Turn `captions`, the default, into null except for open_clip, because captions train only its models."""
        return None if value == "captions" and kind_of(info.data.get("model", "")) != OPEN_CLIP else value

    @model_validator(mode="after")
    def _weights_known(self):
        if self.kind != OPEN_CLIP:
            return self
        schema = self.model.startswith(("hf-hub:", "local-dir:"))
        if schema and self.pretrained is not None:
            raise ValueError(f"pretrained: '{self.model}' carries its own weights; set pretrained to null")
        if not schema and self.pretrained is None:
            raise ValueError(f"pretrained: '{self.model}' needs an open_clip tag, a checkpoint file, or 'captions'")
        return self

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity if self.embeddings is None else {"embeddings": given(self.embeddings)}

    @property
    def kind(self) -> str:
        """The name of its loader in the room `encoder`."""
        return kind_of(self.model)

    @property
    def name(self) -> str:
        """The model's name as its loader knows it."""
        return self.model.removeprefix(f"{self.kind}:")

    @property
    def trained_here(self) -> bool:
        return self.pretrained == "captions" and self.embeddings is None


def kind_of(model: str) -> str:
    prefix, colon, _ = model.partition(":")
    return prefix if colon and prefix in extensions.names("encoder") else OPEN_CLIP


def files(encoder: Encoder) -> list[str]:
    """Return the user's files that an encoder is read from; a change to one recomputes the embedding."""
    if encoder.embeddings is not None:
        return files_of(encoder.embeddings)
    names = [encoder.name, *([] if encoder.pretrained is None else [encoder.pretrained])]
    if encoder.name.startswith("local-dir:"):
        folder = Path(encoder.name.removeprefix("local-dir:"))
        names = [*sorted(map(str, folder.glob("*"))), *names[1:]]
    return [name for name in names if os.path.isfile(name)]


def files_of(embeddings: str) -> list[str]:
    """Return a file of embeddings and, for an array, the file beside it that holds its ids."""
    beside = [str(Path(embeddings).with_suffix(ending)) for ending in (".txt", ".parquet")]
    return [embeddings, *(name for name in beside if embeddings.endswith(".npy") and os.path.isfile(name))][:2]


def outside(encoder: Encoder) -> dict[str, str]:
    """Return the digests of :func:`files`, by their paths in the configuration."""
    return {given(name): digest for name in files(encoder) for digest in contents([name]).values()}
