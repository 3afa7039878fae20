"""The encoder whose embedding is clustered: how it was trained, and which human labels it has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from granularity.stages.report.conditions import ConditionResults


@dataclass(frozen=True)
class Encoder:
    """Attributes: `captions`, how it was trained here (None: elsewhere); `rank`, what they name; `losses` by epoch."""

    model: str
    pretrained: str | None
    captions: dict[str, Any] | None
    rank: str
    losses: dict[str, pd.DataFrame]

    @property
    def leak(self) -> str:
        """The human labels that the encoder has seen, and so what a clustered label space may owe to them."""
        if self.captions is None:
            return (
                f"The encoder ({self.model}, weights: {self.pretrained or 'its own'}) was trained elsewhere. What its "
                "training data named may be in the clusters: a clustered label space is not free of human labels."
            )
        what = "every k-means label space is made with them, and its results are no finding about unlabelled images"
        if self.captions["granularity"] != "fine":
            what = "the k-means label spaces know the target classes, but were told nothing finer"
        return (
            f"The encoder's captions name the rank “{self.rank}” of each training image. These labels leak into the "
            f"embedding: {what}."
        )


def found(conditions: list[ConditionResults]) -> Encoder | None:
    """The encoder of a report; None where nothing was embedded."""
    embedded = [(condition, one) for condition in conditions for one in condition.of("embed")]
    if not embedded:
        return None
    condition, artifact = embedded[0]
    options = artifact.manifest["options"]  # without captions: those are the encoder's
    here = condition.of("encoder")
    captions = here[0].manifest["options"]["captions"] if here else None
    fine = captions is not None and captions["granularity"] == "fine"
    losses = {one.label: each.table("history.parquet") for one in conditions for each in one.of("encoder")}
    rank = condition.ranks[-1] if fine else condition.target
    return Encoder(options["model"], options["pretrained"], captions, rank, losses)
