"""The worlds, found by name. A *world* is one paper's model: data, network, loss, update, measures and claims.

How to add a world
------------------
Write ``NAME.py`` here, or a file of your own that the configuration names under `extensions` and that says
``EXTENDS = "world"``; where it would grow past some 350 lines, make it a package ``NAME/`` whose ``model.py`` holds
data, network, loss and update, so that it can be held against the paper's section, ``arms.py`` what is trained,
``claims.py`` what is judged, and whose ``__init__`` exports the names below (``label_granularity`` is the example).
Worlds import what worlds share, never each other (but a finding imports the world that it extends):

- ``theory.engine``: settings, trials and their random streams, groups that share shapes, the training loop;
- ``theory.nets``: orthonormal dictionaries, activations, the batched two-layer network, gradients by hand;
- ``theory.runs``: the run table: its order, and one measure of one arm;
- ``theory.figures``: the look of every figure, curves with intervals over seeds, deterministic SVG;
- ``granularity.claims.claim``: a claim's measured values, its band and its verdict;

and expose:

``Settings(engine.Settings)``
    One setting, closed to unknown keys. ``WORLD: ClassVar[str]`` names the world. Constraints of the model
    are checked here, with messages that begin with the key: ``"k: 2 + 2k <= d must hold, but ..."``. Two
    methods: ``shape()``, a tuple that is equal for settings that can train in one tensor program, and
    ``work()``, the multiply-adds of one training step of one run, from which the engine decides how many runs
    share a program. Where the paper's theorem supposes something of the sizes, a third, ``conditions()``.
``SIZES: dict[str, list[Settings]]``
    What ``quick`` and ``paper`` train. ``settings.name`` names the arm in words and is unique within a size;
    ``settings.seeds`` says how often it is trained.
``simulate(runs: list[engine.Trial], device: torch.device) -> list[dict]``
    Train one group (equal ``shape()``, any seeds and scalars) and return its rows: build the state with a
    leading run axis (``engine.stacked`` over ``run.generator(purpose)``), then call ``engine.train(runs,
    state, step, measure, ...)``, which records, stops and catches divergence. Never seed a stream from
    anything but the trial.
``judge(table: DataFrame) -> list[Claim]``
    Every claim from the run table alone; a claim whose arms are absent gets no values and is not tested.
    Bands are the paper's, or come from pilot runs, and are not moved by what they judge; those of a finding are in its
    preregistration. A claim names its `arms`.
``figures(table: DataFrame, folder: Path) -> None``
    Writes SVG files with ``figures.save``, in ``figures.style()``.

A *finding* is a world with a file `config/preregistrations/NAME.yaml` of its predictions
(:mod:`granularity.claims.preregistered`): `snakemake theory` leaves it out, `snakemake findings` or `theory_NAME`
trains it.

The run table has one row per setting, seed and recorded step, with the columns ``setting, seed, phase, step, event,
outcome``, every parameter of the setting, ``loss`` and the measures. The loop does not know what a world is, so a world
may also call ``engine.train`` twice (pretraining, then finetuning, told apart by ``phase``), or not at all
(``engine.row``).
"""

ORDER = (
    "label_granularity",
    "neural_collapse",
    "feature_emergence",
    "feature_contamination",
    "mask_reconstruction",
)
