"""The worlds, found by name. A *world* is one paper's model: data, network, loss, update, measures and claims.

How to add a world
------------------
Write ``NAME.py`` here, or a file of your own that contains ``EXTENDS = "world"``
and is named under `extensions` in the configuration. If it would exceed some 350 lines, write a package
(``label_granularity`` is the example). Worlds import what they share from ``theory.engine``, ``nets``, ``runs``,
``statements`` and ``figures``, never from each other. They expose:

``Settings(engine.Settings)``
    One setting; unknown keys are rejected. ``WORLD: ClassVar[str]`` names the world, ``FREE`` the scalars that may
    differ between runs of one tensor program; ``rules()`` are the model's constraints, with messages that begin with
    the key, ``work()`` the multiply-adds of a step, ``conditions()`` the assumptions of the paper's theorem.
``SIZES: dict[str, list[Settings]]``
    What ``quick`` and ``paper`` train, each setting with a unique ``name`` within a size, and its number of ``seeds``.
``simulate(runs: list[engine.Trial], device: torch.device) -> list[dict]``
    Train one group (equal ``shape()``, any seeds and scalars) and return its rows: build the state with a leading run
    axis (``engine.stacked``, ``engine.collated``), then call ``engine.train(runs, state, step, measure, ...)`` once per
    phase; ``engine.row`` makes the other rows. Seed streams only from the trial.
``judge(table: DataFrame) -> list[Claim]``
    Every claim, from only the run table (``statements.judge`` with `claims/words/NAME.txt`); a claim whose arms are
    absent is not tested. Bands must not depend on what they judge. A claim names its `arms`.
``COLUMNS: tuple[str, ...]``
    Optional: measures that `judge` needs in an empty table, so that claims can be listed before any run.
``figures(table: DataFrame, folder: Path) -> None``
    Writes SVG files with ``figures.draw``.

A study's world (``studies/sibling_labels``) may import the one that it extends, and judges predictions with
:func:`granularity.claims.preregistered.claims`.
"""

ORDER = ("label_granularity", "neural_collapse", "feature_emergence", "feature_contamination", "mask_reconstruction")
