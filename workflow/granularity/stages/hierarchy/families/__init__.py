"""The families of label spaces, found by name through :mod:`granularity.base.extensions`.

The name of a file is the name of the family and its key under `label_spaces` in the configuration. Such a file, here
or a user's own with `EXTENDS = "family"` in it, holds

- `OPTION`: the type and the pydantic `Field` (default, description) of its key;
- `spaces(option, samples) -> Iterator[Space]`: the label spaces that an option asks for, `samples` being the section of
  the configuration; `params["clusterings"]` of a space names the clusterings it is read from, `params["of"]` another
  label space that it is made from: `labels` takes `of={"family": ..., "params": ...}` of that one, and its clusterings;
- `labels(training, **params) -> Labels`: the labels of the training images; where they follow the same rule as those of
  other images, `elsewhere` alone, which is then given `training.frame` too;

and, where they apply,

- `NEEDS = ("pixels",)`, where it looks at images: `training.pixels` is then the artifact of stage `pixels`, opened when
  first used. :func:`granularity.data.shards.pictures` reads it; some images lie at `training.rows(images)`;
- `WORDS`, what the report calls it (else its name), and `STYLE`, the colour (#rrggbb) and the marker of matplotlib that
  it is drawn with (else those of :mod:`granularity.stages.report.series`);
- `check(option, config) -> Iterator[str]`: what is wrong with an option beside the rest of the configuration, each
  complaint beginning with `label_spaces.KEY: `. That nothing is listed twice is checked of every option that is a list;
- `elsewhere(training, others, **params) -> Labels | None`: labels of the same space for images of other splits, a frame
  like `training.frame`. An image that has none in the space gets -1, or no label where images have several; None: they
  are known of no image;
- `more_files(training, **params) -> dict[str, DataFrame]`: further tables of its artifact, `more_NAME.parquet`;
- `checks(space, samples) -> Iterator[Check]`: what must hold of a finished artifact, for `granularity spaces`;
- `series(params) -> str`, where it is drawn as several series: `WORDS` and `STYLE` then have an entry per series;
- `MEANINGLESS = True`, where its labels are drawn by chance, and say nothing of an image's classes beyond its target:
  the report holds label spaces with a meaning against these.

A file with several families names them in `SEVERAL = {name: family}`, each an object with these attributes.
Files are imported for `--help` and dry runs too: what is slow to import (pandas, scipy, pyarrow) is imported inside
functions.
"""

# How families are listed, planned and drawn; those not named here come behind, in alphabetical order.
IDS = ("random", "random_instance", "random_superclass")
CLUSTERS = ("kmeans", "kmeans_superclass", "kmeans_class")
TREES = ("rebalanced", "nested", "several")
ORDER = ("manual", "wordnet", *IDS, "redrawn", "regrouped", *CLUSTERS, *TREES, "file")
# The file of a family that is one of several in it.
FILES = dict.fromkeys(IDS, "random") | dict.fromkeys(CLUSTERS, "kmeans")
