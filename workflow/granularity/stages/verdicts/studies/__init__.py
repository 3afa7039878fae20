"""Studies, found by name: claims about results on images, and what is to be read for them.

How to add a study
------------------
Write ``NAME.py`` here, or a file of your own that the configuration names under `extensions` and that says
``EXTENDS = "study"``. It holds:

``READS: tuple[str, ...]``
    The files it reads, as ``stage/file``: ``finetune/runs.parquet``, ``hierarchy/properties.json``.
``PUBLISHED: tuple[str, ...]``
    The papers' rows it is held against: names of files in ``config/published/``, without ``.csv``.
``judge(tables: dict[str, DataFrame]) -> Iterable[Claim]``
    Every claim with its values. `tables` has one entry for each of `READS`, the rows of all its results one after
    another, and a column ``condition`` in front (such as ``train-300``); a JSON file is a row, nested keys joined by
    dots. Rows of `pretrain` have the network's ``architecture`` as well, and rows of `finetune` ``head_alone`` (whether
    the rest of the network was kept as it was) and ``from_epoch`` (NaN: the end of the pretraining).
    ``tables["samples"]`` is always there: a row per condition with ``condition``, ``source``, ``target``, ``classes``
    (of the target) and ``train_images``. Preconditions, bands and their reasons are the claim's, and set before the
    run; what cannot be tested says why (:func:`granularity.claims.claim.unmet`). Finding out what a study reads imports
    its file: it imports pandas and the like in functions.
``figures(tables, folder: Path) -> None``
    Where it has any: writes SVG files into the folder.

A file with several studies names them in ``SEVERAL = {name: study}``, each an object with these attributes.
"""

# The file of a study that is one of several in it.
OF_ONE = ("one_pass", "t2", "t3", "t5", "t6", "t7", "t9")
FILES = dict.fromkeys((f"granularity_{name}" for name in OF_ONE), "_granularity")
