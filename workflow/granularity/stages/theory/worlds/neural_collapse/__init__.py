"""World 2: structure inside collapsed representations. Read `mixture` and `theorem` first."""

from granularity.stages.theory.worlds.neural_collapse.claims import judge
from granularity.stages.theory.worlds.neural_collapse.figures import figures
from granularity.stages.theory.worlds.neural_collapse.mixture import simulate as _mixture
from granularity.stages.theory.worlds.neural_collapse.settings import SIZES, Settings
from granularity.stages.theory.worlds.neural_collapse.theorem import simulate as _theorem


def simulate(runs, device):
    """Train a group of runs of one model, and return its rows (see `engine`)."""
    return (_theorem if runs[0].settings.model == "theorem" else _mixture)(runs, device)


__all__ = ["SIZES", "Settings", "figures", "judge", "simulate"]
