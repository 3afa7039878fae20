"""A small tree of results, written with the artifact contract: what the report reads, without training anything."""

from __future__ import annotations

import numpy as np
import pandas as pd

from granularity.config.options import Config
from granularity.plan import jobs
from granularity.store import artifacts
from granularity.store.artifacts import Artifact

HOSTILE = '<script>alert("$x_1$ & ünfug")</script>'
# Error in percent of each family at the finest granularity, about the baseline's 6.0.
EFFECTS = {"manual": -1.2, "random": 2.5, "random_superclass": 0.1, "kmeans": -0.2, "kmeans_superclass": -0.5}


def write(config: Config, effects: dict[str, float] | None = None, noise: float = 0.3) -> None:
    """Write every artifact of a configuration below the working directory.

    Args:
        effects: family -> difference from the baseline in percentage points.
        noise: std of a run's error in percentage points; 0 gives runs without any spread.
    """
    for number, condition in enumerate(config.conditions):
        _Condition(config, condition, effects or EFFECTS, noise, np.random.default_rng(number)).write()


class _Condition:
    def __init__(self, config, condition, effects, noise, rng):
        self.config, self.condition, self.effects, self.noise, self.rng = config, condition, effects, noise, rng
        self.spaces = jobs.spaces(config, condition)
        self.sizes: dict[str, int] = {}

    def write(self) -> None:
        samples = self._samples()
        inputs = {"samples": samples}
        with self._create("pixels", inputs) as out:
            # An image is its class's own pattern and noise, so that a montage looks like one.
            shape = (self.config.pixels.size, self.config.pixels.size, 1)
            _, code = np.unique(self.table[self.config.samples.ranks[-1]], return_inverse=True)
            patterns = np.random.default_rng(0).integers(0, 200, (code.max() + 1, *shape))
            noise = self.rng.integers(0, 55, (len(code), *shape))
            out.array("pixels.npy", (patterns[code] + noise).astype(np.uint8))
        if self.config.encoder.trained_here:
            with self._create("encoder", inputs) as out:
                epoch = np.arange(1, self.config.encoder.captions.epochs + 1)
                loss = 3.5 * np.exp(-epoch / 8)
                out.table("history.parquet", pd.DataFrame({"epoch": epoch, "train_loss": loss, "val_loss": loss + 0.3}))
        with self._create("embedding", inputs) as out:
            out.array("embedding.npy", np.ones((len(self.table), 1), np.float32))
        for name in jobs.clusterings(self.spaces):
            self._clusters(name, inputs)
        for space in self.spaces:
            self._label_space(space, inputs)
        for kind in ("pretrain", "finetune", "probe"):
            for unit, runs in jobs.units(self.config, self.condition, kind).items():
                with self._create(kind, inputs, unit=unit) as out:
                    rows = [row for run in runs for row in self._rows(kind, run)]
                    if kind == "probe":
                        rows += self._probe_rows("embedding", "encoder", "embedding", None, 4.0)
                    out.table("runs.parquet", pd.DataFrame(rows))

    def _create(self, kind, inputs, **wildcards):
        place = jobs.PATHS[kind].format(
            root=jobs.root(self.config), condition=jobs.condition_name(self.condition), **wildcards
        )
        return artifacts.create(place, kind, "granularity.store.artifacts", inputs, {"seed": 0})

    def _samples(self) -> Artifact:
        target, finest = self.config.samples.target, self.config.samples.ranks[-1]
        train = self.condition.train_size if self.condition.train_size != "all" else 200
        count = train + 100
        digit = self.rng.permutation(np.arange(count) % 10)
        self.table = pd.DataFrame(
            {
                "sample_id": [f"img-{i:05d}" for i in range(count)],
                "split": ["train"] * train + ["val"] * 100,
                target: np.array(["no loop", HOSTILE, "two loops"])[digit % 3],
                finest: [f"digit {d}" for d in digit],
            }
        )
        self.train = self.table[self.table["split"] == "train"]
        with self._create("samples", {}) as out:
            out.table("samples.parquet", self.table)
        return Artifact.open(out_path(self, "samples"), "samples")

    def _clusters(self, name, inputs) -> None:
        scope, count = name.rsplit("-", 1)
        draw = (self.rng.beta(1.2, 2.0, len(self.train)) * int(count)).astype(int)
        superclass = self.train[self.config.samples.target]
        cluster = draw if scope == "whole" else superclass.astype("category").cat.codes * int(count) + draw
        frame = pd.DataFrame({"sample_id": self.train["sample_id"], "cluster": np.asarray(cluster, np.int32)})
        groups = frame.assign(superclass=superclass).groupby("cluster")
        table = pd.DataFrame({"cluster": groups.size().index, "size": groups.size().to_numpy()})
        table["superclass"] = None if scope == "whole" else groups["superclass"].first().to_numpy()
        with self._create("clusters", inputs, clustering=name) as out:
            out.table("assignment.parquet", frame)
            out.table("clusters.parquet", table.assign(objective=1.0))

    def _label_space(self, space, inputs) -> None:
        params, superclasses = space.params, self.train[self.config.samples.target].nunique()
        images = len(self.train)
        if space.family == "manual":
            size = self.train[params["rank"]].nunique()
        elif space.family == "random":
            size = params["classes"] or images
        elif space.family == "random_superclass":
            size = params["per_superclass"] * superclasses
        elif space.family == "rebalanced":
            size = superclasses * (5 if params["threshold"] < 10 else 3)
        else:
            scope, count = params["clusterings"][0].rsplit("-", 1)
            size = int(count) * (1 if scope == "whole" else superclasses)
        self.sizes[space.name] = size
        sizes = np.full(size, images // size)
        if "means" in space.family or space.family == "rebalanced":
            sizes = np.maximum(1, np.round(images * self.rng.dirichlet(np.full(size, 3.0)))).astype(int)
        names = [HOSTILE if i == 0 else f"class {i}" for i in range(size)]
        straddling = {"random": 0.97, "kmeans": 0.2}.get(space.family, 0.0)
        by_rank = dict.fromkeys(self.config.samples.ranks, 0.5)
        properties = {
            "space": space.name,
            "family": space.family,
            "granularity": size,
            "images": images,
            "empty_classes": 0,
            "refines_target": straddling == 0,
            "straddling_share": straddling,
            "class_size": {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())},
            "starved_share": float((sizes < 5).mean()),
            "purity": by_rank,
            "mutual_information_bits": by_rank,
            "nmi": by_rank,
        }
        classes = {"label": np.arange(size, dtype=np.int32), "name": names, "size": sizes}
        labels = np.arange(images, dtype=np.int32) % size
        with self._create("label_space", inputs, space=space.name) as out:
            out.table("labels.parquet", pd.DataFrame({"sample_id": self.train["sample_id"], "label": labels}))
            out.table("classes.parquet", pd.DataFrame(classes).assign(parent=HOSTILE, purity=1.0))
            out.json("properties.json", properties)

    def _rows(self, kind, run):
        family = next(space.family for space in self.spaces if space.name == run.space)
        size = self.sizes[run.space]
        known = {"run_id": run.id, "space": run.space, "family": family, "granularity": size}
        known |= {"pretrain_seed": run.pretrain_seed}
        effect = 0.0 if run.space == jobs.TARGET else self.effects.get(family, 0.0)
        if kind == "probe":
            return self._probe_rows(run.id, family, run.space, run.pretrain_seed, 8 + effect)
        error = 6.0 + effect + (0.8 if kind == "pretrain" else 0.0) + self.noise * self.rng.standard_normal()
        known["train_loss"] = 0.01
        if kind == "finetune":
            known |= {"finetune_seed": run.finetune_seed, "parent": "parent"}
        return [known | {"val_error": float(error)}]

    def _probe_rows(self, run_id, family, space, seed, error):
        known = {"run_id": run_id, "space": space, "family": family, "pretrain_seed": seed}
        known["granularity"] = self.sizes.get(space)
        noise = self.noise * abs(self.rng.standard_normal())
        return [
            known
            | {"probe": probe, "rank": rank, "l2": 0.1 if probe == "linear" else None}
            | {"val_error": error + 1.5 * (probe == "knn") + 6 * i + noise}
            for i, rank in enumerate(self.config.samples.ranks)
            for probe in ("linear", "knn")
        ]


def out_path(found: _Condition, kind: str) -> str:
    place = jobs.condition_name(found.condition)
    return jobs.PATHS[kind].format(root=jobs.root(found.config), condition=place)
