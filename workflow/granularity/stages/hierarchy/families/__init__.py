"""The families of label spaces, found by name through :mod:`granularity.base.extensions`.

A file's name is the name of the family and its key under `label_spaces` in the configuration. Such a file, here or a
user's own that contains `EXTENDS = "family"`, holds

- `OPTION`: the type and the pydantic `Field` (default, description) of its key;
- `spaces(option, samples) -> Iterator[Space]`: the label spaces that an option asks for; `samples` is the section of
  the configuration. In a space's `params`, `clusterings` names the clusterings that it is read from, and `of` another
  label space that it is made from: `labels` then gets `of={"family": ..., "params": ...}`, and its clusterings;
- `labels(training, **params) -> Labels`: the labels of the training images. If these follow the same rule as the labels
  of other images, only `elsewhere` is needed; it is then also called with `training.frame`;

and, where they apply,

- `NEEDS = ("pixels",)` if it looks at images: `training.pixels` is then the artifact of stage `pixels`, opened on first
  use. Read it with :func:`granularity.data.shards.pictures`; the rows of some images are `training.rows(images)`;
- `WORDS`, its name in the report (default: the family's name), and `STYLE`, the colour (#rrggbb) and matplotlib marker
  in plots (default: see :mod:`granularity.stages.report.series`);
- `check(option, config) -> Iterator[str]`: what is wrong with an option given the rest of the configuration; each
  complaint begins with `label_spaces.KEY: `. Duplicates in an option that is a list are always rejected;
- `elsewhere(training, others, **params) -> Labels | None`: labels in the same space for images of other splits, a frame
  like `training.frame`. An image without one gets -1, or no label if images have several; None: no image has any;
- `more_files(training, **params) -> dict[str, DataFrame]`: further tables of its artifact, `more_NAME.parquet`;
- `checks(space, samples) -> Iterator[Check]`: what must hold of a finished artifact, for `granularity spaces`;
- `series(params) -> str` if it is drawn as several series: `WORDS` and `STYLE` then have an entry per series;
- `MEANINGLESS = True` if its labels are random and tell nothing about an image's classes beyond its target: the report
  compares label spaces that have a meaning with these.

A file with several families names them in `SEVERAL = {name: family}`, each an object with these attributes. Files are
also imported for `--help` and dry runs: import slow libraries (pandas, scipy, pyarrow) inside functions.
"""

# The order in which families are listed, planned and drawn; others follow alphabetically.
IDS = ("random", "random_instance", "random_superclass")
CLUSTERS = ("kmeans", "kmeans_superclass", "kmeans_class")
TREES = ("rebalanced", "nested", "several")
ORDER = ("manual", "wordnet", *IDS, "redrawn", "regrouped", *CLUSTERS, *TREES, "file")
# The file of a family that shares it with others.
FILES = dict.fromkeys(IDS, "random") | dict.fromkeys(CLUSTERS, "kmeans")
