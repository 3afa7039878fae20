"""Near duplicates as pictures: some pairs for each finding, from the nearest to those near the threshold."""

import base64
import io
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from granularity.data.shards import pictures
from granularity.store.artifact import Artifact

SHOWN = 30  # pairs of a finding
TILE = 96  # pixels a side, at most


def pairs(made: Artifact, samples: Artifact, pixels: Artifact) -> dict[str, dict[str, Any]]:
    """Return for each finding its numbers of `images` and `pairs`, and the `shown` pairs with pictures as data URIs."""
    rows = pd.Index(samples.table("samples.parquet", ["sample_id"])["sample_id"].astype("str"))
    table, images, findings = made.table("findings.parquet"), pictures(pixels), {}

    def picture(sample_id: str) -> str:
        tile, stream = Image.fromarray(images[rows.get_loc(sample_id)].squeeze()), io.BytesIO()
        tile.thumbnail((TILE, TILE))
        tile.save(stream, "PNG")
        return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()

    for finding, part in table.groupby("finding", observed=True):
        part = part.sort_values(["cosine", "bits"], ascending=[False, True], kind="stable")
        records = part.iloc[np.unique(np.linspace(0, len(part) - 1, SHOWN).round().astype(int))].to_dict("records")
        for row in records:
            row["pictures"] = [picture(row[key]) for key in ("sample_id", "twin_sample_id")]
        findings[finding] = {"images": len(part), "pairs": int(part["twins"].sum()), "shown": records}
    return findings
