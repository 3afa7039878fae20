"""Samples: which images there are, where their bytes lie, and what humans call them."""

from granularity.data.columns import RESERVED  # noqa: F401

# samples.source in the configuration -> the module whose `read` serves it: one a family of data sets
ADAPTERS = {
    "digits": "granularity.stages.samples.sources.digits",
    "folder": "granularity.stages.samples.sources.folder",
    "table": "granularity.stages.samples.sources.table",
    "parquet": "granularity.stages.samples.sources.parquet",
    "webdataset": "granularity.stages.samples.sources.webdataset",
    "inaturalist": "granularity.stages.samples.sources.inaturalist",
    "imagenet": "granularity.stages.samples.sources.imagenet",
    "imagenet21k": "granularity.stages.samples.sources.imagenet21k",
    "cifar": "granularity.stages.samples.sources.cifar",
    "mnist": "granularity.stages.samples.sources.mnist",
    "svhn": "granularity.stages.samples.sources.svhn",
    "wilds": "granularity.stages.samples.sources.wilds",
    "domainnet": "granularity.stages.samples.sources.domainnet",
}
