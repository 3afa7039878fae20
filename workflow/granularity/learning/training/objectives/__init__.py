"""Objectives, found by name (`objective`): a file here, or a user's file with `EXTENDS = "objective"`.

Such a file defines what a pretraining minimises, and contains

- `NEEDS`: the stage whose results its runs are trained on: "hierarchy" (each run on one label space), "embed" (all on
  the images' embedding) or "pixels" (only on the images);
- `Options`: a :class:`granularity.base.section.Section` with its options, if it has any;
- `describe(source, recipe, options)`: `family` (text) and `granularity` (number of classes, or None) of a run on
  `source`, an :class:`~granularity.store.artifact.Artifact` of the stage it needs. It is called for every run before
  the first is trained, and raises an error for options that do not fit;
- `classes(source)`: if outputs are classes, a table of them: `label` (0, 1, ...), `name`, `parent` (the target class
  that its prediction stands for, or null);
- `make(source, data, recipe, options)`: an object with

  - `outputs`: the number of outputs of the network's head;
  - `loss(outputs, picked)`: the mean loss of some training images, a tensor of one number, given the network's outputs
    float32 [B, outputs] and the numbers of the training images, int64 [B] on the CPU;
  - `evaluate(network)`: results to record for the trained network: columns of `runs.parquet` (`val_error` in percent,
    or None), and arrays;
  - `attach(network)`, if the loss needs other outputs than the network's: replaces its `forward`, to return [B, ...];
    called on the CPU before the first step. Finetuning still replaces the head. Such networks are trained one by one;

  `data` is a :class:`granularity.learning.data.dataset.Data`, `recipe` a :class:`granularity.learning.options.Recipe`;
- `check(network, images, options)`, if it depends on either: raises a GranularityError that begins with the key, such
  as `objective.options.NAME`, if it cannot train a network on images like these, float32 [1, C, H, H].

Planning reads `NEEDS` and `Options`, so import torch only within functions.
"""

from types import ModuleType
from typing import Any

from pydantic import ValidationError

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.learning.options import Objective

ORDER = ("labels", "levels", "distil")


def chosen(objective: Objective) -> tuple[ModuleType, Any]:
    """Return the module of an objective and its options. Raise GranularityError if the objective is unknown, or it has
    no such options.
    """
    module = extensions.find("objective", objective.name)
    try:
        return module, getattr(module, "Options", Section).model_validate(objective.options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["objective", "options", *map(str, first["loc"])])
        raise GranularityError(f"{where}: {first['msg']} (objective {objective.name})") from None
