"""What stages cost, from the manifests: the one sum behind the report's table and `granularity status`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from granularity.store.artifacts import Artifact


def by_stage(artifacts: Iterable[Artifact]) -> list[dict[str, Any]]:
    """The costs of some artifacts, a row per kind, in the order in which they come.

    `jobs`; `wall_seconds` and `cpu_seconds`, added up over jobs; `peak_memory_mb`, the largest of a job. Where a job
    of any stage used a GPU, also `gpu_seconds`, the wall clock of the jobs that did, and `gpu_peak_memory_mb`, the
    largest that one recorded or None.
    """
    stages: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        stages.setdefault(artifact.kind, []).append(artifact)
    any_gpu = any(map(_used_gpu, (artifact for found in stages.values() for artifact in found)))
    rows = []
    for stage, found in stages.items():
        costs = [artifact.manifest["cost"] for artifact in found]
        row: dict[str, Any] = {"stage": stage, "jobs": len(costs)}
        row |= {key: sum(cost[key] for cost in costs) for key in ("wall_seconds", "cpu_seconds")}
        row["peak_memory_mb"] = max(cost["peak_memory_mb"] for cost in costs)
        if any_gpu:
            on_gpu = [artifact.manifest["cost"] for artifact in found if _used_gpu(artifact)]
            peaks = [cost["gpu_peak_memory_mb"] for cost in on_gpu if "gpu_peak_memory_mb" in cost]
            row["gpu_seconds"] = sum(cost["wall_seconds"] for cost in on_gpu)
            row["gpu_peak_memory_mb"] = max(peaks, default=None)
        rows.append(row)
    return rows


def _used_gpu(artifact: Artifact) -> bool:
    # FAISS is no torch, so the hardware does not name its GPU; a clustering's parameters do.
    return "gpu" in artifact.manifest["hardware"] or bool(artifact.params.get("gpu"))
