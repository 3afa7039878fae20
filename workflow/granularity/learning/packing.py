"""Networks and optimisers as named arrays and JSON, so that a checkpoint needs no pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

HALF = "bfloat16"  # numpy has none: its bits go as int16


def arrays_of(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Tensors as arrays on the CPU."""
    return {key: value.detach().cpu().numpy() for key, value in tensors.items()}


def tensors_of(arrays: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The inverse of :func:`arrays_of`."""
    return {key: torch.from_numpy(value) for key, value in arrays.items()}


def pack(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Pack the `state_dict()` of an optimiser as JSON; its tensors go to `arrays`, under names that start with `name`.

    What is neither tensor, number, text nor a collection of them is left out: such options of an optimiser do not
    change while it runs.
    """
    if isinstance(value, torch.Tensor):
        half = value.dtype == torch.bfloat16
        arrays[name] = (value.detach().view(torch.int16) if half else value.detach()).cpu().numpy()
        return {"tensor": name, "dtype": HALF} if half else {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, pack(item, f"{name}.{key}", arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [pack(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]}
    return value if value is None or isinstance(value, bool | int | float | str) else {"left out": name}


def unpack(packed: Any, arrays: dict[str, np.ndarray], now: Any = None) -> Any:
    """The inverse of :func:`pack`; what was left out is taken from the value of today."""
    if not isinstance(packed, dict):
        return packed
    if "tensor" in packed:
        found = torch.from_numpy(arrays[packed["tensor"]])
        return found.view(torch.bfloat16) if packed.get("dtype") == HALF else found
    if "dict" in packed:
        known = now if isinstance(now, dict) else {}
        return {key: unpack(item, arrays, known.get(key)) for key, item in packed["dict"]}
    if "left out" in packed:
        return now
    kind, items = next(iter(packed.items()))
    known = list(now) if isinstance(now, list | tuple) and len(now) == len(items) else [None] * len(items)
    return {"list": list, "tuple": tuple}[kind](unpack(i, arrays, n) for i, n in zip(items, known, strict=True))
