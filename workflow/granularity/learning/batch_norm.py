"""Batch normalisation over the whole batch, where several processes share it."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F

from granularity.machine.processes import Sum, size


def synchronised(model: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """On GPUs, batch normalisation over all processes by torch's own layers; elsewhere see :func:`whole_batch`."""
    if size() > 1 and device.type == "cuda":
        from timm.layers import convert_sync_batchnorm  # torch's would drop the activation in timm's fused layers

        return convert_sync_batchnorm(model)
    return model


def whole_batch() -> contextlib.AbstractContextManager:
    """Make ``F.batch_norm`` take its moments over all processes in training, while the context is open.

    For CPUs, which torch.nn.SyncBatchNorm (2.13) refuses.
    """
    return contextlib.nullcontext() if size() == 1 else _WholeBatch()


class _WholeBatch(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.batch_norm:
            function = _batch_norm
        return function(*args, **(kwargs or {}))


def _batch_norm(
    images: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    if not training:
        return F.batch_norm(images, running_mean, running_var, weight, bias, False, momentum, eps)
    values = images.float()
    axes, shape = [0, *range(2, values.dim())], [1, -1] + [1] * (values.dim() - 2)
    count = torch.full((1,), values.numel() // values.shape[1], dtype=torch.float64)
    total = Sum.apply(torch.cat([values.sum(axes, dtype=torch.float64), count]))
    mean, count = total[:-1] / total[-1], total[-1].detach()
    centred = values - mean.float().view(shape)
    variance = Sum.apply(centred.square().sum(axes, dtype=torch.float64)) / count
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.float(), momentum)
            running_var.lerp_((variance * count / (count - 1)).float(), momentum)
    scale = (variance + eps).rsqrt().float()
    found = centred * (scale if weight is None else scale * weight).view(shape)
    return (found if bias is None else found + bias.view(shape)).to(images.dtype)
