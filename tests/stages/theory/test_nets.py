"""The batched two-layer numerics against autograd and against float64 NumPy."""

import numpy as np
import pytest
import torch

from granularity.stages.theory import nets


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


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
    "smoothed relu": nets.smoothed_relu(4, 0.28),
    "tanh": nets.TANH,
    "sigmoid": nets.SIGMOID,
}


def test_dictionary_is_orthonormal_and_refuses_too_many():
    v = nets.orthonormal(7, 9, generator(), torch.float64)
    assert torch.allclose(v @ v.T, torch.eye(7, dtype=torch.float64), atol=1e-12)
    with pytest.raises(ValueError, match="at most d orthonormal"):
        nets.orthonormal(10, 9, generator())


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slope_is_the_derivative(name):
    z = torch.randn(1000, generator=generator(), dtype=torch.float64, requires_grad=True)
    phi = ACTIVATIONS[name]
    (by_autograd,) = torch.autograd.grad(phi.value(z).sum(), z)
    assert torch.allclose(phi.slope(z.detach()), by_autograd, atol=1e-12)


def test_smoothed_relu_is_continuous_and_exact():
    q, width = 8, 0.28
    phi = nets.smoothed_relu(q, width)
    z = torch.tensor([-1.0, 0.0, width / 2, width, 2 * width], dtype=torch.float64)
    expected = [0, 0, (width / 2) ** q / (q * width ** (q - 1)), width / q, 2 * width - (1 - 1 / q) * width]
    assert torch.allclose(phi.value(z), torch.tensor(expected, dtype=torch.float64), atol=1e-15)
    assert torch.allclose(phi.slope(z), torch.tensor([0, 0, 0.5**7, 1, 1], dtype=torch.float64))


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


def test_hinge_against_autograd():
    outputs = torch.randn(2, 9, generator=generator(), dtype=torch.float64, requires_grad=True)
    signs = torch.where(torch.rand(2, 9, generator=generator(1)) < 0.5, -1.0, 1.0).double()
    loss = (1 - signs * outputs).clamp_min(0)
    (wanted,) = torch.autograd.grad(loss.sum(), outputs)
    mean, residual = nets.hinge_residual(outputs.detach(), signs)
    assert torch.allclose(mean, loss.mean(1)) and torch.equal(residual, -wanted)


def test_descent_step_against_numpy():
    x, labels, weights = problem(runs=2)
    lr, decay = torch.tensor([[[0.1]], [[0.3]]], dtype=torch.float64), 0.01
    f, h, u = nets.two_layer(x, weights["w"], weights["a"], nets.RELU, weights["b"])
    _, residual = nets.softmax_residual(f, labels)
    down = nets.two_layer_gradient(x, nets.RELU.slope(u), h, weights["a"], residual)["w"]
    new = nets.descend(weights["w"], down, lr, decay)
    for run in range(2):
        w, a, b = (weights[key][run].numpy() for key in ("w", "a", "b"))
        pre = x[run].numpy() @ w.T + b
        logits = np.maximum(pre, 0) @ a.T
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        p[np.arange(len(p)), labels[run].numpy()] -= 1
        gradient = (((p @ a) * (pre > 0)).T @ x[run].numpy()) / len(p)
        expected = w - lr[run].item() * (gradient + decay * w)
        np.testing.assert_allclose(new[run].numpy(), expected, rtol=1e-12)


def test_cosine_of_a_zero_vector_is_zero():
    a = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert nets.cosine(a, torch.tensor([3.0, 4.0])).tolist() == pytest.approx([1, 0])
