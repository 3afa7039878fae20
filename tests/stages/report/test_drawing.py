"""Figures depend on what they show alone."""

import io

import matplotlib
import pytest
from matplotlib.figure import Figure

from granularity.stages.report import drawing
from granularity.stages.theory import figures


@pytest.mark.parametrize("style", [drawing.styled, figures.style])
def test_a_matplotlibrc_changes_no_figure(style):
    def drawn():
        text = io.StringIO()
        with style():
            figure = Figure()
            figure.subplots().plot([0, 1], [0, 1], "o-")
            figure.savefig(text, format="svg", metadata={"Date": None})
        return text.getvalue()

    with matplotlib.rc_context({"lines.marker": "x", "lines.linewidth": 9, "figure.figsize": (1, 1), "savefig.dpi": 7}):
        other = drawn()
    assert drawn() == other
