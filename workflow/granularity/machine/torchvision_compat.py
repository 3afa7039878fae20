"""Makes `import torchvision`, and so timm and open_clip, work beside a CPU build of torch.

torchvision's wheel on the package index is linked against CUDA. Beside a CPU-only torch its extension cannot be
loaded, and `import torchvision` dies with "operator torchvision::nms does not exist": it registers shape functions for
operators that only the extension defines. Nothing here uses these operators, so where the two builds do not match we
define the two that are missed, without an implementation. Where they match, we do nothing.

pyproject.toml names this as an entry point of the group `torch.backends`, which torch loads at the end of its own
import: so it holds for every program of the environment, however the package was installed.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

_library = None  # the definitions live as long as this object does


def define_missing_operators() -> None:
    """Define torchvision's operators where it is a build for CUDA and torch is not; a second call does nothing."""
    global _library
    import torch

    if _library is not None or torch.version.cuda is not None:
        return
    spec = importlib.util.find_spec("torchvision")
    version = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    if version is None or not version.is_file() or "+cu" not in version.read_text(encoding="utf-8"):
        return
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
