"""Objective `labels`: cross-entropy on the labels of a label space; see :mod:`granularity.learning.classification`."""

from __future__ import annotations

from granularity.base.errors import GranularityError

NEEDS = "hierarchy"
KEYS = ("space", "family", "granularity")  # of properties.json


def describe(source, recipe, options) -> dict:
    """Family and number of classes of a label space.

    Raises:
        GranularityError: its images have several labels, and the loss is for one.
    """
    properties = source.json("properties.json", *KEYS)
    if recipe.loss == "softmax" and properties.get("multi_label"):
        raise GranularityError(
            f"pretrain.loss = softmax: images have several labels in {properties['space']}; set it to auto or sigmoid"
        )
    return {"family": properties["family"], "granularity": properties["granularity"]}


def class_names(source) -> list[str]:
    """The names of its classes, in the order of their numbers."""
    return source.table("classes.parquet", {"name": "text"})["name"].tolist()


def make(source, data, recipe, options):
    """Classification into a label space; a prediction is right if its class's parent is the target class."""
    import pandas as pd

    from granularity.learning.classification import Classification

    classes = source.table("classes.parquet", {"label": "whole", "parent": "text?"})
    parent = pd.Index(data.target_names).get_indexer(classes["parent"])
    return Classification(data, data.labels_of(source, len(classes)), recipe, parent)
