"""World 3's arms: what is trained at each size."""

from __future__ import annotations

from typing import Any

from granularity.stages.theory.worlds.feature_emergence import swept
from granularity.stages.theory.worlds.feature_emergence.spaces import count, refined, subparity

SMALL = {"d": 100, "D": 50, "m": 100, "n": 10_000, "batch": 500, "test": 5000}
MAIN = {"d": 500, "D": 100, "m": 300, "n": 50_000, "batch": 1000, "test": 10_000}
INTERVAL = MAIN | {"rule": "interval", "k": 30, "m": 100, "steps": 200}
INTERVAL |= {"baseline_rms": 0.5, "ntk_rates": (0.01, 0.03, 0.1), "rf_rates": (0.03, 0.1, 0.3)}
ALL = ("network", "two_step", "one_step", "ridge", "rf", "ntk", "linear", "sgd", "literal")
SCALES = {"small": SMALL, "main": MAIN}
PLAIN = "without structure"
GRAINS = {"rule": 2, "halves": 4, "count": 6, "pattern": 32, "random": 6}
WORDS = {
    "rule": "2 labels: parity",
    "halves": "4 labels: parity and s >= 3",
    "count": "6 labels: count s",
    "pattern": "32 labels: pattern",
    "random": "6 labels: parity and random IDs",
}
# What labels tell beside parity, as tables (see `spaces`). Those of `WHOLE` have a whole staircase.
WHOLE = {
    "count of 4 of A": refined(count((0, 1, 2, 3))),
    "majority of 3, count of the other 2": refined(count((0, 1, 2)) >= 2, count((3, 4))),
}
BROKEN = {
    "parity of 2 of A": refined(subparity((0, 1))),
    "parity of 3 of A": refined(subparity((0, 1, 2))),
    "one pattern of A": refined(subparity((0,))),
    "two patterns of A": refined(subparity((0,)), subparity((1,))),
}
SPACES = WHOLE | BROKEN
BOTH = {True: "structured", False: PLAIN}
RESIDUAL = {0.65: "main, leftover 0.65", 1.0: "main, leftover 1.0"}
CLUSTERS = {
    "16 clusters, d = 25": {"d": 25, "k": 4, "n": 4000, "steps": 2000, "sigma_r": 0.7},
    "16 clusters, d = 100": {"d": 100, "k": 4, "n": 4000, "steps": 3200},
    "32 clusters, d = 100": {"d": 100, "k": 5, "n": 8000, "steps": 4000},
}
DIGITS = {
    "digits, matched Gaussians": {},
    "digits, iid Gaussians": {"gaussian": "iid"},
    "digits, Gaussians added": {"mixture": "added"},
    "digits, teacher by rule": {"teacher": None},
}
VARIED = {
    "d = 100": {"d": 100},
    "d = 2000": {"d": 2000},
    "n = 25000": {"n": 25_000},
    "n = 10000, m = 50": {"n": 10_000, "m": 50},
}
SHARES = (0.8, 0.9)


def space(name: str) -> str:
    """The arm of a label space of `SPACES`."""
    return f"parity and {name}, {PLAIN}"


def grain(labels: str, structured: bool) -> str:
    return f"{WORDS[labels]}, {BOTH[structured]}"


def _arms(main: int, small: int, grains: int, clusters: int, digits: int, wide: int) -> list[dict[str, Any]]:
    arms: list[dict[str, Any]] = []
    for name, scale, seeds in (("small", SMALL, small), ("main", MAIN, main)):
        light = ("network", "two_step", "one_step", "rf", "linear")
        methods = ALL if name == "small" or wide else light
        arms.append({"name": name, **scale, "seeds": seeds, "methods": methods, "picture": True})
        other = ("network", "two_step", "rf", "ntk") if name == "small" or wide else ()
        if other:
            arms.append({"name": f"{name}, {PLAIN}", **scale, "seeds": seeds, "methods": other, "structured": False})
    # again, under another name
    arms.append({"name": "small, again", **SMALL, "seeds": 1, "methods": ("network",), "picture": False})
    lifted = {"coordinates": "inputs", "methods": ("reference",)}
    arms.append({"name": "small, in R^d", **SMALL, **lifted, "seeds": small})
    arms.append({"name": "small, no noise", **SMALL, "noise": False, "seeds": min(small, 3)})
    for r, name in RESIDUAL.items():
        picture = {"methods": ("ridge",), "picture": True}
        arms.append({"name": name, **MAIN, "residual": r, "seeds": main, **picture})
    for structured, words in BOTH.items():
        methods = ("network", "two_step", "one_step", "rf", "ntk")
        arm = INTERVAL | {"structured": structured, "methods": methods, "picture": structured}
        arms.append({"name": f"interval, {words}", **arm, "seeds": wide or 2})
    for labels in GRAINS:
        for structured in BOTH:
            arm = SMALL | {"labels": labels, "structured": structured}
            arms.append({"name": grain(labels, structured), **arm, "seeds": grains})
    for name, table in SPACES.items():
        arm = SMALL | {"labels": "table", "table": table, "structured": False}
        arms.append({"name": space(name), **arm, "seeds": min(grains, 5) if wide else 3})
    arms += swept.arms(SMALL, wide or 3, more=bool(wide))
    hidden = MAIN | {"rule": "hidden", "D": 250, "k": 50, "picture": True}
    arms.append({"name": "hidden representation", **hidden, "seeds": wide or 1} | ({} if wide else {"n": 10_000}))
    clustered = {"experiment": "clusters", "m": 800, "batch": 100, "rate": 0.1, "test": 5000}
    for name, setting in CLUSTERS.items():
        arms.append({"name": name, **clustered, **setting, "seeds": clusters, "picture": True})
    for name, setting in DIGITS.items():
        fitted = {"experiment": "digits", "n": 1297, "batch": 128, "steps": 1500}
        arms.append({"name": name, **fitted, **setting, "seeds": digits})
    if wide:
        for name, setting in VARIED.items():
            for structured, words in BOTH.items():
                arm = MAIN | setting | {"structured": structured, "methods": ("network", "two_step", "rf", "ntk")}
                arms.append({"name": f"{name}, {words}", **arm, "seeds": wide})
    for share in SHARES if wide else ():
        for weighted in (True, False):
            methods = ("network", "rf", "ntk", "one_step") if weighted else ("network",)
            arm = MAIN | {"negative_share": share, "weighted": weighted, "methods": methods}
            arms.append({"name": unbalanced(share, weighted), **arm, "seeds": wide})
    return arms


def unbalanced(share: float, weighted: bool) -> str:
    return f"{share:.0%} negative, {'weighted' if weighted else 'unweighted'}"


ARMS = {
    "quick": _arms(main=2, small=5, grains=5, clusters=2, digits=5, wide=0),
    "paper": _arms(main=5, small=5, grains=10, clusters=5, digits=5, wide=5),
}
