"""Preregistrations: what is predicted of a finding, in `config/preregistrations/NAME.yaml`, committed before its run.

A file holds `question`, `pilots` (what had been seen when it was written), `arms` (as its world reads them) and
`predictions`: a mapping of ids to `claim`, `quantity`, `low` and/or `high`, `reason`, and what would be `killed` by a
failure. The run keeps the file's digest, and the verdicts compare it with the file as it is then: a file is never
edited after its run. Another prediction is another finding.
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

FOLDER = Path(__file__).parents[3] / "config" / "preregistrations"


def file_of(name: str) -> Path | None:
    """The file of a finding; None where the world of this name is none."""
    file = FOLDER / f"{name}.yaml"
    return file if file.is_file() else None


def digest_of(name: str) -> str | None:
    """The first 16 hexadecimal digits of the SHA-256 of a finding's file; None where there is no file."""
    file = file_of(name)
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def read(name: str) -> dict[str, Any]:
    """What the file of a finding holds.

    Raises:
        GranularityError: there is no such file, or it is not valid.
    """
    file = file_of(name)
    if file is None:
        raise GranularityError(f"{FOLDER / name}.yaml: there is no preregistration of this name")
    return strict_yaml.read(file)


def claims(
    name: str,
    measured: Mapping[str, Sequence[float]],
    seeds: Mapping[str, int] | None = None,
    arms: Mapping[str, Sequence[str]] | None = None,
) -> list[Claim]:
    """The predictions of a finding's file, each with what was measured of it.

    Args:
        name: the finding.
        measured: the values by the prediction's id; empty: not run.
        seeds: the number of seeds behind the values, where it is not one per value.
        arms: names of the settings that they were measured on, where these are not all.

    Raises:
        GranularityError: the measured ids are not those of the file.
    """
    from granularity.claims.claim import Claim  # not above: planning needs no NumPy

    predictions = read(name)["predictions"]
    if set(predictions) != set(measured):
        odd = ", ".join(sorted(set(predictions) ^ set(measured)))
        raise GranularityError(f"{file_of(name)}: predicted or measured, and not both: {odd}")
    return [
        Claim(
            id,
            said["claim"],
            f"preregistered: config/preregistrations/{name}.yaml",
            said["quantity"],
            measured[id],
            said.get("low", -math.inf),
            said.get("high", math.inf),
            said.get("judged", "every seed"),
            (seeds or {}).get(id),
            reason=f"{said['reason']}; else: {said['killed']}" if "killed" in said else said["reason"],
            kind=said.get("kind", "claim"),
            arms=(arms or {}).get(id, ()),
        )
        for id, said in predictions.items()
    ]
