"""Preregistrations: what is predicted of a finding, in `config/preregistrations/NAME.yaml`, committed before its run.

A file holds `question`, `pilots` (what had been seen when it was written), `arms` (as its world reads them) and
`predictions`: a mapping of ids to `claim`, `quantity`, `low` and/or `high`, `reason`, and what would be `killed` by a
failure. It is never edited after its run: another prediction is another finding.
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
TABLES = FOLDER.parent / "claims"


def file_of(name: str) -> Path | None:
    """The file of a finding; None where the world of this name is none."""
    file = FOLDER / f"{name}.yaml"
    return file if file.is_file() else None


def statements_of(name: str) -> Path | None:
    """Claims in words of a world or a study (PAPER_TABLE has the file of its PAPER); None where there are none."""
    files = [TABLES / file for file in (f"{name}.txt", f"{name}.yaml", f"{name.partition('_')[0]}.yaml")]
    return next((file for file in files if file.is_file()), None)


def words(name: str) -> dict[str, dict[str, Any]]:
    """The claims in words of studies, `config/claims/NAME.yaml`: fields of claims, a band's end may be "above 0"."""
    ends = {"above 0": math.ulp(0.0), "below 0": -math.ulp(0.0)}
    found = strict_yaml.read(TABLES / f"{name}.yaml")
    return {
        key: {field: value if isinstance(value, dict) else ends.get(value, value) for field, value in one.items()}
        for key, one in found.items()
    }


def digest_of(name: str) -> str | None:
    """The first 16 hexadecimal digits of the SHA-256 of a finding's file; None where there is no file."""
    file = file_of(name)
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def read(name: str) -> dict[str, Any]:
    """What the file of a finding holds."""
    if (file := file_of(name)) is None:
        raise GranularityError(f"{FOLDER / name}.yaml: there is no preregistration of this name")
    return strict_yaml.read(file)


def claims(
    name: str,
    measured: Mapping[str, Sequence[float]],
    seeds: Mapping[str, int] | None = None,
    arms: Mapping[str, Sequence[str]] | None = None,
) -> list[Claim]:
    """The predictions of a finding's file with the values `measured` of each (empty: not run), by the prediction's id.

    `seeds`: the number behind the values, where not one each; `arms`: those they were measured on, where not all.
    """
    from granularity.claims.claim import Claim  # not above: planning needs no NumPy

    predictions = read(name)["predictions"]
    if set(predictions) != set(measured):
        odd = ", ".join(sorted(set(predictions) ^ set(measured)))
        raise GranularityError(f"{file_of(name)}: predicted or measured, and not both: {odd}")
    found = []
    for id, said in predictions.items():
        fields = {key: value for key, value in said.items() if key != "killed"}
        fields |= {"reason": f"{said['reason']}; else: {said['killed']}"} if "killed" in said else {}
        own = {"seeds": (seeds or {}).get(id), "arms": (arms or {}).get(id, ())}
        source = f"preregistered: config/preregistrations/{name}.yaml"
        found.append(Claim(id, source=source, values=measured[id], **own, **fields))
    return found
