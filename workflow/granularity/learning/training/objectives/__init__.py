"""Objectives, found by name (`objective`): a file here, or a file of the user's with `EXTENDS = "objective"`.

Such a file says what a pretraining minimises, and holds

- `NEEDS`: the stage that its runs are trained on: "hierarchy" (each run on one label space), "embed" (all on the
  embedding of the images) or "pixels" (on the images alone);
- `Options`: a :class:`granularity.base.section.Section` with its options, if it has any;
- `describe(source, recipe, options)`: `family` (text) and `granularity` (number of classes, or None) of a run on
  `source`, an :class:`~granularity.store.artifact.Artifact` of the stage it needs. It is called for every run before
  the first is trained: what does not fit is an error here;
- `classes(source)`: if outputs are classes, a table of them: `label` (0, 1, ...), `name`, `parent` (the target class
  that predicting it means, or null);
- `make(source, data, recipe, options)`: an object with

  - `outputs`: how many outputs the network's head has;
  - `loss(outputs, picked)`: the mean loss of some training images, a tensor of one number, given the network's outputs
    float32 [B, outputs] and which training images they are, int64 [B] on the CPU;
  - `evaluate(network)`: what is recorded of the trained network: columns of `runs.parquet` (`val_error` in percent, or
    None), and arrays;
  - `attach(network)`, where outputs are not those of the network: gives its `forward` others, [B, ...], on the CPU and
    before the first step. The head is still what finetuning replaces. Such networks are trained one after another;

  `data` is a :class:`granularity.learning.data.dataset.Data`, `recipe` a :class:`granularity.learning.options.Recipe`;
- `check(network, images, options)`, if it looks at either: raises a GranularityError that begins with the key, such as
  `objective.options.NAME`, if it cannot train a network on images like these, float32 [1, C, H, H].

Planning reads `NEEDS` and `Options`, so torch is imported within functions.
"""

from types import ModuleType
from typing import Any

from pydantic import ValidationError

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.learning.options import Objective

ORDER = ("labels", "distil")


def chosen(objective: Objective) -> tuple[ModuleType, Any]:
    """The file of an objective, and its options. Raises GranularityError if there is no objective of that name, or it
    has no such options.
    """
    module = extensions.find("objective", objective.name)
    try:
        return module, getattr(module, "Options", Section).model_validate(objective.options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["objective", "options", *map(str, first["loc"])])
        raise GranularityError(f"{where}: {first['msg']} (objective {objective.name})") from None
