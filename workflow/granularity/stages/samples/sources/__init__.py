"""Data sources: each is one file here, and reads one family of data sets in its publisher's own layout.

The file's name is what `samples.source` calls it. A file of the user's own that the configuration names under
`extensions` and that says ``EXTENDS = "source"`` is found the same way. Every dry run imports all of them, so that
libraries (NumPy, pandas, PyArrow, Pillow, ...) are imported inside functions. A source holds:

* ``read(params, threads) -> Source``, see :class:`granularity.stages.samples.source.Source`: the images. `params` is
  the section `samples`.
* ``OPTIONS`` (if it has any): key -> (type, pydantic's ``Field(default, description=...)``): the keys of the section
  `samples` that this source takes beside those of :class:`granularity.stages.samples.options.Samples`. Several sources
  can take a key, with one type and default.
* ``IMAGES`` (if it is known): roughly how many images it has, for what is asked of a scheduler before they are
  counted.
* ``NEEDS_ROOT = False``, where it does without `samples.root`.
* ``check(samples, conditions)`` (if there is anything to check): yields complaints about the configuration, "key: what
  is wrong with it". Keys are those of the section `samples`, or `conditions`. It looks at no files, and `conditions`
  (see :class:`granularity.stages.samples.options.Condition`) is empty where the section is checked alone.
* ``files(samples)`` (if there are any): yields the paths of the files of labels that it reads, whether they exist or
  not: an edit to one makes the sample table again.
* ``folders(samples)`` (if it is not `samples.root` alone): yields the folders whose entries decide which images there
  are: one that is added or removed makes the sample table again. None where files of labels name every image; then no
  dry run has to list them.
"""

ORDER = (
    "digits",
    "folder",
    "table",
    "parquet",
    "webdataset",
    "inaturalist",
    "imagenet",
    "imagenet21k",
    "cifar",
    "mnist",
    "svhn",
    "wilds",
    "domainnet",
)
