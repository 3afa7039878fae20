"""Encoders, found by name (`encoder.model: NAME:MODEL`): a file here, or the user's with `EXTENDS = "encoder"`.

Such a file contains

- `load(encoder, trained, device)`: returns :class:`Loaded`. `encoder` is the section
  :class:`granularity.learning.clip_options.Encoder`, whose `encoder.name` is MODEL; `trained` is the folder of an
  encoder that stage `encoder` trained, or None. Raises GranularityError: no such model, no such weights, or a pickle;
- `check(encoder)`: before a run, without weights: yields errors in the form "key: what";
- optionally `trial(encoder, device)`: like `load`, without a download, to estimate the cost of a run.

Names without the prefix of an encoder are open_clip's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Loaded(NamedTuple):
    """A frozen network that embeds images."""

    transform: Callable  # PIL image (RGB) to float tensor [3, S, S], ending in ToTensor and Normalize
    encode: Callable  # float32 [B, 3, S, S] to [B, D]
    about: dict[str, Any]  # for the manifest: `architecture`, `weights_sha256`, `preprocessing`, the hub's `revision`
