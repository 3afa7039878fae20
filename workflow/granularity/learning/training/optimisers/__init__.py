"""Optimisers, found by name (`optimizer`): a file here, or a user's file with `EXTENDS = "optimiser"`.

Such a file contains `make(parameters, recipe, common, fast)`, which returns a torch.optim.Optimizer that needs only
gradients:

- `recipe`: :class:`granularity.learning.options.Recipe`;
- `common`: keyword arguments: `lr`, `weight_decay`, and the user's `optimizer_args`;
- `fast`: keyword arguments that make torch's own optimisers fast on the device of the weights.

All other names are from timm's factory (`timm.py`). A training's digest includes only the file of its own optimiser.
"""
