"""open_clip models, loaded by open_clip's own calls from a name, a hub, a folder or a configuration file."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import open_clip
import torch

from granularity.base.errors import GranularityError
from granularity.learning.clip_options import Encoder

WEIGHTS = "open_clip_model.safetensors"
CONFIG = "open_clip_config.json"
PARTS = {"embed_dim": int, "vision_cfg": dict, "text_cfg": dict}  # of a model configuration


def architecture(model: str) -> str:
    """The open_clip name of a model, registering it first if it is a configuration file.

    Raises:
        GranularityError: not an architecture that open_clip knows, or not a configuration of one.
    """
    if model.startswith(("hf-hub:", "local-dir:")):
        return model
    name = model
    if model.endswith(".json"):
        name = Path(model).stem
        try:
            values = json.loads(Path(model).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise GranularityError(f"{model}: not an open_clip model configuration ({error})") from None
        for key, kind in PARTS.items():  # open_clip would remember a file that is none
            if not isinstance(values, dict) or not isinstance(values.get(key), kind):
                raise GranularityError(f"{model}: not an open_clip model configuration (it needs {', '.join(PARTS)})")
        open_clip.add_model_config(Path(model))
    if open_clip.get_model_config(name) is None:
        raise GranularityError(f"encoder.model = {model}: open_clip knows no such architecture")
    return name


def configuration_file(model: str) -> Path | None:
    """The file that describes a model's architecture, where it is a file of the user's."""
    if model.startswith("local-dir:"):
        return Path(model.removeprefix("local-dir:"), CONFIG)
    return Path(model) if model.endswith(".json") else None


def configuration(model: str) -> dict | None:
    """The contents of that file; read them after the model, whose loading says what is wrong with them."""
    file = configuration_file(model)
    return json.loads(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else None


def fresh(model: str, device: torch.device) -> tuple[torch.nn.Module, Callable, Callable]:
    """A model without weights, its evaluation transform and its tokenizer.

    Raises:
        GranularityError: open_clip cannot make one of what its configuration says.
    """
    from PIL import Image

    name = architecture(model)
    try:
        network, _, transform = open_clip.create_model_and_transforms(name, device=device)
        transform(Image.new("RGB", (8, 8)))  # which is where a size that is none shows
        return network, transform, open_clip.get_tokenizer(name)
    except Exception as error:
        raise GranularityError(f"encoder.model = {model}: open_clip cannot make it ({error!r})") from error


def load(encoder: Encoder, trained: Path | None, device: torch.device) -> tuple[torch.nn.Module, Callable]:
    """A frozen encoder and its evaluation transform (PIL image to float tensor [3, S, S]).

    Args:
        encoder: the section that names model and weights.
        trained: the folder of the encoder trained here, if it was.

    Raises:
        GranularityError: an unknown name, unreadable weights, or a hub model that is neither cached nor reachable.
    """
    if trained is not None:
        name, pretrained, hub = f"local-dir:{trained}", None, False
    else:
        name, pretrained = architecture(encoder.model), encoder.pretrained
        hub = name.startswith("hf-hub:")
        if pretrained is not None and not Path(pretrained).is_file():
            tags = open_clip.list_pretrained_tags_by_model(name)
            if pretrained not in tags:
                known = tags or "none: not an open_clip architecture with published weights"
                raise GranularityError(f"encoder.pretrained = {pretrained}: no file, and not a tag of {name} ({known})")
            hub = True
    if hub:
        _offline_if_unreachable()
    try:
        model, _, transform = open_clip.create_model_and_transforms(
            name, pretrained=pretrained, device=device, require_pretrained=True
        )
    except Exception as error:
        if hub and os.environ.get("HF_HUB_OFFLINE") == "1":
            raise GranularityError(
                f"encoder = {name} {pretrained or ''}: its weights are not in the local cache and the hub cannot be "
                "reached (HF_HUB_OFFLINE=1); run once with a network, or name a local file or local-dir:"
            ) from error
        raise GranularityError(f"encoder = {name} {pretrained or ''}: open_clip cannot load it ({error})") from error
    return model.eval().requires_grad_(False), transform


def weights_digest(model: torch.nn.Module) -> str:
    """SHA-256 over the names and values of all weights, for the record of which encoder this was."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _offline_if_unreachable() -> None:
    """Without a network, huggingface_hub retries for minutes before it looks into its cache."""
    proxied = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if "HF_HUB_OFFLINE" in os.environ or proxied:
        return
    endpoint = urlparse(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((endpoint.hostname, endpoint.port or 443), timeout=1.0).close()
    except OSError:
        from huggingface_hub import constants

        os.environ["HF_HUB_OFFLINE"] = "1"
        constants.HF_HUB_OFFLINE = True  # it has read the environment at import
