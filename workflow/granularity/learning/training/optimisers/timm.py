"""All optimisers in timm's factory, by their names there."""

import difflib

from granularity.base.errors import GranularityError


def make(parameters, recipe, common, fast):
    """Return an optimiser of timm. Raise GranularityError if timm does not have it."""
    from timm.optim import create_optimizer_v2, list_optimizers

    known = list_optimizers()
    if recipe.optimizer.removeprefix("lookahead_") not in known:
        close = difflib.get_close_matches(recipe.optimizer, known, n=5, cutoff=0.5)
        meant = f"did you mean {', '.join(close)}?" if close else "timm.optim.list_optimizers() has them all"
        raise GranularityError(f"optimizer = {recipe.optimizer}: there is no such optimiser; {meant}")
    # Pass a list of weights: given the network, timm would exempt biases and normalisations from weight decay.
    return create_optimizer_v2(parameters, recipe.optimizer, momentum=recipe.momentum, **common)
