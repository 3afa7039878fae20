"""Samples: which images there are, where their bytes lie, and what humans call them."""

# samples.source in the configuration -> the module whose `read` serves it: one a family of data sets
ADAPTERS = {
    "digits": "granularity.samples.digits",
    "folder": "granularity.samples.folder",
    "table": "granularity.samples.table",
    "parquet": "granularity.samples.parquet",
    "webdataset": "granularity.samples.webdataset",
    "inaturalist": "granularity.samples.inaturalist",
    "imagenet": "granularity.samples.imagenet",
    "imagenet21k": "granularity.samples.imagenet21k",
    "cifar": "granularity.samples.cifar",
    "mnist": "granularity.samples.mnist",
    "svhn": "granularity.samples.svhn",
    "wilds": "granularity.samples.wilds",
    "domainnet": "granularity.samples.domainnet",
}
