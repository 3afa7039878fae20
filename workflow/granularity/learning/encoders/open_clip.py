"""Load open_clip models, with open_clip's own functions, from a name, a hub, a folder or a configuration file."""

import hashlib
import os
import re
import socket
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import open_clip
import torch
from open_clip.pretrained import download_pretrained_from_hf
from safetensors import SafetensorError

from granularity.base.errors import GranularityError
from granularity.base.progress import say
from granularity.base.strict_json import read_json
from granularity.data import hub
from granularity.learning.clip_options import Encoder
from granularity.learning.encoders import Loaded

WEIGHTS = "open_clip_model.safetensors"
CONFIG = "open_clip_config.json"
ADVICE = re.compile("weights_only|trust_remote_code|pickl|PytorchStreamReader|zip", re.IGNORECASE)
PARTS = {"embed_dim": int, "vision_cfg": dict, "text_cfg": dict}  # required parts of a model configuration
ACTIVATIONS = torch.nn.GELU, torch.nn.ReLU, torch.nn.SiLU, open_clip.transformer.QuickGELU


def architecture(model: str) -> str:
    """Return the open_clip name of a model, after registering it if it is a configuration file. Raise GranularityError
    if open_clip does not know the architecture, or the file is no configuration.
    """
    if model.startswith(("hf-hub:", "local-dir:")):
        return model
    name = model
    if model.endswith(".json"):
        name = Path(model).stem
        values = read_json(model, "open_clip model configuration")
        for key, kind in PARTS.items():  # open_clip would also register an invalid file
            if not isinstance(values, dict) or not isinstance(values.get(key), kind):
                raise GranularityError(f"{model}: not an open_clip model configuration (it needs {', '.join(PARTS)})")
        open_clip.add_model_config(Path(model))
    if open_clip.get_model_config(name) is None:
        raise GranularityError(f"encoder.model = {model}: open_clip knows no such architecture")
    return name


def configuration(model: str) -> dict | None:
    """Return the architecture in a user's file; call it after loading the model, which reports errors in the file."""
    file = Path(model.removeprefix("local-dir:"), CONFIG) if model.startswith("local-dir:") else Path(model)
    return read_json(file) if file.suffix == ".json" and file.is_file() else None


def fresh(model: str, device: torch.device) -> tuple[torch.nn.Module, Callable, Callable]:
    """Return a model without weights, its evaluation transform and its tokenizer. Raise GranularityError if open_clip
    cannot build it from its configuration.
    """
    from PIL import Image

    name = architecture(model)
    try:
        network, _, transform = open_clip.create_model_and_transforms(name, device=device)
        transform(Image.new("RGB", (8, 8)))  # fails here if its size is invalid
        return network, transform, open_clip.get_tokenizer(name)
    except Exception as error:
        raise GranularityError(f"encoder.model = {model}: open_clip cannot make it ({reason(error)})") from error


def load(encoder: Encoder, trained: Path | None, device: torch.device) -> Loaded:
    """Load a frozen encoder: that of the section, or the one trained here (in folder `trained`).

    Raise GranularityError for an unknown name, unreadable weights, weights that were trained with another activation
    than the architecture has, or a hub model that is neither cached nor reachable.
    """
    if trained is not None:
        name, pretrained = f"local-dir:{trained}", None
    else:
        name, pretrained = architecture(encoder.model), encoder.pretrained
    called, revision = f"encoder = {name} {pretrained or ''}", None
    if name.startswith("hf-hub:"):
        repository, _, asked = name.removeprefix("hf-hub:").partition("@")
        folder, revision = downloaded(called, repository, asked or None, CONFIG)
        downloaded(called, repository, revision, None)
        name = f"local-dir:{folder.parent}"
    elif pretrained is not None and Path(pretrained).is_file():
        beside = Path(pretrained).with_name(CONFIG)
        if beside.is_file():
            settings = read_json(beside, "open_clip model configuration").get("model_cfg", {})
            _check_quick_gelu(name, bool(settings.get("quick_gelu")), f"by {beside}, the weights beside it")
        else:
            activation = "QuickGELU" if open_clip.get_model_config(name).get("quick_gelu") else "GELU"
            why = f"from {name}, because no {CONFIG} beside the weights names the one they were trained with"
            say(
                f"{called}: its activation is {activation}, {why}; OpenAI's weights, and weights "
                "derived from them, need QuickGELU"
            )
    elif pretrained is not None:
        pretrained, revision = _tag(called, name, pretrained)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model, _, transform = open_clip.create_model_and_transforms(
                name, pretrained=pretrained, device=device, require_pretrained=True
            )
    except Exception as error:
        raise GranularityError(f"{called}: open_clip cannot load it ({reason(error)})") from error
    for warning in warned:
        say(f"{called}: {warning.message}")
    model.eval().requires_grad_(False)
    # The contents of a path may change.
    about = {"architecture": configuration(encoder.model), "weights_sha256": weights_digest(model)}
    about |= {"preprocessing": resolved(model)} | ({} if revision is None else {"revision": revision})
    return Loaded(transform, model.encode_image, about)


