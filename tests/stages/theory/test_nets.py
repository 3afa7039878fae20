"""The batched two-layer numerics against autograd and against float64 NumPy."""

import pytest
import torch

from granularity.stages.theory import nets
from support.worlds import generator


def problem(runs=3, n=7, d=5, m=6, c=4, dtype=torch.float64):
    draw = generator()

    def normal(*shape):
        return torch.randn(*shape, generator=draw, dtype=dtype)

    weights = {"w": normal(runs, m, d), "b": normal(runs, m), "a": normal(runs, c, m), "c": normal(runs, c)}
    return normal(runs, n, d), torch.randint(c, (runs, n), generator=draw), weights


ACTIVATIONS = {
    "relu": nets.RELU,
    "identity": nets.IDENTITY,
    "truncated relu": nets.TRUNCATED_RELU,
    "leaky relu": nets.leaky_relu(0.1),
    "tanh": nets.TANH,
    "sigmoid": nets.SIGMOID,
}


def test_dictionary_is_orthonormal():
    v = nets.orthonormal(7, 9, generator(), torch.float64)
    assert torch.allclose(v @ v.T, torch.eye(7, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slope_is_the_derivative(name):
    z = torch.randn(1000, generator=generator(), dtype=torch.float64, requires_grad=True)
    phi = ACTIVATIONS[name]
    (by_autograd,) = torch.autograd.grad(phi.value(z).sum(), z)
    assert torch.allclose(phi.slope(z.detach()), by_autograd, atol=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradient_against_autograd(name):
    x, labels, weights = problem()
    phi = ACTIVATIONS[name]
    weights = {key: value.requires_grad_() for key, value in weights.items()}
    f, h, u = nets.two_layer(x, weights["w"], weights["a"], phi, weights["b"], weights["c"])
    loss = torch.nn.functional.cross_entropy(f.flatten(0, 1), labels.flatten(), reduction="none")
    wanted = torch.autograd.grad(loss.view(labels.shape).mean(1).sum(), list(weights.values()))
    with torch.no_grad():
        mean, residual = nets.softmax_residual(f, labels)
        got = nets.two_layer_gradient(x, phi.slope(u), h, weights["a"], residual)
    assert torch.allclose(mean, loss.view(labels.shape).mean(1))
    for name_of, reference in zip(weights, wanted, strict=True):
        assert torch.allclose(got[name_of], -reference, atol=1e-12), name_of
        alone = nets.two_layer_gradient(x, phi.slope(u), h, weights["a"].detach(), residual, (name_of,))
        assert list(alone) == [name_of] and torch.equal(alone[name_of], got[name_of])
