"""Claims that are written down: those of papers and studies in words, and predictions, committed before their run.

A file of predictions lies beside a study's world. It holds `question`, `pilots` (what had been seen when it was
written), arms (in the format of the world) and `predictions`: a mapping from ids to `low` and/or `high`, `reason`, what
a failure would have `killed`, and `claim` and `quantity`, or `arm`, `minus` and `measure`. It is never edited after its
run; a different prediction is a different study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError

if TYPE_CHECKING:
    from granularity.claims.claim import Claim

TABLES = Path(__file__).parent / "words"
FIELDS = ("claim", "quantity", "low", "high", "judged", "kind")  # of a prediction, as of a claim


def statements_of(name: str) -> Path | None:
    """Return the file of a world's or study's claims in words (PAPER_TABLE uses the file of its PAPER), or None."""
    files = [TABLES / file for file in (f"{name}.txt", f"{name}.yaml", f"{name.partition('_')[0]}.yaml")]
    return next((file for file in files if file.is_file()), None)


def words(name: str) -> dict[str, dict[str, Any]]:
    """Read studies' claims in words, `claims/words/NAME.yaml`: fields of claims; a band's end may be "above 0"."""
    ends = {"above 0": math.ulp(0.0), "below 0": -math.ulp(0.0)}
    found = strict_yaml.read(TABLES / f"{name}.yaml")
    return {
        key: {field: value if isinstance(value, dict) else ends.get(value, value) for field, value in one.items()}
        for key, one in found.items()
    }


def claims(
    said: Mapping[str, Any],
    measured: Mapping[str, Sequence[float]],
    seeds: Mapping[str, int] | None = None,
    arms: Mapping[str, Sequence[str]] | None = None,
    **common: Any,
) -> list[Claim]:
    """Return the predictions of a file's contents as claims; `measured`: values of each by id (empty: not run).

    `seeds`: number of seeds behind the values of a prediction (default: one each); `arms`: those measured (default: its
    `arm` and `minus`); `common`: fields of all claims, if predictions do not say them.
    """
    from granularity.claims.claim import Claim  # imported here because planning needs no NumPy

    predictions = said["predictions"]
    if set(predictions) != set(measured):
        odd = ", ".join(sorted(set(predictions) ^ set(measured)))
        raise GranularityError(f"must be predicted or measured, not both: {odd}")
    found = []
    for id, one in predictions.items():
        fields = {"claim": id, "source": "preregistered", **common}
        fields |= {"quantity": one["measure"]} if "measure" in one else {}
        fields |= {key: one[key] for key in FIELDS if key in one}
        fields["reason"] = "; else: ".join(one[key] for key in ("reason", "killed") if key in one)
        of = (arms or {}).get(id, tuple(one[key] for key in ("arm", "minus") if key in one))
        found.append(Claim(id, values=measured[id], seeds=(seeds or {}).get(id), arms=of, **fields))
    return found
