"""Networks of timm without their heads: `encoder.model: timm:NAME`, timm:hf-hub:ORG/NAME or timm:local-dir:PATH."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import load_file
from timm.data import create_transform, resolve_model_data_config

from granularity.base.errors import GranularityError
from granularity.learning.clip_options import Encoder
from granularity.learning.encoders import Loaded
from granularity.learning.encoders import open_clip as hub

WEIGHTS, CONFIG, LOCAL, HUB = "model.safetensors", "config.json", "local-dir:", "hf-hub:"
RANDOM = "random"  # weights drawn from a fixed seed, for tests
KEPT = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")  # entries of timm's data configuration


def load(encoder: Encoder, trained: Path | None, device: torch.device) -> Loaded:
    """Load a network in evaluation mode, with the section's weights or, if it names none, those that timm publishes."""
    called, (name, _, asked) = f"encoder.model = {encoder.model}", encoder.name.partition("@")
    weights, revision = encoder.pretrained, None
    if weights is None and name.startswith(LOCAL):
        weights = str(Path(name.removeprefix(LOCAL), WEIGHTS))
    elif weights is None:
        repository = name.removeprefix(HUB)
        if not name.startswith(HUB):
            repository = getattr(timm.get_pretrained_cfg(name, allow_unregistered=True), "hf_hub_id", None)
        if not repository:
            raise GranularityError(f"{called}: timm publishes no weights of it; set encoder.pretrained to a file")
        file, revision = hub.downloaded(called, repository, asked or None, WEIGHTS)
        if name.startswith(HUB):
            config, _ = hub.downloaded(called, repository, revision, CONFIG)
            name = f"{LOCAL}{config.parent}"
        weights = str(file)
    tensors = None
    if weights != RANDOM:
        if not weights.endswith(".safetensors") or not Path(weights).is_file():
            raise GranularityError(f"{called}: {weights} is not a safetensors file; other files may contain code")
        tensors = _tried(called, lambda: load_file(weights))
    network = _network(called, name, tensors).to(device)
    data = resolve_model_data_config(network)
    prepared = {key: list(value) if isinstance(value := data[key], tuple) else value for key in KEPT}
    pooling = getattr(network, "global_pool", None) or getattr(network, "head", None)
    pooling = getattr(pooling, "pool_type", getattr(getattr(pooling, "global_pool", None), "pool_type", pooling))
    layers = {type(layer).__name__ for layer in network.modules() if isinstance(layer, hub.ACTIVATIONS)}
    prepared |= {"pooling": pooling if isinstance(pooling, str) else "its own", "activations": sorted(layers)}
    about: dict[str, Any] = {"architecture": network.pretrained_cfg["architecture"]}
    about |= {"weights_sha256": hub.weights_digest(network), "preprocessing": prepared}
    transform = create_transform(**data, is_training=False)
    return Loaded(transform, network, about | ({} if revision is None else {"revision": revision}))


def check(encoder: Encoder) -> Iterator[str]:
    """Yield errors: an unknown architecture, one that gives no features, or weights that are not a file."""
    name, weights = encoder.name.partition("@")[0], encoder.pretrained
    if weights not in (None, RANDOM) and not (weights.endswith(".safetensors") and Path(weights).is_file()):
        yield f"pretrained: '{weights}' is not a safetensors file; set null (timm's published weights) or '{RANDOM}'"
    if weights is None and name.startswith(LOCAL) and not Path(name.removeprefix(LOCAL), WEIGHTS).is_file():
        yield f"model: {name.removeprefix(LOCAL)} contains no {WEIGHTS}; convert the weights, or set encoder.pretrained"
    if not name.startswith(HUB):
        try:
            with torch.device("meta"):
                _network("model", name, None)
        except GranularityError as error:
            yield str(error)


def trial(encoder: Encoder, device: torch.device) -> Loaded:
    """Return the network with random weights."""
    if encoder.name.startswith(HUB):
        raise GranularityError(f"{encoder.model} is loaded only when it is used")
    return load(encoder.model_copy(update={"pretrained": RANDOM}), None, device)


def _network(called: str, name: str, tensors: dict[str, torch.Tensor] | None) -> torch.nn.Module:
    """Return a frozen network of timm. Its head is removed after loading, so that all weights fit."""
    over = {"source": "", "state_dict": tensors}

    def create() -> torch.nn.Module:
        torch.manual_seed(0)
        return timm.create_model(name, pretrained=tensors is not None, pretrained_cfg_overlay=over if tensors else None)

    network = _tried(called, create).eval().requires_grad_(False)
    network.pretrained_cfg.pop("state_dict", None)
    try:
        network.reset_classifier(0)
        heads = network.get_classifier()
        heads = heads if isinstance(heads, tuple) else (heads,)
        why = None if all(isinstance(head, torch.nn.Identity) for head in heads) else "timm cannot remove its head"
        if why is None:
            images = torch.zeros(2, 3, *network.pretrained_cfg["input_size"][1:]).to(next(network.parameters()))
            with torch.inference_mode():
                rows = network(images)
            why = f"it returns {tuple(rows.shape[1:])}" if rows.ndim != 2 else None
    except Exception as error:  # any error of the network
        why = hub.reason(error)
    if why is not None:
        problem = "without its head, it does not give one vector per RGB image"
        raise GranularityError(f"{called}: {problem} ({why}); choose another")
    return network


def _tried(called: str, call: Any) -> Any:
    try:
        return call()
    except Exception as error:
        raise GranularityError(f"{called}: timm cannot load it ({hub.reason(error)})") from error
