"""open_clip models, loaded by open_clip's own calls from a name, a hub, a folder or a configuration file."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

import open_clip
import torch
from open_clip.pretrained import download_pretrained_from_hf
from safetensors import SafetensorError

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.regular import check_regular
from granularity.base.strict_json import read_json, read_safetensors_header
from granularity.data import hub
from granularity.learning.clip_options import Encoder

WEIGHTS = "open_clip_model.safetensors"
CONFIG = "open_clip_config.json"
FILES_OF_WEIGHTS = {".bin", ".npy", ".npz", ".pt", ".pth", ".safetensors"}
ADVICE = re.compile("weights_only|trust_remote_code|pickle|PytorchStreamReader|zip", re.IGNORECASE)
PARTS = {"embed_dim": int, "vision_cfg": dict, "text_cfg": dict}  # of a model configuration
ACTIVATIONS = torch.nn.GELU, torch.nn.ReLU, torch.nn.SiLU, open_clip.transformer.QuickGELU


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
        values = read_json(model, "open_clip model configuration")
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
    return read_json(file) if file is not None and file.is_file() else None


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
        raise GranularityError(f"encoder.model = {model}: open_clip cannot make it ({_reason(error)})") from error


class Loaded(NamedTuple):
    """A frozen encoder, its evaluation transform (PIL image to float tensor [3, S, S]), and the commit of the hub that
    it is of, where it comes from there."""

    model: torch.nn.Module
    transform: Callable
    revision: str | None


def load(encoder: Encoder, trained: Path | None, device: torch.device) -> Loaded:
    """A frozen encoder.

    Args:
        encoder: the section that names model and weights.
        trained: the folder of the encoder trained here, if it was.

    Raises:
        GranularityError: an unknown name, unreadable weights, weights that were trained with another activation than
            the architecture has, or a hub model that is neither cached nor reachable.
    """
    if trained is not None:
        name, pretrained = f"local-dir:{trained}", None
    else:
        name, pretrained = architecture(encoder.model), encoder.pretrained
    called, revision = f"encoder = {name} {pretrained or ''}", None
    if name.startswith("hf-hub:"):
        folder, revision = _downloaded(called, *_pinned(name.removeprefix("hf-hub:")), CONFIG)
        _downloaded(called, name.removeprefix("hf-hub:").partition("@")[0], revision, None)
        name = f"local-dir:{folder.parent}"
    elif pretrained is not None and not Path(pretrained).is_file():
        pretrained, revision = _tag(called, name, pretrained)
    _check_files(name, pretrained)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model, _, transform = open_clip.create_model_and_transforms(
                name, pretrained=pretrained, device=device, require_pretrained=True
            )
    except Exception as error:
        raise GranularityError(f"{called}: open_clip cannot load it ({_reason(error)})") from error
    for one in warned:
        say(f"{called}: {one.message}")
    return Loaded(model.eval().requires_grad_(False), transform, revision)


def check_activation(model: str, tag: str) -> None:
    """Refuse an architecture without the activation that a tag's weights were trained with.

    open_clip only warns, and would compute other embeddings. Where its table says nothing of a tag, the architecture's
    own file counts: so for roberta-ViT-B-32, whose file has QuickGELU.

    Args:
        model: an architecture of open_clip.
        tag: of its published weights.

    Raises:
        GranularityError: the two disagree; the message names the architecture to write.
    """
    if open_clip.get_pretrained_cfg(model, tag).get("quick_gelu"):
        _check_quick_gelu(model, True, f"the weights '{tag}'")


def _check_quick_gelu(model: str, wanted: bool, weights: str) -> None:
    if bool(open_clip.get_model_config(model).get("quick_gelu")) != wanted:
        other = f"{model}-quickgelu" if wanted else model.removesuffix("-quickgelu")
        write = f"model: {other}" if other in open_clip.list_models() else f"quick_gelu: {str(wanted).lower()} in it"
        activation = "QuickGELU" if wanted else "GELU"
        raise GranularityError(f"encoder.model = {model}: {weights} were trained with {activation}; write {write}")


def resolved(model: torch.nn.Module) -> dict[str, Any]:
    """What decides an embedding beside architecture and weights, as it was built.

    `activations`, the names of the image tower's; and open_clip's `size`, `mode`, `mean`, `std`, `interpolation`,
    `resize_mode` and `fill_color` of an image that is prepared for it.
    """
    found = {type(module).__name__ for module in model.visual.modules() if isinstance(module, ACTIVATIONS)}
    prepared = open_clip.get_model_preprocess_cfg(model)
    return {"activations": sorted(found)} | {
        key: list(value) if isinstance(value, tuple) else value for key, value in prepared.items()
    }


def _pinned(name: str) -> tuple[str, str | None]:
    """NAME@REVISION in its two parts."""
    name, _, revision = name.partition("@")
    return name, revision or None


def _tag(called: str, name: str, pretrained: str) -> tuple[str, str | None]:
    """A tag of open_clip, TAG or TAG@REVISION: the tag, and the commit of its weights where they come from the hub.

    Then open_clip's own table says where they lie now: it has no place for a revision.
    """
    tag, revision = _pinned(pretrained)
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        known = tags or "none: not an open_clip architecture with published weights"
        raise GranularityError(f"encoder.pretrained = {pretrained}: no file, and not a tag of {name} ({known})")
    check_activation(name, tag)
    published = open_clip.get_pretrained_cfg(name, tag)
    repository, _, file = published.get("hf_hub", "").rpartition("/")
    if repository:
        weights, commit = _downloaded(called, repository, revision, file or None)
        published["file"] = str(weights)
        return tag, commit
    if revision is not None:
        raise GranularityError(f"encoder.pretrained = {pretrained}: these weights have no revision; write {tag}")
    _offline_if_unreachable()
    return tag, None


def _downloaded(called: str, repository: str, revision: str | None, file: str | None) -> tuple[Path, str]:
    """A file of the hub (None: its weights) in the local cache, and the commit that it is of.

    Args:
        revision: a branch, a tag or a commit (None: main).
    """
    _offline_if_unreachable()
    try:
        path = Path(download_pretrained_from_hf(repository, file, revision))
        return path, hub.commit(path)
    except Exception as error:
        if os.environ.get("HF_HUB_OFFLINE") == "1":
            raise GranularityError(
                f"{called}: its weights are not in the local cache and the hub cannot be reached (HF_HUB_OFFLINE=1); "
                "run once with a network, or name a local file or local-dir:"
            ) from error
        raise GranularityError(f"{called}: cannot be had from the hub ({_reason(error)})") from error


def _check_files(name: str, pretrained: str | None) -> None:
    """Raise an error for files that open_clip would wait for, or whose reader would advise to load them unsafely."""
    folder = Path(name.removeprefix("local-dir:")) if name.startswith("local-dir:") else None
    if folder is not None and (folder / CONFIG).exists():
        read_json(folder / CONFIG, "open_clip model configuration")
    if folder is None and pretrained and (beside := Path(pretrained).with_name(CONFIG)).is_file():
        said = read_json(beside, "open_clip model configuration")
        said = said.get("model_cfg") if isinstance(said, dict) else None
        if isinstance(said, dict):
            _check_quick_gelu(name, bool(said.get("quick_gelu")), f"by {beside}, the weights beside it")
    found = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
    for file in (*found, *([Path(pretrained)] if pretrained and Path(pretrained).is_file() else [])):
        if file.suffix in FILES_OF_WEIGHTS:
            check_regular(file)
        if file.suffix == ".safetensors":
            read_safetensors_header(file)


def _reason(error: Exception) -> str:
    """Why a library failed. Not in its words where these tell to load what is not safe to load."""
    text = " ".join(str(error).split())[:300]
    about_the_file = isinstance(error, SafetensorError | EOFError) or type(error).__name__ == "UnpicklingError"
    if about_the_file or ADVICE.search(text):
        return "no intact file of tensors, or one that holds more than tensors; get it from its publisher"
    if "state_dict" in text:
        return "its tensors are not those of this architecture"
    return f"{type(error).__name__}: {text}"


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
