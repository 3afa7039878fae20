"""Preregistrations: predictions of a finding, in `claims/predictions/NAME.yaml`, committed before its run.

A file holds `question`, `pilots` (what had been seen when it was written), `arms` (in the format of its world) and
`predictions`: a mapping from ids to `claim`, `quantity`, `low` and/or `high`, `reason`, and what a failure would have
`killed`. It is never edited after its run; a different prediction is a different finding.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError

if TYPE_CHECKING:
    from granularity.claims.claim import Claim

FOLDER = Path(__file__).parent / "predictions"
TABLES = Path(__file__).parent / "words"


def file_of(name: str) -> Path | None:
    """Return the file of a finding, or None if there is none."""
    file = FOLDER / f"{name}.yaml"
    return file if file.is_file() else None


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


def digest(file: Path | None) -> str | None:
    """Return the first 16 hexadecimal digits of a file's SHA-256, or None if there is no file."""
    return None if file is None or not file.is_file() else hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def digest_of(name: str) -> str | None:
    """Return the digest of a finding's file, or None if there is none."""
    return digest(file_of(name))


def read(name: str) -> dict[str, Any]:
    """Return the contents of a finding's file."""
    if (file := file_of(name)) is None:
        raise GranularityError(f"{FOLDER / name}.yaml: there is no preregistration with this name")
    return strict_yaml.read(file)


def claims(
    name: str,
    measured: Mapping[str, Sequence[float]],
    seeds: Mapping[str, int] | None = None,
    arms: Mapping[str, Sequence[str]] | None = None,
) -> list[Claim]:
    """Return the predictions of a finding's file as claims; `measured` has the values of each by id (empty: not run).

    `seeds`: number of seeds behind the values of a prediction (default: one each); `arms`: those measured (default:
    all).
    """
    from granularity.claims.claim import Claim  # imported here because planning needs no NumPy

    predictions = read(name)["predictions"]
    if set(predictions) != set(measured):
        odd = ", ".join(sorted(set(predictions) ^ set(measured)))
        raise GranularityError(f"{file_of(name)}: must be predicted or measured, not both: {odd}")
    predicted = []
    for id, prediction in predictions.items():
        fields = {key: value for key, value in prediction.items() if key != "killed"}
        fields |= {"reason": f"{prediction['reason']}; else: {prediction['killed']}"} if "killed" in prediction else {}
        measurement = {"seeds": (seeds or {}).get(id), "arms": (arms or {}).get(id, ())}
        source = f"preregistered: {name}.yaml"
        predicted.append(Claim(id, source=source, values=measured[id], **measurement, **fields))
    return predicted
