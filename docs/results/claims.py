"""Claims of claims.yaml judged from the tables here, as rows of papers.csv."""

import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from atlases import finer_pairs
from emergence import filter_values, student_values, width_values
from neighbours import bordered_pairs, collapse_values, rest_values
from shifts import distilled_pairs
from tables import HERE, ends, predictions

from granularity.base import strict_yaml
from granularity.claims import claim
from granularity.claims.claim import Claim

VALUES: dict[str, Callable[[], Mapping[str, Any]]] = {  # by study: numbers per backbone or base seed, by prediction
    "cifar10_collapse_more": collapse_values,
    "cifar10_collapse_rest": rest_values,
    "cifar10_students": student_values,
    "cifar10_filters": filter_values,
    "students_by_width": width_values,
    "cifar10_border": bordered_pairs,
    "cifar10_shifts": distilled_pairs,
    "tiny_imagenet_finer": finer_pairs,
}
ENDS = {"above 0": claim.ABOVE_ZERO, "below 0": claim.BELOW_ZERO}


def rows() -> pd.DataFrame:
    """A row per quantity of each claim, as text; intervals hold together with all of their study's, as on the page."""
    found, values = [], {study: of() for study, of in VALUES.items()}
    for group in strict_yaml.read(HERE / "claims.yaml"):
        study, told = group["study"], group["claims"].items()
        judged = [quantity(id, key, one, values.get(study, {}), study) for id, one in told for key in one["of"]]
        verdicts, text = claim.verdicts(judged), claim.table(judged).to_csv(float_format="%.6g")
        for row in pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False).to_dict("records"):
            about = {key: group[key] for key in ("study", "results", "paper", "data", "command", "cpu_hours")}
            about |= {"verdict": verdicts[row["id"]], "of_quantity": row["verdict"]}
            found.append(row | about | {"gpu_hours": 0, "cost_is": "measured", "missing": ""})
    return pd.DataFrame(found).astype(str)


def quantity(id: str, key: str, one: Mapping, values: Mapping[str, Any], study: str) -> Claim:
    """One quantity of a claim; its band is the prediction's, or `low` and `high`, of all quantities or by quantity."""

    def end(name: str, none: float) -> float:
        given = one.get(name, none)
        given = given.get(key, none) if isinstance(given, dict) else given
        return ENDS.get(given, given)

    said = predictions(study).get(key, {})
    low, high = ends(said["band"]) if "band" in said else (end("low", -math.inf), end("high", math.inf))
    of = values.get(key, ())
    of = of[0] - of[1] if isinstance(of, tuple) and of else of
    told = {name: one[name] for name in ("claim", "source", "judged", "reason") if name in one}
    told |= {"untested": "" if len(of) else "not run, or training labels that are not fitted"}
    about = {"comparisons": len(values), "low": low, "high": high}
    return Claim(id, quantity=one["of"][key], values=[*of], **told, **about)
