"""Encoders, found by name (`encoder.model: NAME:MODEL`): a file here, or the user's with `EXTENDS = "encoder"`.

Such a file holds

- `load(encoder, trained, device)`: returns :class:`Loaded`. `encoder` is the section
  :class:`granularity.learning.clip_options.Encoder`, of which `encoder.name` is MODEL; `trained` is the folder of an
  encoder that stage `encoder` trained, or None. Raises GranularityError: no such model, no such weights, or a pickle;
- `check(encoder)`: before a run, without weights: yields what is wrong, "key: what";
- optionally `trial(encoder, device)`: as `load` without a download, with which the cost of a run is estimated.

Names without a prefix that is one of these are open_clip's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Loaded(NamedTuple):
    """A frozen network that embeds images."""

    transform: Callable  # PIL image (RGB) to float tensor [3, S, S], ending in ToTensor and Normalize
    encode: Callable  # a float32 batch [B, 3, S, S] to [B, D]
    about: dict[str, Any]  # of the manifest: `architecture`, `weights_sha256`, `preprocessing`, `revision` of the hub
