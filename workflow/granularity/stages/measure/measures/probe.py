"""What a frozen network's features say about the human ranks: a linear probe and a nearest-neighbour probe."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from granularity.base.section import Count, Rank, Section


class Probe(Section):
    l2: list[Annotated[float, Field(gt=0)]] = Field(
        [1e-4, 1e-3, 1e-2, 1e-1, 1.0],
        min_length=1,
        description="L2 penalties of the linear probe: mean cross-entropy + l2 / 2 * |W|^2 on standardised features. "
        "The best on a fifth of the training split is refitted on all of it.",
    )
    neighbours: Count = Field(10, description="Neighbours of the kNN probe (cosine similarity, weighted votes).")
    temperature: float = Field(0.07, ge=0.002, description="A neighbour's vote weighs exp(similarity / temperature).")
    ranks: list[Rank] | None = Field(
        None,
        min_length=1,
        description="Human ranks to probe (null: all). The linear probe holds some 40 bytes for every training image "
        "and class: thousands of classes of a large data set fit no machine.",
    )


Options = Probe
