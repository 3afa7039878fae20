"""How alike mean gradients of steps 1-10, 11-20 and 21-30 are, filter by filter (Shi, Wei, Liang 2022, Table 7).

The table is of one filter, the nearest to the mean of the green cluster; here all filters of a layer are averaged.

Of untrained networks: a copy takes the first steps of a training on the target with `recipe`, those that its own
pretraining on the target took if the recipe is the same. With v1, v2, v3 a filter's mean gradients over each third of
the steps and v their mean, of each LAYER that a pattern of `layers` fits, under the first split:

- `LAYER/cosines`: an array [filters, 6]: cosines of v1, v2 and v3 with v, of v1 with v2, v1 with v3, v2 with v3;
- `LAYER/mean/PAIR`: their means over filters; PAIR is 1-mean, 2-mean, 3-mean, 1-2, 1-3, 2-3.
"""

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Count, Section
from granularity.base.seeds import seed_of
from granularity.learning.options import Recipe

EXTENDS = "measure"
PAIRS = {"1-mean": (0, 3), "2-mean": (1, 3), "3-mean": (2, 3), "1-2": (0, 1), "1-3": (0, 2), "2-3": (1, 2)}


class Options(Section):
    layers: list[str] = Field(["*"], min_length=1, description="Patterns of names of layers, as of measure filters.")
    recipe: Recipe = Recipe()
    third: Count = Field(10, description="Steps in each third.")


def measure(view, options: Options, seed: int):
    import copy

    import numpy as np
    from torch.nn.functional import cross_entropy

    from granularity.learning.data.order import Batches
    from granularity.learning.training.loop import optimiser, share_of_peak
    from granularity.stages.measure.measures.filters import filters

    if view.network is None or view.about["epoch"] != 0:
        raise GranularityError("of: early_gradients takes the first steps of a training; write [untrained]")
    network, data, recipe = copy.deepcopy(view.network).train(), view.data, options.recipe
    if len(view.answers) != len(data.target_names):
        return  # of another label space
    own, target = seed_of(seed, "pretrain", view.about["pretrain_seed"]), data.torch_target()
    batches, steps = Batches(len(data.train), recipe.batch_size, own), 3 * options.third
    feed, stepper = data.feed(batches, steps, recipe.augment, own), optimiser(network.parameters(), recipe)
    layers = {name: network.get_submodule(name).weight for name in filters(network, options.layers)}
    sums = {name: np.zeros((4, len(weight), weight[0].numel())) for name, weight in layers.items()}
    for step in range(steps):
        for group in stepper.param_groups:
            group["lr"] = recipe.lr * share_of_peak(recipe, batches.per_epoch, step)
        stepper.zero_grad(set_to_none=True)
        cross_entropy(network(feed(step)), target[batches(step).to(data.device)]).backward()
        for name, weight in layers.items():
            sums[name][step // options.third] += weight.grad.double().flatten(1).cpu().numpy()
        stepper.step()
    for name, means in sums.items():
        means[3] = means[:3].sum(0)
        units = means / np.maximum(np.linalg.norm(means, axis=2, keepdims=True), 1e-300)
        found = np.stack([(units[one] * units[other]).sum(1) for one, other in PAIRS.values()], axis=1)
        yield view.splits[0], f"{name}/cosines", found
        for pair, value in zip(PAIRS, found.mean(0), strict=True):
            yield view.splits[0], f"{name}/mean/{pair}", value
