"""How the granularity of pretraining labels decides what a network learns: the stages of the workflow.

From Python: `open_artifact`, `label_spaces`, `labels`, `runs` and `backbone`, of :mod:`granularity.look.api`.
"""

from typing import Any

from granularity.base import kernels

__all__ = ["backbone", "label_spaces", "labels", "open_artifact", "runs"]

kernels.pin()  # before anything here imports a library that chooses its loops


def __getattr__(name: str) -> Any:  # what they need takes a second to import
    if name not in __all__:
        raise AttributeError(f"module 'granularity' has no attribute '{name}'")
    from granularity.look import api

    return getattr(api, name)
