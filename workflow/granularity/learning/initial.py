"""Initial weights: of a file that timm published, or of a backbone that another configuration left."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from granularity.base.errors import GranularityError
from granularity.base.strict_json import read_safetensors_header
from granularity.learning.network import head_weights
from granularity.store.artifacts import Artifact, readable
from granularity.store.hashing import digest_of


def weights_of_file(file: Path) -> tuple[dict[str, torch.Tensor], str]:
    """The tensors of a safetensors file, and its SHA-256.

    Raises:
        GranularityError: there is no such file, or it is no safetensors file.
    """
    from safetensors.torch import load_file

    if not file.is_file():
        raise GranularityError(f"init.timm: {file}: there is no such file")
    read_safetensors_header(file)
    with readable(file, "a safetensors file"):
        return load_file(file), digest_of(file)


def copy_backbone(network: torch.nn.Module, weights: dict[str, torch.Tensor], where: str) -> None:
    """Give a network weights of the same architecture, all but the head's, which stays fresh.

    Args:
        where: the name of the weights in messages.

    Raises:
        GranularityError: a tensor is missing, has another shape, or has no place in the network; the line names it.
    """
    head, own = head_weights(network), network.state_dict()
    for name, value in own.items():
        if name in head:
            continue
        if name not in weights:
            raise GranularityError(f"{where}: has no tensor '{name}', which this network has; is it of another model?")
        if weights[name].shape != value.shape:
            theirs, ours = (tuple(one.shape) for one in (weights[name], value))
            raise GranularityError(f"{where}: '{name}' is {theirs}, and this network's {ours}; is it of another model?")
    for name in weights:
        if name not in own and name not in head:
            raise GranularityError(f"{where}: '{name}' has no place in this network; is it of another model?")
    network.load_state_dict({name: value if name in head else weights[name] for name, value in own.items()})


def without_lineage(artifact: Artifact) -> Artifact:
    """An artifact that is used beside others it was not made from, such as a backbone of another data set."""
    return dataclasses.replace(artifact, manifest={**artifact.manifest, "inputs": {}})
