"""Numerics of two-layer networks without autograd; shapes: B runs, N samples, d inputs, m hidden units, C outputs."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

PIECE = 1 << 15  # numbers that a CPU processes at once, so that they and their results fit into its cache


def orthonormal(rows: int, d: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return (rows, d) with orthonormal rows, uniformly random: QR of a Gaussian matrix in float64, fixed signs."""
    gauss = torch.randn(d, rows, generator=generator, dtype=torch.float64, device=generator.device)
    q, r = torch.linalg.qr(gauss)
    return (q * r.diagonal().sign()).T.contiguous().to(dtype)


@dataclass(frozen=True)
class Activation:
    """A pointwise function and its derivative (at kinks: the left derivative, so relu'(0) = 0)."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    both: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None  # if they share work

    def pair(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and slope; a CPU computes them in pieces."""
        if self.both is None:
            return self.value(z), self.slope(z)
        if z.is_cuda or z.numel() <= PIECE:
            return self.both(z)
        value, slope = torch.empty_like(z), torch.empty_like(z)
        for part, *outputs in zip(*(whole.view(-1).split(PIECE) for whole in (z, value, slope)), strict=True):
            for output, new in zip(outputs, self.both(part), strict=True):
                output.copy_(new)
        return value, slope


# Compared into a float tensor, because casting a bool tensor takes nine times as long on a CPU.
RELU = Activation(torch.relu, lambda z: torch.gt(z, 0, out=torch.empty_like(z)))
IDENTITY = Activation(lambda z: z, torch.ones_like)
TRUNCATED_RELU = Activation(
    lambda z: z.clamp(0, 1),
    lambda z: torch.gt(z, 0, out=torch.empty_like(z)).mul_(torch.lt(z, 1, out=torch.empty_like(z))),
)
TANH = Activation(torch.tanh, lambda z: 1 - torch.tanh(z) ** 2)
SIGMOID = Activation(torch.sigmoid, lambda z: torch.sigmoid(z) * (1 - torch.sigmoid(z)))


def leaky_relu(below: float) -> Activation:
    """Return an activation with slope 1 above zero and `below` under it."""
    return Activation(
        lambda z: torch.where(z > 0, z, below * z),
        lambda z: torch.where(z > 0, torch.ones_like(z), torch.full_like(z, below)),
    )


# ---------------------------------------------------------------- losses and gradients


def softmax_residual(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean cross-entropy (B,) of logits (B, N, C), labels (B, N) int64; ``onehot(label) - softmax``."""
    log_p = torch.log_softmax(logits, -1)
    picked = log_p.gather(-1, labels.unsqueeze(-1))
    residual = -log_p.exp()
    residual.scatter_add_(-1, labels.unsqueeze(-1), torch.ones_like(picked))
    return -picked.squeeze(-1).mean(-1), residual


def hinge_residual(outputs: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hinge loss max(1 - y h, 0), mean (B,), and minus its gradient y 1[y h < 1] (B, N); y = +-1."""
    margin = 1 - signs * outputs
    return margin.clamp_min(0).mean(-1), signs * (margin > 0).to(outputs.dtype)


def two_layer(
    x: Tensor, w: Tensor, a: Tensor, phi: Activation, b: Tensor | None = None, c: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``a phi(w x + b) + c`` (B, N, C), hidden units, pre-activations (B, N, m); b (B, m), c (B, C) or None."""
    u = torch.bmm(x, w.transpose(1, 2)) if b is None else torch.baddbmm(b.unsqueeze(1), x, w.transpose(1, 2))
    h = phi.value(u)
    f = torch.bmm(h, a.transpose(1, 2)) if c is None else torch.baddbmm(c.unsqueeze(1), h, a.transpose(1, 2))
    return f, h, u


def two_layer_gradient(
    x: Tensor, slope: Tensor, h: Tensor, a: Tensor, residual: Tensor, wanted: Collection[str] = ("w", "b", "a", "c")
) -> dict[str, Tensor]:
    """Return minus the gradient of the mean loss in the `wanted` of w (B, m, d), b (B, m), a (B, C, m), c (B, C).

    x, h, a are as in :func:`two_layer`, the slope phi'(u) is (B, N, m), the residual is minus the loss's gradient in
    the outputs, (B, N, C), not divided by N.
    """
    residual = residual / x.shape[1]
    back = torch.bmm(residual, a).mul_(slope)
    directions = {
        "w": lambda: torch.bmm(back.transpose(1, 2), x),
        "b": lambda: back.sum(1),
        "a": lambda: torch.bmm(residual.transpose(1, 2), h),
        "c": lambda: residual.sum(1),
    }
    return {name: directions[name]() for name in wanted}


def descend(weights: Tensor, direction: Tensor, lr: Tensor | float, decay: Tensor | float = 0.0) -> Tensor:
    """Do one step of gradient descent with coupled L2: ``w + lr * (direction - decay * w)``."""
    return weights + lr * (direction - decay * weights)
