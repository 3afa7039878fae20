"""Data sources: each is one file here, and reads one family of data sets in its publisher's own layout.

The file's name is the value of `samples.source`; :data:`FILES` lists further names of data sets that a file reads. A
user's own file with ``EXTENDS = "source"`` is found in the same way. Every dry run imports all of them, so import
libraries (NumPy, pandas, PyArrow, Pillow, ...) inside functions. A source holds (only the first is required):

* ``read(params, threads) -> Source``, see :class:`granularity.stages.samples.source.Source`: the images, given the
  section `samples`.
* ``OPTIONS``: key -> (type, pydantic's ``Field(default, description=...)``): its keys in the section, besides those of
  all sources. Several sources can share a key, with one type and default.
* ``EXPECTED_IMAGES``: its approximate number of images, or a number for each name of `samples.source` or
  `samples.train`.
* ``NEEDS_ROOT = False`` if it works without `samples.root`.
* ``check(samples, conditions)``: yields complaints about the configuration, "key: what is wrong with it", with the key
  of the section or `conditions` (empty if the section is checked alone). It reads no files.
* ``files(samples)``: yields the paths of label files, existing or not; editing one makes the table outdated.
* ``folders(samples)``: the folders whose entries decide which images there are, if not only `samples.root`.
"""

# Further names of data sets, and the file that reads each.
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
