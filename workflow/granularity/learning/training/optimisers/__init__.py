"""Optimisers, found by name (`optimizer`): a file here, or a file of the user's with `EXTENDS = "optimiser"`.

Such a file holds `make(parameters, recipe, common, fast)`, which returns a torch.optim.Optimizer that needs no more
than gradients:

- `recipe`: :class:`granularity.learning.options.Recipe`;
- `common`: keyword arguments: `lr`, `weight_decay`, and the user's `optimizer_args`;
- `fast`: keyword arguments that make torch's own optimisers fast on the device of the weights.

Every other name is one of timm's factory (`timm.py`). A training's digest has the file of its optimiser alone.
"""
