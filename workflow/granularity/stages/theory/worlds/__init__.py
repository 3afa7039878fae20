"""The worlds, found by name. A *world* is one paper's model: data, network, loss, update, measures and claims.

How to add a world
------------------
Write ``NAME.py`` here, or a file of your own that the configuration names under `extensions` and that says
``EXTENDS = "world"``; where it would grow past some 350 lines, a package (``label_granularity`` is the example). Worlds
import what they share from ``theory.engine``, ``nets``, ``runs``, ``statements`` and ``figures``, never each other (but
a finding imports the world that it extends). They expose:

``Settings(engine.Settings)``
    One setting, closed to unknown keys. ``WORLD: ClassVar[str]`` names the world, ``FREE`` the scalars that may differ
    between runs of one tensor program; ``rules()`` are the model's constraints, with messages that begin with the key,
    ``work()`` the multiply-adds of a training step, ``conditions()`` what the paper's theorem supposes of the sizes.
``SIZES: dict[str, list[Settings]]``
    What ``quick`` and ``paper`` train, each with a ``name`` of its own within a size, and its number of ``seeds``.
``simulate(runs: list[engine.Trial], device: torch.device) -> list[dict]``
    Train one group (equal ``shape()``, any seeds and scalars) and return its rows: build the state with a leading run
    axis (``engine.stacked``, ``engine.collated``), then call ``engine.train(runs, state, step, measure, ...)`` as often
    as there are phases; ``engine.row`` makes the other rows. Never seed a stream from anything but the trial.
``judge(table: DataFrame) -> list[Claim]``
    Every claim from the run table alone (``statements.judge``, its table: `config/claims/NAME.txt`); one whose arms are
    absent is not tested. Bands are not moved by what they judge. A claim names its `arms`.
``figures(table: DataFrame, folder: Path) -> None``
    Writes SVG files with ``figures.draw``.

A *finding* is a world with a preregistration of its predictions (:mod:`granularity.claims.preregistered`).
"""

ORDER = ("label_granularity", "neural_collapse", "feature_emergence", "feature_contamination", "mask_reconstruction")
