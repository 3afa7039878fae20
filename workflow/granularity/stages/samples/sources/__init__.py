"""Data sources: each is one file here, and reads one family of data sets in its publisher's own layout.

The file's name is what `samples.source` calls it, or a name in :data:`FILES` of a data set that it reads; a file of the
user's own with ``EXTENDS = "source"`` is found the same way. Every dry run imports all of them: libraries (NumPy,
pandas, PyArrow, Pillow, ...) are imported inside functions. A source holds, all but the first where it has any:

* ``read(params, threads) -> Source``, see :class:`granularity.stages.samples.source.Source`: the images, given the
  section `samples`.
* ``OPTIONS``: key -> (type, pydantic's ``Field(default, description=...)``): the keys of the section that it takes
  beside those that all take. Several sources can take a key, with one type and default.
* ``EXPECTED_IMAGES``: roughly how many images it has; a number, or one for each name of `samples.source` or
  `samples.train`.
* ``NEEDS_ROOT = False``, where it does without `samples.root`.
* ``check(samples, conditions)``: yields complaints about the configuration, "key: what is wrong with it", with the key
  of the section or `conditions` (empty where the section is checked alone). It looks at no files.
* ``files(samples)``: yields the paths of files of labels, whether they exist or not: an edit makes the table again.
* ``folders(samples)``: the folders whose entries decide which images there are, if not `samples.root` alone.
"""

# Names of data sets, and the file that reads each.
FILES = {
    "imagenet21k": "folder",
    "cifar": "torchvision",
    "mnist": "torchvision",
    "svhn": "torchvision",
    "wilds": "table",
    "domainnet": "table",
    "pacs": "table",
}
ORDER = ("digits", "folder", "table", "parquet", "webdataset", "inaturalist", "imagenet", "torchvision", *FILES)
