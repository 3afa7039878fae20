"""Batch normalisation for batches in parts: shares of several processes, and micro-batches."""

import torch

from granularity.base.errors import GranularityError
from granularity.machine import processes


def synchronised(network: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """Return a network whose batch normalisation spans all processes, by torch's own layers. Raise GranularityError if
    the processes compute on CPUs, for which torch (2.13) has no such layers.
    """
    if processes.size() == 1 or not _normalised(network):
        return network
    if device.type == "cpu":
        raise GranularityError(
            "processes: on CPUs, batches cannot be normalised over several processes; set micro_batch in the recipe, "
            "such as to batch_size / processes"
        )
    from timm.layers import convert_sync_batchnorm  # torch's would drop the activation in timm's fused layers

    return convert_sync_batchnorm(network)


def _normalised(network: torch.nn.Module) -> list[torch.nn.Module]:
    return [module for module in network.modules() if isinstance(module, torch.nn.modules.batchnorm._NormBase)]


class RunningMoments:
    """Running moments of a network with micro-batches: each step updates them once, by the micro-batches' mean."""

    def __init__(self, network: torch.nn.Module):
        moving = [module for module in _normalised(network) if module.running_mean is not None]
        self._counts = [module.num_batches_tracked for module in moving]
        self._moments = [moment for module in moving for moment in (module.running_mean, module.running_var)]
        self._all = self._counts + self._moments

    def begin(self) -> None:
        """Call before the first micro-batch of a step."""
        self._before = [one.clone() for one in self._all]
        self._sums = [torch.zeros_like(moment) for moment in self._moments]

    def add(self) -> None:
        """Call after the forward and backward pass of each micro-batch."""
        for moment, total in zip(self._moments, self._sums, strict=True):
            total += moment
        for one, before in zip(self._all, self._before, strict=True):
            one.copy_(before)

    def end(self, count: int) -> None:
        """Call after the last micro-batch; `count` is the number of micro-batches of all processes."""
        if self._moments:
            whole = processes.total(torch.cat(self._sums)) / count
            for moment, part in zip(self._moments, whole.split([len(one) for one in self._moments]), strict=True):
                moment.copy_(part)
        for steps in self._counts:
            steps += 1
