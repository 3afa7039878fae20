"""Let `import torchvision` work with a CPU build of torch: its wheel is linked against CUDA, and would fail with
"operator torchvision::nms does not exist". The operators, which nothing here uses, are declared without code.
"""

import importlib.util
import sys
from pathlib import Path

_library = None  # the definitions exist as long as this object


class _Finder:
    """An import hook that finds nothing, but notices that torchvision is about to be imported."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(_Finder)
            define_missing_operators()


def before_torchvision() -> None:
    """Define the operators just before torchvision is imported, because planning should not import torch."""
    if "torchvision" not in sys.modules and _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def define_missing_operators() -> None:
    """Define torchvision's operators if only torchvision is built for CUDA; a second call does nothing."""
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
