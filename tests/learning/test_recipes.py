"""Recipes: what they refuse, clipping, schedules, those of the paper; and optimisers, resumed to the same bytes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from timm.optim import list_optimizers

from granularity.config import files
from granularity.learning.networks.network import build
from granularity.learning.options import Recipe
from granularity.learning.training.loop import minimise, optimiser, share_of_peak
from granularity.plan.trainings import transfers


@pytest.mark.parametrize("clip", [None, 0.5, 5.0, 100.0])
def test_a_gradient_is_clipped_to_a_norm_over_all_weights(clip):
    """On a . weights, the gradient is a: (3, 4, 0, 12), of norm 13, in two tensors."""
    network = torch.nn.Linear(3, 1)
    before = torch.cat([network.weight[0].detach(), network.bias.detach()])

    def gradients_at(step: int) -> torch.Tensor:
        loss = network.weight[0] @ torch.tensor([3.0, 4.0, 0.0]) + 12 * network.bias[0]
        loss.backward()
        return loss.detach()

    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    minimise(network, Recipe(epochs=1, warmup_epochs=0, clip_norm=clip), gradients_at, 1, 0, optimizer=sgd)
    moved = before - torch.cat([network.weight[0].detach(), network.bias.detach()])
    length = 0.1 * min(13, clip or 13)
    torch.testing.assert_close(moved, torch.tensor([3.0, 4.0, 0.0, 12.0]) / 13 * length, rtol=1e-4, atol=1e-6)


PAPER = {
    "R1": (122, {0: 1.6 / 855, 854: 1.6, 122 * 90 - 1: 0.0}),
    "R2": (488, {3416: 0.4, 3416 + 41.5 * 488: 0.2}),
    "R3": (3111, {4999: 5e-4, 10_000: 1e-3, (10_000 + 90 * 3111) / 2: 5.05e-4, 90 * 3111 - 1: 1e-5}),
    "R4c": (3111, {0: 1e-3, 3 * 3111: 1e-3, 6.5 * 3111: 5.05e-4, 31109: 1e-5}),
    "R5": (2502, {249: 6e-2 * 250 / 501, 500: 6e-2, (500 + 8 * 2502) / 2: 3e-2}),
    "R6": (2502, {0: 0.9, 1250: 0.9, 1251: 0.9 * 0.97, 40 * 2502 - 1: 0.9 * 0.97**79}),
}


def recipe_of_the_paper(name: str) -> Recipe:
    """A recipe of docs/recipes.md, in the experiment that runs it."""
    file = {"R1": "imagenet1k_resnet50", "R2": "imagenet1k_resnet50", "R3": "imagenet21k_vit_b16"}
    file |= {"R4c": "imagenet21k_vit_b16", "R5": "imagenet21k_to_1k", "R6": "imagenet21k_to_1k"}
    root = Path(__file__).parents[2]
    config = files.load(root / f"config/examples/{file[name]}.yaml", inputs=False)
    ways = {transfer.name: transfer.recipe for transfer in transfers(config)}
    found = {"R1": config.pretrain, "R2": config.finetune, "R3": config.pretrain}
    return found.get(name) or ways[{"R4c": "r4c-4096", "R5": "r5_lr-0.06", "R6": "r6"}[name]]


def test_the_papers_vit_has_its_dropout():
    root = Path(__file__).parents[2]
    file = root / "config/examples/imagenet21k_vit_b16.yaml"
    config = files.load(file, inputs=False)
    with torch.device("meta"):
        network = build(config.model, 3, 21843, 0, config.pretrain.head_bias)
    rates = [module.p for module in network.modules() if isinstance(module, torch.nn.Dropout)]
    assert rates.count(0.1) == 1 + 3 * 12  # after the embedding; in each block after attention and twice in the MLP
    assert sum(rates) == pytest.approx(3.7)
    assert network.head.weight.shape == (21843, 768)


@pytest.mark.parametrize("name", PAPER)
def test_the_recipes_of_the_paper_have_its_learning_rates(name):
    per_epoch, expected = PAPER[name]
    options = recipe_of_the_paper(name)
    for step, rate in expected.items():
        found = options.lr * share_of_peak(options, per_epoch, step)
        assert found == pytest.approx(rate, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("hold", [0, 30])
@pytest.mark.parametrize("final", [0, 0.2])
def test_the_schedule_has_its_closed_form(hold, final):
    steps, warmup = 110, 10
    step = np.arange(steps)
    along = np.clip((step - warmup - hold) / (steps - warmup - hold), 0, 1)
    values = {"lr": 1, "epochs": steps, "warmup_epochs": warmup, "hold_epochs": hold, "final_lr": final}
    values |= {"step_epochs": 12.5, "step_factor": 0.5}

    def shares(shape: str) -> list[float]:
        options = Recipe(schedule=shape, **values)
        return [share_of_peak(options, 1, i) for i in range(steps)]

    for shape, left in (("cosine", np.cos(np.pi * along / 2) ** 2), ("linear", 1 - along)):
        expected = np.where(step < warmup, (step + 1) / 11, final + (1 - final) * left)
        np.testing.assert_allclose(shares(shape), expected, atol=1e-12)
    expected = np.maximum(final, 0.5 ** np.floor(np.clip(step - warmup - hold, 0, None) / 12.5))
    np.testing.assert_allclose(shares("step"), np.where(step < warmup, (step + 1) / 11, expected))


# ---------------------------------------------------------------- optimisers


@pytest.mark.parametrize("kind", ["sgd", "nesterov", "adam", "adamw"])
def test_two_steps_are_those_of_the_textbook(kind):
    """On w^2 / 2 with weight decay, which sgd and adam add to the gradient, and adamw takes off the weight."""
    nesterov, given = kind == "nesterov", {"lr": 0.1, "weight_decay": 0.03}
    options = Recipe(optimizer="sgd" if nesterov else kind, nesterov=nesterov, **given)
    ours, theirs = (torch.nn.Parameter(torch.full((3,), 2.0)) for _ in range(2))
    of_torch = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(kind)
    textbook = of_torch([theirs], **given) if of_torch else None
    textbook = textbook or torch.optim.SGD([theirs], momentum=0.9, nesterov=nesterov, **given)
    chosen = optimiser([ours], options)
    for _ in range(2):
        for one, weight in ((chosen, ours), (textbook, theirs)):
            one.zero_grad()
            (weight**2 / 2).sum().backward()
            one.step()
        torch.testing.assert_close(ours, theirs)


# Without those that need a GPU, and kron, which takes half a minute.
OURS = [name for name in list_optimizers() if not name.startswith(("bnb", "fused", "kron"))]


class Killed(Exception):
    pass


def trained(name: str, place: Path | None = None, kill: int | None = None) -> torch.Tensor:
    """Weights of a tiny network after twelve steps."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))

    def gradients_at(step: int) -> torch.Tensor:
        if step == kill:
            raise Killed
        loss = network(torch.randn(8, 4, generator=torch.Generator().manual_seed(step))).square().mean()
        loss.backward()
        return loss.detach()

    minimise(network, Recipe(optimizer=name, lr=0.01, epochs=3, warmup_epochs=1), gradients_at, 4, 0, place)
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


@pytest.mark.parametrize("name", ["sgd", "adamw", "lookahead_adam", *(n for n in OURS if n != "adahessian")])
def test_every_optimiser_of_timm_trains_and_resumes_to_the_same_bytes(tmp_path, name, checkpoint_always):
    """With states that are counters, lists, halves and random numbers, and options that change as they run."""
    undisturbed = trained(name)
    with pytest.raises(Killed):
        trained(name, tmp_path / "checkpoint", kill=7)
    assert torch.equal(trained(name, tmp_path / "checkpoint"), undisturbed)
    assert torch.isfinite(undisturbed).all()


def test_options_of_an_optimiser_reach_it():
    network = torch.nn.Linear(2, 2)
    for name in ("adamw", "lion", "lamb"):
        found = optimiser(network.parameters(), Recipe(optimizer=name, optimizer_args={"betas": [0.5, 0.6]}))
        (group,) = found.param_groups
        assert list(group["betas"]) == [0.5, 0.6]
        assert group["weight_decay"] == 5e-4 and len(group["params"]) == 2  # bias and all
