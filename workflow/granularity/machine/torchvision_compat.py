"""Makes `import torchvision` work beside a CPU build of torch. Import this before torchvision, timm or open_clip.

torchvision's wheel on the package index is linked against CUDA. Beside a CPU-only torch its extension cannot be
loaded, and then `import torchvision` dies with "operator torchvision::nms does not exist": it registers shape
functions for operators that only the extension defines. Nothing here uses these operators, so where the extension
does not load we define the two that are missed, without an implementation. Where it loads, we do nothing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_library = None  # the definitions live as long as this object does


def _define_missing_operators() -> None:
    global _library
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    for extension in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(extension)
            return
        except OSError:
            continue
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_define_missing_operators()
