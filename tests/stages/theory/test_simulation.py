"""Settings and arms that run alone; a measure out of the run table; figures of runs that diverged."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.stages import STAGES
from granularity.stages.theory import figures, simulation
from granularity.stages.theory.runs import at
from granularity.store import lock, place
from granularity.store.task import Task, make

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
    with pytest.raises(GranularityError, match="sizes = 3: unknown key; did you mean 'size'"):
        simulation.simulate("own", {"sizes": "3"}, "cpu", ["small"])


def test_a_job_whose_code_is_edited_while_it_waits_makes_nothing(own, tmp_path, capsys):
    """Its result would lie under the key of the code before."""
    record, output = STAGES["theory"], tmp_path / "made/runs"
    task = Task(record, output, record.model.model_validate({"world": "own"}))
    store = place.store_of(output)
    with lock.Lock(place.lock_file(store, "theory", task.key), "another"):
        job = ThreadPoolExecutor(1).submit(make, task)
        while "is making it; waiting" not in capsys.readouterr().err:
            time.sleep(0.01)
        (tmp_path / "own.py").write_text(OWN.replace("2.0 *", "3.0 *"))
    with pytest.raises(GranularityError, match=r"own\.py: edited since this job started"):
        job.result()
    assert not output.exists() and not list(place.all_of(store))


def test_at_picks_rows_and_keeps_diverged_runs_as_nan():
    rows = [("a", 0, 0, "", 1.0), ("a", 0, 5, "T0 end", 2.0), ("a", 1, 0, "", 3.0), ("a", 1, 2, "diverged", np.nan)]
    table = pd.DataFrame(rows, columns=["setting", "seed", "step", "event", "f"]).assign(phase="train")
    np.testing.assert_array_equal(at(table, "a", "f"), [2, np.nan])
    np.testing.assert_array_equal(at(table, "a", "f", step=0), [1, 3])
    np.testing.assert_array_equal(at(table, "a", "f", event="T0"), [2, np.nan])
    assert at(table, "b", "f").size == 0 and at(table, "a", "missing").size == 0


def test_points_leave_out_diverged_runs_and_an_empty_panel_is_saved(tmp_path):
    some = figures.Points({1: [1.0, math.nan], 2: [math.nan], 4: np.array([2.0, 4.0])}, "runs")
    _, (axes,) = figures.canvas(1)
    some.draw(axes, 0, 0)
    (line, *_) = axes.lines
    assert line.get_xydata().tolist() == [[1, 1], [4, 3]]
    figures.draw(tmp_path, "diverged", figures.panel(some), figures.panel(figures.Points({1: [math.nan]}), log="xy"))
    assert (tmp_path / "diverged.svg").stat().st_size
