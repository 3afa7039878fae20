"""Settings and arms that run alone."""

from pathlib import Path

import pytest

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.stages.theory import simulation
from granularity.stages.theory.worlds import neural_collapse

OWN = '''"""A world that trains nothing."""
from granularity.stages.theory import engine
EXTENDS = "world"
class Settings(engine.Settings):
    WORLD = "own"
    size: int = 1
    def shape(self): return ()
    def work(self): return 1.0
    def conditions(self): return {"size < 3": self.size < 3}
SIZES = {"quick": [Settings(name="small", seeds=1), Settings(name="large", size=4, seeds=2)]}
def simulate(runs, device): return [engine.row(run, {"twice": 2.0 * run.settings.size}) for run in runs]
'''


@pytest.fixture
def own(tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN)
    extensions.load([tmp_path / "own.py"])
    yield
    extensions.load([])


def test_arms_run_by_name_and_say_which_condition_they_break(own, capsys):
    simulation.simulate("own", {}, "cpu", ["small", "large"])
    printed = capsys.readouterr().out.splitlines()
    assert (
        printed.index("small:")
        < printed.index("large:")
        < printed.index("breaks 1 of 1 conditions of the theorem: size < 3")
    )
    assert sum("seed 1 ran all steps" in line for line in printed) == 1
    simulation.simulate("own", {"size": "3", "seeds": "1"}, "cpu", ["large"])
    printed = capsys.readouterr().out
    assert "seed 1" not in printed and "breaks 1 of 1" in printed and "6" in printed


def test_an_arm_or_size_that_is_not_there_lists_those_that_are(own):
    with pytest.raises(GranularityError, match="no arm 'smal' at the size 'quick'"):
        simulation.simulate("own", {}, "cpu", ["smal"])
    with pytest.raises(GranularityError, match=r"did you mean 'small'\? there are:") as raised:
        simulation.simulate("own", {}, "cpu", ["smal"])
    assert raised.value.args[1:] == ("small; large",)
    with pytest.raises(GranularityError, match="there is no size 'paper'; there are quick"):
        simulation.simulate("own", {}, "cpu", ["small"], "paper")
    with pytest.raises(GranularityError, match="sizes: unknown key; did you mean 'size'"):
        simulation.simulate("own", {"sizes": "3"}, "cpu", ["small"])


def test_every_arm_can_be_named():
    for item in neural_collapse.SIZES["quick"]:
        assert simulation.arm_of(neural_collapse, item.name, "quick", {}) == item
