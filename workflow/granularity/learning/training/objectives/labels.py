"""Objective `labels`: cross-entropy on the labels of a label space; see :mod:`..classification`."""

from granularity.base.errors import GranularityError

NEEDS = "hierarchy"


def describe(source, recipe, options) -> dict:
    """Return family and number of classes of a label space. Raise GranularityError if its images have several labels,
    but the loss is for one.
    """
    properties = source.json("properties.json", "space", "family", "granularity")
    if recipe.loss == "softmax" and properties.get("multi_label"):
        raise GranularityError(
            f"pretrain.loss = softmax: images have several labels in {properties['space']}; set it to auto or sigmoid"
        )
    return {"family": properties["family"], "granularity": properties["granularity"]}


def classes(source):
    """Return the classes of a label space: `label`, `name`, `parent`."""
    return source.table("classes.parquet", {"label": "whole", "name": "text", "parent": "text?"})


def make(source, data, recipe, options):
    """Return a classification into a label space; a prediction is right if its class's parent is the target class."""
    import pandas as pd

    from granularity.learning.training.classification import Classification

    parents = classes(source)["parent"]
    parent = pd.Index(data.target_names).get_indexer(parents)
    return Classification(data, data.labels_of(source, len(parents)), recipe, parent)
