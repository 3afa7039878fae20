"""Number formats that networks compute in; weights, gradients and losses are always float32."""

import contextlib
from collections.abc import Iterator

import torch

from granularity.base.section import Precision


@contextlib.contextmanager
def computing(precision: Precision, device: torch.device) -> Iterator[None]:
    """Run networks in float32; in tf32 (on GPUs, factors have 10 bits); or in bfloat16, by torch's autocast."""
    backends = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = precision == "tf32"
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            yield
    finally:
        for backend, was in zip(backends, before, strict=True):
            backend.allow_tf32 = was
