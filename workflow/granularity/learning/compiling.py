"""Compiling networks with torch's own compiler."""

from __future__ import annotations

import os

import torch

from granularity.base.errors import GranularityError
from granularity.store.kept import user_cache


def compiled(network: torch.nn.Module) -> torch.nn.Module:
    """A network of the same weights whose passes are compiled, by choices that do not depend on measured times.

    Raises:
        GranularityError: there is no compiler here.
    """
    # By default below /tmp, under a name that a neighbour could have taken before.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(user_cache() / "compiled"))
    torch.use_deterministic_algorithms(True, warn_only=True)  # the compiler, too
    if next(network.parameters()).device.type == "cpu":
        from torch._inductor.cpp_builder import get_cpp_compiler

        try:
            get_cpp_compiler()
        except Exception as error:
            raise GranularityError("compile: needs a C++ compiler (g++ or clang), and there is none here") from error
    return torch.compile(network)
