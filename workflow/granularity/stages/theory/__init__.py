"""Five two-layer worlds on one engine: the theory side of label granularity, small, fast and exact.

A *world* is one paper's model: data, network, loss, update and measures, in one place that can be held
against the paper's section. What worlds share stands once:

=============  ===========================================================================================
``engine``     settings, runs and their random streams, grouping of runs that share shapes, the training loop
``nets``       orthonormal dictionaries, activations, the batched two-layer network, gradients by hand
``checks``     a claim's measured values, its band and its verdict
``figures``    the look of every figure, curves with intervals over seeds, deterministic SVG
``stage``      ``run(world, size, output)`` writes the artifact, ``simulate(world, overrides)`` prints
=============  ===========================================================================================

How to add a world
------------------
Write ``theory/NAME.py``, found through `WORLDS`; where it would grow past some 350 lines, make it a package
``theory/NAME/`` whose ``model.py`` holds data, network, loss and update and whose ``__init__`` exports the
same names (``label_granularity`` is the example). Worlds import the shared modules above, never each other,
and expose:

``Settings(engine.Settings)``
    One setting, closed to unknown keys. ``WORLD: ClassVar[str]`` names the world. Constraints of the model
    are checked here, with messages that begin with the key: ``"k: 2 + 2k <= d must hold, but ..."``. Two
    methods: ``shape()``, a tuple that is equal for settings that can train in one tensor program, and
    ``work()``, the multiply-adds of one training step of one run, from which the engine decides how many runs
    share a program.
``SIZES: dict[str, list[Settings]]``
    What ``quick`` and ``paper`` train. ``settings.name`` names the arm in words and is unique within a size;
    ``settings.seeds`` says how often it is trained.
``simulate(runs: list[engine.Run], device: torch.device) -> list[dict]``
    Train one group (equal ``shape()``, any seeds and scalars) and return its rows: build the state with a
    leading run axis (``engine.stacked`` over ``run.generator(purpose)``), then call ``engine.train(runs,
    state, step, measure, ...)``, which records, stops and catches divergence. Never seed a stream from
    anything but the run.
``checks(table: DataFrame) -> list[checks.Check]``
    Every claim from the run table alone; a claim whose arms are absent gets no values and reads "not run at
    this size". Bands are the paper's, or are set before the run; never after it.
``figures(table: DataFrame, folder: Path) -> None``
    Writes SVG files with ``figures.save``.

``engine.run_table(module, settings)`` then gives the table: one row a setting, seed and recorded step, with
the columns ``setting, seed, phase, step, event, outcome``, every parameter of the setting, ``loss`` and the
measures. The loop does not know what a world is, so a world may also call ``engine.train`` twice
(pretraining, then finetuning, told apart by ``phase``), or not at all (``engine.row``).
"""

from __future__ import annotations

import importlib
from types import ModuleType

from granularity.base.errors import GranularityError

WORLDS = {
    "label_granularity": "granularity.stages.theory.label_granularity",
    "neural_collapse": "granularity.stages.theory.neural_collapse",
    "feature_emergence": "granularity.stages.theory.feature_emergence",
    "feature_contamination": "granularity.stages.theory.feature_contamination",
    "mask_reconstruction": "granularity.stages.theory.mask_reconstruction",
}


def load(world: str) -> ModuleType:
    """Import a world's module, and only that one.

    Raises:
        GranularityError: there is no such world.
    """
    if world not in WORLDS:
        raise GranularityError(f"theory: there is no world '{world}'; there are {', '.join(WORLDS)}")
    return importlib.import_module(WORLDS[world])
