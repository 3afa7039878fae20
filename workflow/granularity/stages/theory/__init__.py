"""Theory: simulations of papers' two-layer models (:mod:`granularity.stages.theory.worlds`) on one engine."""

from collections.abc import Iterator

from granularity.base import extensions
from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.stages.theory.options import Options

PAPER = 6  # how many times longer than the quick size
PARTS = 4  # jobs that the trainings of one world are split into; does not affect results


def _plan(plan: Planned) -> Iterator[Job]:
    theory = plan.config.theory
    for world in extensions.names("world"):
        for part in range(PARTS):
            yield Job(
                "theory",
                {"world": world, "part": str(part)},
                {"world": world, "size": theory.size, "part": part, "parts": PARTS},
                longer=1.0 if theory.size == "quick" else PAPER,
            )


STAGE = Stage(
    name="theory",
    does="Train a two-layer world of the theory, or one part of its trainings.",
    options=Options,
    place="results/theory/{world}/{part}",
    files=("runs.parquet", "settings.json"),
    plan=_plan,
    needs=Needs(2000, 0, 240, gpu=True),
    message="Theory: training {wildcards.world}, part {wildcards.part}",
    chosen=lambda options: [("world", options.world)],
)