def check(encoder: Encoder) -> Iterator[str]:
    """Yield errors: an architecture that open_clip does not know, or weights that are neither a file nor a tag."""
    try:
        name = architecture(encoder.model)
    except GranularityError as error:
        yield f"model: {str(error).removeprefix(f'encoder.model = {encoder.model}: ')}"
        return
    tag = encoder.pretrained
    if tag not in (None, "captions") and not Path(tag).is_file():
        tags = open_clip.list_pretrained_tags_by_model(name)
        if tag.partition("@")[0] not in tags:
            yield f"pretrained: '{tag}' is neither a file nor weights of {name}; there are {', '.join(tags) or 'none'}"


def trial(encoder: Encoder, device: torch.device) -> Loaded:
    """Return the encoder without its weights."""
    if encoder.model.startswith(("hf-hub:", "local-dir:")):
        raise GranularityError(f"{encoder.model} is loaded only when it is used")
    model, transform, _ = fresh(encoder.model, device)
    return Loaded(transform, model.eval().encode_image, {})


def _check_quick_gelu(model: str, wanted: bool, weights: str) -> None:
    if bool(open_clip.get_model_config(model).get("quick_gelu")) != wanted:
        other = f"{model}-quickgelu" if wanted else model.removesuffix("-quickgelu")
        write = f"model: {other}" if other in open_clip.list_models() else f"quick_gelu: {str(wanted).lower()} in it"
        activation = "QuickGELU" if wanted else "GELU"
        raise GranularityError(f"encoder.model = {model}: {weights} were trained with {activation}; write {write}")


def _tag(called: str, name: str, pretrained: str) -> tuple[str, str | None]:
    """Resolve TAG or TAG@REVISION: return the tag, whose weights are then in open_clip's table, and their commit."""
    tag, _, revision = pretrained.partition("@")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        choices = tags or "none: not an open_clip architecture with published weights"
        raise GranularityError(f"encoder.pretrained = {pretrained}: neither a file nor a tag of {name} ({choices})")
    published = open_clip.get_pretrained_cfg(name, tag)
    # open_clip only warns, and would compute other embeddings. If its table does not give a tag's activation, the
    # architecture's own file counts, for example for roberta-ViT-B-32, whose file has QuickGELU.
    if published.get("quick_gelu"):
        _check_quick_gelu(name, True, f"the weights '{tag}'")
    repository, _, file = published.get("hf_hub", "").rpartition("/")
    if repository:
        weights, commit = downloaded(called, repository, revision or None, file or None)
        published["file"] = str(weights)
        return tag, commit
    if revision:
        raise GranularityError(f"encoder.pretrained = {pretrained}: these weights have no revision; write {tag}")
    _offline_if_unreachable()
    return tag, None


def downloaded(called: str, repository: str, revision: str | None, file: str | None) -> tuple[Path, str]:
    """Return a file of the hub (None: its weights) in the local cache, and its commit. A revision is a branch, a tag or
    a commit (None: main).
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
        raise GranularityError(f"{called}: cannot be downloaded from the hub ({reason(error)})") from error


def reason(error: Exception) -> str:
    """Return why a library failed, without its advice to load unsafe files."""
    text = " ".join(str(error).split())[:300]
    if isinstance(error, SafetensorError | EOFError) or ADVICE.search(f"{type(error).__name__} {text}"):
        remedy = (
            "get it from its publisher or, if you trained it, safetensors.torch.save_file(model.state_dict(), FILE)"
        )
        return f"not an intact file of tensors, or it contains more than tensors; {remedy}"
    return f"{type(error).__name__}: {text}"


def _offline_if_unreachable() -> None:
    """Set huggingface_hub to offline if it is unreachable; otherwise it retries for minutes before using its cache."""
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


def resolved(model: torch.nn.Module) -> dict[str, Any]:
    """Return what, apart from architecture and weights, determines an embedding: `activations` of the image tower, and
    open_clip's `size`, `mode`, `mean`, `std`, `interpolation`, `resize_mode` and `fill_color` of an image.
    """
    found = {type(module).__name__ for module in model.visual.modules() if isinstance(module, ACTIVATIONS)}
    prepared = open_clip.get_model_preprocess_cfg(model).items()
    return {"activations": sorted(found), **{k: list(v) if isinstance(v, tuple) else v for k, v in prepared}}


def weights_digest(model: torch.nn.Module) -> str:
    """Return the SHA-256 over the names and values of all weights, to identify the encoder in manifests."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
