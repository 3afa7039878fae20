"""World 2's arms: what is trained at each size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

JUDGED = (2, 4, 8)  # sigma^2 at which trends in d_in and in the width are judged
SIMILAR_AT = 4.0  # sigma^2 of the similarity experiment
LITERALLY, INSIDE, SMALL_STEPS = (
    "literal (A.15) regime",
    "inside the conditions, d 1e12",
    "theorem, d 4096, small steps",
)
# Meets every condition of Theorem 7.1 but that on the step, which LITERAL misses too; LITERAL has the proof's time.
WITHIN = {"dimension": 1e12, "samples": 64, "units": 28, "separation": 267.0, "start": 0.4, "horizon": 2.0}
WITHIN["settle"] = 3000.0
LITERAL = {"dimension": 1e30, "samples": 8, "units": 8, "separation": 8e5, "start": 0.12, "horizon": 1.0}


def _mixtures(
    sigma2: Iterable[float],
    sweeps: dict[str, Iterable[float]],
    partial: dict[str, Iterable[float]],
    mean_field_widths: Iterable[int],
    mean_field: dict[str, Any],
    tau2: Iterable[float],
    seeds: dict[str, int],
    **size: Any,
) -> list[dict[str, Any]]:
    """Appendix B: one key varied at a time; `partial` values at JUDGED sigma^2 only."""
    sigma2 = list(sigma2)
    arms = [{"name": f"default, sigma2 {s:g}", "sigma2": s, "seeds": seeds["default"], **size} for s in sigma2]
    for swept, at in ((sweeps, sigma2), (partial, JUDGED)):
        arms += [
            {"name": f"{key} {value:g}, sigma2 {s:g}", **size, key: value, "sigma2": s}
            | {"seeds": seeds["labels" if key == "labels" else "sweep"]}
            for key, values in swept.items()
            for value in values
            for s in at
        ]
    arms += [
        {"name": f"mean-field {h}, sigma2 {s:g}", **size, **mean_field, "hidden": h, "sigma2": s}
        | {"scaling": "mean-field", "seeds": seeds["mean-field"]}
        for h in mean_field_widths
        for s in (1, *JUDGED)
    ]
    arms += [
        {"name": f"similar {t:g}, {count} labels", **size, "sigma2": SIMILAR_AT, "tau2": t, "labels": count}
        | {"seeds": seeds["similar"]}
        for count in (4, 8)
        for t in tau2
    ]
    inputs = {"d_in": 512, "per_cluster": 500, "hidden": 16, "sigma2": 4, "steps": 0, "seeds": 20}
    return [*arms, {"name": "inputs only", **inputs}]


def _theorems(dimensions: dict[float, int], seeds: int) -> list[dict[str, Any]]:
    common, late = {"model": "theorem"}, {"settle": 100.0}
    arms = [{"name": f"theorem, d {d:g}", **common, **late, "dimension": d, "seeds": n} for d, n in dimensions.items()]
    arms.append({"name": "theorem, d 4096, full", **common, **late, "coordinates": "full", "seeds": seeds})
    sweep = {"samples": 16, "units": 8, "start": 0.3, "horizon": 20.0, "seeds": seeds}
    arms += [{"name": f"separation {s:g}", **common, **sweep, "separation": float(s)} for s in (1, 2, 4, 8)]
    arms.append({"name": SMALL_STEPS, **common, **late, "clock_step": 6.25e-4, "horizon": 1.0, "seeds": seeds})
    arms.append({"name": INSIDE, **common, **WITHIN, "seeds": seeds})
    return [*arms, {"name": LITERALLY, **common, **LITERAL, "seeds": seeds}]


# quick: the sizes at which the specification's numbers were measured; paper: 8 x 500 samples, d = h = 512.
ARMS: dict[str, list[dict[str, Any]]] = {
    "quick": _mixtures(
        (0.1, 0.5, 1, 2, 4, 8),
        {
            "d_in": (16, 256),
            "hidden": (16, 256),
            "decay": (5e-4, 5e-3, 5e-2),
            "lr": (0.01, 1.0),
            "init": (0.3, 3.0),
            "steps": (300, 3000),
            "labels": (2, 8, 16),
        },
        {"hidden": (32, 128)},
        mean_field_widths=(8, 16, 32, 64, 128),
        mean_field={"per_cluster": 32, "steps": 600},
        tau2=(0.05, 0.25, 1, 2, 4, 8),
        seeds={"default": 10, "sweep": 3, "labels": 5, "mean-field": 6, "similar": 8},
    )
    + _theorems({4096: 10, 1e4: 10, 1e6: 10, 1e8: 10}, seeds=10),
    "paper": _mixtures(
        (0.02, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 4, 6, 8, 12, 16),
        {
            "d_in": (64, 128, 256, 1024),
            "hidden": (64, 128, 256, 1024),
            "decay": (5e-5, 5e-4, 5e-3, 5e-2),
            "lr": (0.01, 1.0),
            "init": (0.1, 0.3, 3.0),
            "steps": (300, 3000),
            "labels": (2, 8, 16),
        },
        {},
        mean_field_widths=(64, 128, 256, 512, 1024),
        mean_field={},
        tau2=(0.05, 0.25, 1, 2, 4, 8),
        seeds={"default": 10, "sweep": 10, "labels": 10, "mean-field": 10, "similar": 16},
        per_cluster=500,
        d_in=512,
        hidden=512,
    )
    + _theorems({4096: 20, 1e4: 20, 1e6: 20, 1e8: 20, 1e10: 10}, seeds=20),
}
