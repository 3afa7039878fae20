"""A preregistration is the file that was there at the run: another one afterwards is seen."""

import pandas as pd
import pytest

from granularity.base.errors import GranularityError
from granularity.claims import claim, preregistered
from granularity.config import files
from granularity.plan.graph import Plan
from granularity.plan.rules import Rules
from granularity.stages.theory.worlds import neural_collapse
from granularity.store.artifact import Artifact
from support.worlds import judge, train

FILE = """
question: What comes out?
predictions:
  M1: {claim: it is more, quantity: difference, low: 0.5, reason: a pilot gave 0.7, killed: the finding}
  M2: {claim: it is less, quantity: ratio, high: 1, judged: mean, reason: a guess, kind: identity}
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The file of a finding that is the world `neural_collapse`."""
    monkeypatch.setattr(preregistered, "FOLDER", tmp_path / "preregistrations")
    preregistered.FOLDER.mkdir()
    file = preregistered.FOLDER / "neural_collapse.yaml"
    file.write_text(FILE)
    return file


def test_predictions_are_claims_with_the_bands_of_the_file(written):
    found = preregistered.claims("neural_collapse", {"M1": [0.4, 0.6], "M2": [1.5, 0.4]}, {"M2": 7}, {"M1": ("a",)})
    assert [(one.id, one.verdict, one.band) for one in found] == [
        ("M1", claim.FAILS, ">= 0.5"),
        ("M2", "holds", "<= 1"),
    ]
    assert found[0].reason == "a pilot gave 0.7; else: the finding"
    assert [one.arms for one in found] == [("a",), ()]
    assert found[1].kind == "identity" and found[1].row()["seeds"] == 7
    with pytest.raises(GranularityError, match="must be predicted or measured, not both: M2, M3"):
        preregistered.claims("neural_collapse", {"M1": [], "M3": []})
    with pytest.raises(GranularityError, match="there is no preregistration with this name"):
        preregistered.read("another")


def test_verdicts_name_the_file_of_the_run_and_see_that_it_was_changed(written, tmp_path, monkeypatch):
    arm = neural_collapse.Settings(per_cluster=4, d_in=6, hidden=8, name="a", steps=2, seeds=1)
    monkeypatch.setitem(neural_collapse.SIZES, "tiny", [arm])
    monkeypatch.setattr(neural_collapse, "figures", lambda table, folder: None)
    monkeypatch.setattr(neural_collapse, "judge", lambda table: preregistered.claims("neural_collapse", measured))
    measured = {"M1": [0.9], "M2": [0.5]}
    made = train("neural_collapse", tmp_path / "trained")
    at_run = preregistered.digest_of("neural_collapse")

    def judged(name):
        found = Artifact.open(judge("neural_collapse", [made], tmp_path / name))
        rows = pd.read_csv(found.path / "checks.csv", dtype=str)
        assert set(rows["preregistration"]) == {at_run}
        return [*found.summary["verdicts"].values(), *found.summary["identities"].values()]

    assert judged("as it was") == ["holds", "holds"]
    written.write_text(FILE.replace("0.5", "0.4"))
    assert judged("edited") == [claim.CHANGED, claim.CHANGED]
    written.write_text(FILE)
    assert judged("as it was again") == ["holds", "holds"]


def test_a_killed_run_does_not_go_on_under_another_preregistration(written, tmp_path, monkeypatch):
    arms = [neural_collapse.Settings(per_cluster=4, d_in=6, hidden=8, name=name, steps=2, seeds=1) for name in "ab"]
    arms[1] = arms[1].model_copy(update={"hidden": 9})  # a group of its own
    monkeypatch.setitem(neural_collapse.SIZES, "tiny", arms)
    whole, trained = neural_collapse.simulate, []

    def simulate(runs, device):
        trained.append(runs[0].settings.name)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return whole(runs, device)

    monkeypatch.setattr(neural_collapse, "simulate", simulate)
    with pytest.raises(KeyboardInterrupt):
        train("neural_collapse", tmp_path / "trained")
    trained.append("killed")
    written.write_text(FILE + "  # edited")
    train("neural_collapse", tmp_path / "trained")
    assert trained == ["a", "b", "killed", "a", "b"]


def test_a_world_with_a_preregistration_is_trained_when_it_is_asked_for(written):
    targets = Rules([Plan(files.validate({}))]).targets()
    assert targets["findings"] == targets["theory_neural_collapse"]
    assert targets["findings"][0] not in targets["theory"] and len(targets["theory"]) >= 4
