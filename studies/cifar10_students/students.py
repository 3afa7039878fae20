"""Students of a trained network on mixtures of images and other inputs, all labelled by it (Shi, Wei, Liang 2022, 6).

The teacher, a network of `teachers`, labels images and unlabelled inputs U by its largest output. Students learn as
many inputs as there are training images, a share ALPHA of them from U; accuracy is the share of test inputs on which
they agree with the teacher. Other networks have no rows. For each U (`gaussian`: each pixel with the mean and standard
deviation that it has in the training images; else a split, half of it to train on), under the first of `splits`:

- `U/counts`: on U, how often the teacher's most frequent class is predicted over how often its rarest is;
- `U/majority`, `images/majority`: the accuracy of always saying the most frequent class, in percent;
- `U/ALPHA/PART/EPOCH`: a student's accuracy in percent after an epoch; PART is `images`, `others` or `whole`, which has
  the mixture's shares. ALPHA 0 is the student on images alone;
- `U/ALPHA-alone/PART/EPOCH`: of a student on only those images of the mixture, for as many steps.
"""

from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Count, Section, Share
from granularity.base.seeds import seed_of
from granularity.learning.options import Model, Recipe

EXTENDS = "measure"


class Options(Section):
    teachers: dict[str, str] = Field(description="Names of networks, and what each labels: `gaussian`, or a split.")
    alphas: list[Share] = Field([0.5], description="Shares of other inputs; 0 is there anyway.")
    alone: list[Share] = Field([], description="Shares for which the images of the mixture are learnt alone as well.")
    model: Model = Model()
    recipe: Recipe = Recipe()
    epochs: list[Count] = Field([1], description="Epochs after which students are tested, beside the last.")
    tested: Count = Field(5000, description="Test inputs of each kind, at most.")


def measure(view, options: Options, seed: int):
    import torch

    if (name := options.teachers.get(view.about["network"])) is None:
        return
    data, split = view.data, view.splits[0]
    images, test = data.images(data.train), data.images(view.rows(split)[: options.tested])
    source = torch.Generator().manual_seed(seed_of(seed, "students", name))
    images = images[torch.randperm(len(images), generator=source)]
    if name == "gaussian":
        drawn = torch.randn(len(images) + len(test), *images.shape[1:], generator=source).to(images.device)
        others = images.mean(0) + images.std(0) * drawn
    else:
        others = data.images(view.rows(name))
        others = others[torch.randperm(len(others), generator=source)]
    half = len(images) if name == "gaussian" else len(others) // 2
    if half < max(options.alphas) * len(images):
        raise GranularityError(f"options.teachers: half of '{name}' is {half} images, too few for options.alphas")
    others, tested = others[:half], others[half : half + len(test)]
    said = {key: says(view.network, one) for key, one in (("images", images), ("others", others))}
    asked = {"images": (test, says(view.network, test)), "others": (tested, says(view.network, tested))}
    counts = said["others"].bincount(minlength=len(view.answers))
    yield split, f"{name}/counts", float(counts.max() / counts.min().clamp(min=1))
    for key, part in (("images", "images"), (name, "others")):
        yield split, f"{key}/majority", 100 * float(asked[part][1].bincount().max()) / len(asked[part][1])
    for alpha, alone in [(0.0, False), *((a, False) for a in options.alphas), *((a, True) for a in options.alone)]:
        count = round((1 - alpha) * len(images))
        more = 0 if alone else len(images) - count
        x, y = torch.cat([images[:count], others[:more]]), torch.cat([said["images"][:count], said["others"][:more]])
        for epoch, part, value in learnt(x, y, asked, view.answers, alpha if more else 0.0, options, seed, len(images)):
            yield split, f"{name}/{alpha:g}{'-alone' if alone else ''}/{part}/{epoch}", value


def learnt(x, y, asked, answers, alpha: float, options: Options, seed: int, whole: int):
    """Train a student for as many steps as `whole` inputs take; its accuracies by epoch of those and by part."""
    from torch.nn.functional import cross_entropy

    from granularity.learning.data.order import Batches
    from granularity.learning.networks.network import build
    from granularity.learning.training.loop import minimise

    recipe, own = options.recipe, seed_of(seed, "student")
    network = build(options.model, x.shape[1], len(answers), own).to(x.device)
    batches, found = Batches(len(x), recipe.batch_size, own), []

    def gradients_at(step: int):
        picked = batches(step).to(x.device)
        loss = cross_entropy(network(x[picked]), y[picked])
        loss.backward()
        return loss.detach()

    def after_epoch(epoch: int) -> None:
        if epoch in (*options.epochs, recipe.epochs):
            right = {part: 100 * float((says(network, z) == told).float().mean()) for part, (z, told) in asked.items()}
            right["whole"] = (1 - alpha) * right["images"] + alpha * right["others"]
            found.extend((epoch, part, value) for part, value in right.items())

    minimise(network, recipe, gradients_at, whole // recipe.batch_size, own, after_epoch=after_epoch)
    return found


def says(network, inputs):
    """The class of each input by a network's largest output, int64 [N]."""
    import torch

    network.eval()
    with torch.inference_mode():
        return torch.cat([network(part).argmax(1) for part in inputs.split(512)]).clone()
