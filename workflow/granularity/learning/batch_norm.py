"""Batch normalisation of batches in parts: those of several processes, and micro-batches."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F

from granularity.machine.processes import Sum, size
from granularity.machine.processes import total as sum_over_processes


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


class RunningMoments:
    """Running moments of a network whose batches are made up of micro-batches, each normalised by its own moments.

    A step moves them once, by the mean of what its micro-batches say, whoever computed them: so neither the order nor
    the number of processes counts.
    """

    def __init__(self, network: torch.nn.Module):
        moving = [
            module
            for module in network.modules()
            if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.running_mean is not None
        ]
        self._counts = [module.num_batches_tracked for module in moving]
        self._moments = [moment for module in moving for moment in (module.running_mean, module.running_var)]
        self._steps: list[torch.Tensor] = []
        self._before: list[torch.Tensor] = []
        self._sums: list[torch.Tensor] = []

    @torch.no_grad()
    def begin(self) -> None:
        """Before the first micro-batch of a step."""
        self._steps = [steps.clone() for steps in self._counts]
        self._before = [moment.clone() for moment in self._moments]
        self._sums = [torch.zeros_like(moment) for moment in self._moments]

    @torch.no_grad()
    def add(self) -> None:
        """After both passes of each micro-batch."""
        for moment, before, total in zip(self._moments, self._before, self._sums, strict=True):
            total += moment
            moment.copy_(before)
        for steps, before in zip(self._counts, self._steps, strict=True):
            steps.copy_(before)

    @torch.no_grad()
    def end(self, count: int) -> None:
        """After the last one; `count` is the number of micro-batches of all processes."""
        if not self._moments:
            return
        flat = torch.cat([part.reshape(-1) for part in self._sums])
        whole = sum_over_processes(flat) / count
        for moment, part in zip(self._moments, whole.split([one.numel() for one in self._moments]), strict=True):
            moment.copy_(part.view_as(moment))
        for steps in self._counts:
            steps += 1


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
