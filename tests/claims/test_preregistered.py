"""Predictions of a file are claims with its bands."""

import pytest

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError
from granularity.claims import claim, preregistered

FILE = """
question: What comes out?
predictions:
  M1: {claim: it is more, quantity: difference, low: 0.5, reason: a pilot gave 0.7, killed: the finding}
  M2: {claim: it is less, quantity: ratio, high: 1, judged: mean, reason: a guess, kind: identity}
  M3: {arm: a, minus: b, measure: loss, low: 0, reason: a guess}
"""


def test_predictions_are_claims_with_the_bands_of_the_file():
    said = strict_yaml.parse(FILE, "predictions.yaml")
    measured = {"M1": [0.4, 0.6], "M2": [1.5, 0.4], "M3": [0.0, 0.1]}
    found = preregistered.claims(said, measured, {"M2": 7}, {"M1": ("a",)}, judged="mean")
    assert [(one.id, one.verdict, one.band) for one in found] == [
        ("M1", claim.HOLDS, ">= 0.5"),
        ("M2", claim.HOLDS, "<= 1"),
        ("M3", claim.HOLDS, ">= 0"),
    ]
    assert found[0].reason == "a pilot gave 0.7; else: the finding"
    assert [one.arms for one in found] == [("a",), (), ("a", "b")]
    assert [(one.claim, one.quantity) for one in found[1:]] == [("it is less", "ratio"), ("M3", "loss")]
    assert found[1].kind == "identity" and found[1].row()["seeds"] == 7
    assert preregistered.claims(said, measured)[0].verdict == claim.FAILS  # of every seed
    with pytest.raises(GranularityError, match="must be predicted or measured, not both: M2, M3, M4"):
        preregistered.claims(said, {"M1": [], "M4": []})
