"""Optimisers: the textbook's steps, timm's by name, and all of them resumed to the same bytes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from timm.optim import list_optimizers

from granularity.base.errors import GranularityError
from granularity.learning.loop import minimise
from granularity.learning.optimisers import optimiser
from granularity.learning.options import Recipe
from granularity.learning.packing import pack, unpack


@pytest.mark.parametrize("kind", ["sgd", "nesterov", "adam", "adamw"])
def test_two_steps_are_those_of_the_textbook(kind):
    """On w^2 / 2 from w = 2, with weight decay; sgd and adam add it to the gradient, adamw takes it off the weight."""
    lr, decay, mass = 0.1, 0.03, 0.9
    options = Recipe(
        optimizer="sgd" if kind == "nesterov" else kind, nesterov=kind == "nesterov", lr=lr, weight_decay=decay
    )
    network = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(network.weight, 2.0)
    chosen = optimiser(network.parameters(), options)
    w, velocity, square = 2.0, 0.0, 0.0
    for step in (1, 2):
        chosen.zero_grad()
        (network.weight**2 / 2).sum().backward()
        chosen.step()
        gradient = w + (0 if kind == "adamw" else decay * w)
        if kind in ("sgd", "nesterov"):
            velocity = mass * velocity + gradient
            w -= lr * (gradient + mass * velocity if kind == "nesterov" else velocity)
        else:
            velocity, square = 0.9 * velocity + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
            rate = lr * velocity / (1 - 0.9**step) / (math.sqrt(square / (1 - 0.999**step)) + 1e-8)
            w -= rate + (lr * decay * w if kind == "adamw" else 0)
        assert network.weight.item() == pytest.approx(w, rel=1e-5)


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

    chosen = optimiser(network.parameters(), Recipe(optimizer=name, lr=0.01))
    minimise(network, chosen, gradients_at, 3, 4, 1, 0, checkpoint=place)
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


@pytest.mark.parametrize("name", ["sgd", "adamw", "lookahead_adam", *(n for n in OURS if n != "adahessian")])
def test_every_optimiser_of_timm_trains_and_resumes_to_the_same_bytes(tmp_path, name, checkpoint_always):
    """With states that are counters, lists, halves and random numbers, and options that change as they run."""
    undisturbed = trained(name)
    with pytest.raises(Killed):
        trained(name, tmp_path / "checkpoint", kill=7)
    assert torch.equal(trained(name, tmp_path / "checkpoint"), undisturbed)
    assert torch.isfinite(undisturbed).all()


def test_whatever_a_state_holds_is_packed_and_unpacked():
    """Kron's is like that: lists of tensors, and the state of a generator of random numbers."""
    halves = torch.arange(3).to(torch.bfloat16)
    state = {
        "state": {0: {"Q": [torch.eye(2), torch.ones(1)], "step": 3, "half": halves}, 1: {}},
        "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "dtype": torch.float16, "params": [0, 1]}],
        "rng_state": (3, (1, 2, 3), None),
    }
    arrays = {}
    packed = json.loads(json.dumps(pack(state, "optimizer", arrays)))
    found = unpack(packed, arrays, {"param_groups": [{"dtype": torch.float16}]})
    kept = found["state"][0]
    assert [one.tolist() for one in kept["Q"]] == [[[1, 0], [0, 1]], [1]] and kept["step"] == 3
    assert kept["half"].dtype == torch.bfloat16 and torch.equal(kept["half"], halves)
    assert found["state"][1] == {}
    assert found["param_groups"] == state["param_groups"] and found["rng_state"] == state["rng_state"]


def test_sgd_is_that_of_torch_with_decay_on_all_weights():
    network = torch.nn.Linear(2, 2)
    found = optimiser(network.parameters(), Recipe())
    assert type(found) is torch.optim.SGD
    (group,) = found.param_groups
    assert (group["momentum"], group["weight_decay"], group["foreach"], len(group["params"])) == (0.9, 5e-4, True, 2)


def test_options_of_an_optimiser_reach_it():
    network = torch.nn.Linear(2, 2)
    for name in ("adamw", "lion", "lamb"):
        found = optimiser(network.parameters(), Recipe(optimizer=name, optimizer_args={"betas": [0.5, 0.6]}))
        (group,) = found.param_groups
        assert list(group["betas"]) == [0.5, 0.6]
        assert group["weight_decay"] == 5e-4 and len(group["params"]) == 2  # bias and all


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"optimizer": "adamv"}, "there is no such optimiser; did you mean .*adamw"),
        ({"optimizer": "zzzz"}, r"there is no such optimiser; timm.optim.list_optimizers\(\) has them all"),
        ({"optimizer": "lion", "optimizer_args": {"colour": 1}}, r"lion, optimizer_args = .*colour"),
        ({"optimizer": "sgd", "optimizer_args": {"colour": 1}}, r"sgd, optimizer_args = .*colour"),
        ({"optimizer": "adahessian"}, "needs second derivatives"),
    ],
)
def test_an_optimiser_that_cannot_be_is_one_line(values, words):
    with pytest.raises(GranularityError, match=words) as error:
        optimiser(torch.nn.Linear(2, 2).parameters(), Recipe(**values))
    assert "\n" not in str(error.value)
