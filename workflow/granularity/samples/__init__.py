"""Samples: which images there are, where their bytes lie, and what humans call them."""

# samples.source in the configuration -> the module whose `read` serves it: one a family of data sets
ADAPTERS = {
    "digits": "granularity.samples.adapters.digits",
    "folder": "granularity.samples.adapters.folder",
    "table": "granularity.samples.adapters.table",
    "parquet": "granularity.samples.adapters.parquet",
    "webdataset": "granularity.samples.adapters.webdataset",
    "inaturalist": "granularity.samples.adapters.inaturalist",
    "imagenet": "granularity.samples.adapters.imagenet",
    "imagenet21k": "granularity.samples.adapters.imagenet21k",
    "cifar": "granularity.samples.adapters.cifar",
    "mnist": "granularity.samples.adapters.mnist",
    "svhn": "granularity.samples.adapters.svhn",
    "wilds": "granularity.samples.adapters.wilds",
    "domainnet": "granularity.samples.adapters.domainnet",
}

# Columns of a sample table that are not labels.
PLACE = ("file", "row", "offset", "bytes")
RESERVED = ("sample_id", "split", "distribution", *PLACE, "sha256")
