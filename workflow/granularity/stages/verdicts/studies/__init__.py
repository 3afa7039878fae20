"""Studies, found by name: claims about results on images, and the files that they read.

How to add a study
------------------
Write ``NAME.py`` here, or a file of your own that contains ``EXTENDS = "study"``
and is named under `extensions` in the configuration. It holds:

``READS: tuple[str, ...]``
    The files it reads, as ``stage/file``: ``finetune/runs.parquet``, ``hierarchy/properties.json``.
``PUBLISHED: tuple[str, ...]``
    The papers whose rows it is compared with: names of files in ``claims/numbers/``, without ``.csv``.
``COLUMNS: tuple[str, ...]``
    Optional: columns that `judge` needs in empty tables, so that its claims can be listed before any run.
``judge(tables: dict[str, DataFrame]) -> Iterable[Claim]``
    Every claim with its values. `tables` has one entry for each of `READS`: the rows of all its results, concatenated,
    with a first column ``condition`` (such as ``train-300``) and the ``draw`` as text. A JSON file is one row, with
    nested keys joined by dots. Rows of `pretrain` also have the network's ``architecture``. Rows of `finetune` also
    have ``head_alone`` (whether only the head was trained) and ``from_epoch`` (NaN: the end of the pretraining).
    ``tables["samples"]`` is always there: a row per condition with ``condition``, ``source``, ``target``, ``classes``
    (of the target) and ``train_images``. The claim holds preconditions, bands and their reasons, which are set before
    the run; what cannot be tested says why (:func:`granularity.claims.claim.unmet`). Planning imports the file to see
    what it reads, so import pandas and the like inside functions.
``figures(tables, folder: Path) -> None``
    Optional: writes SVG files into the folder.

A file with several studies names them in ``SEVERAL = {name: study}``, each an object with these attributes.
"""

# The file of a study that shares it with others.
OF_ONE = ("one_pass", "t2", "t3", "t5", "t6", "t7", "t9")
FILES = dict.fromkeys((f"granularity_{name}" for name in OF_ONE), "_granularity")
