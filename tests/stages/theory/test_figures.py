"""Figures of runs that diverged."""

import math

import numpy as np

from granularity.stages.theory import figures


def test_points_leave_out_diverged_runs_and_an_empty_panel_is_saved(tmp_path):
    figure, (some, none) = figures.canvas(2)
    figures.points(some, [1, 2, 4], [[1.0, math.nan], [math.nan], np.array([2.0, 4.0])], "runs")
    figures.points(none, [1, 2], [[math.nan], []], "runs")
    for axes in (some, none):
        axes.set(xscale="log", yscale="log")
    (line, *_) = some.lines
    assert line.get_xydata().tolist() == [[1, 1], [4, 3]] and not none.lines
    assert figures.save(figure, tmp_path, "diverged").stat().st_size
