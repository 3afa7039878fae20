"""A small tree of results, written with the artifact contract: what the report reads, without training anything."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.config.options import Config
from granularity.data import moments
from granularity.learning.runs import Run
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.stages.report import stage as report
from granularity.store.artifact import Artifact
from granularity.store.task import Task
from support import minimal_results
from support.photographs import moments_of

HOSTILE = '<script>alert("$x_1$ & ünfug")</script>'
# Error in percent of each family at the finest granularity, about the baseline's 6.0.
EFFECTS = {"manual": -1.2, "random": 2.5, "random_superclass": 0.1, "kmeans": -0.2, "kmeans_superclass": -0.5}
EFFECTS |= {"distil": -0.8}


def write(
    config: Config,
    effects: Mapping[str, float] | None = None,
    noise: float = 0.3,
    between_backbones: float = 0.0,
    samples: Mapping[str, str] | None = None,
    classes: Mapping[str, int] | None = None,
) -> Plan:
    """Write every artifact of a configuration but verdicts and the report, below the working directory.

    Of runs: `effects`, by family the difference from the baseline in percentage points, `noise`, the standard deviation
    of their errors, and what each further pretraining seed adds. Of sample tables: what their parameters (`samples`)
    and their numbers of classes say over what they are.
    """
    plan = Plan(config)
    made: dict[str, Artifact] = {}
    told = (EFFECTS if effects is None else effects, noise, between_backbones, dict(classes or {}))
    conditions = [_Condition(plan, one, number, *told) for number, one in enumerate(plan.conditions)]
    for stage in (name for name in STAGES if name not in ("theory", "verdicts", "report")):
        for condition in conditions:
            for job in plan.jobs(stage, condition=condition.of.name):
                params = dict(samples or {}) if stage == "samples" else {}
                condition.network = plan.folder(job).parent.name
                made[plan.stamp(job)] = minimal_results.create(plan, job, made, getattr(condition, stage), **params)
    return plan


def write_report(plan: Plan, output: Path | None = None, sections: Sequence[str] = ()) -> Path:
    """The report of what lies there, or only some `sections` of it, which is faster; returns its folder."""
    (job,) = plan.jobs("report")
    inputs = {role: tuple(map(plan.folder, sources)) for role, sources in job.inputs.items()}
    assert {*sections} <= {*job.options["sections"]}
    chosen = {"sections": list(sections)} if sections else {}
    options = STAGES["report"].model.model_validate(job.options | chosen)
    report.run(Task(STAGES["report"], output or plan.folder(job), options, inputs))
    return output or plan.folder(job)


class _Condition:
    """Writes the files of one condition's artifacts; a method per stage."""

    network = ""

    def __init__(self, plan, condition, number, effects, noise, between, said):
        self.plan, self.of, self.effects, self.noise = plan, condition, effects, noise
        self.between, self.said, self.rng = between, said, np.random.default_rng(number)
        self.config, self.section = plan.config, condition.samples
        self.sizes: dict[str, int] = {}

    def samples(self, out, options) -> None:
        target, finest = self.section.target, self.section.ranks[-1]
        train = self.of.train_size if self.of.train_size != "all" else 200
        count = train + 100
        digit = self.rng.permutation(np.arange(count) % 10)
        self.table = pd.DataFrame(
            {
                "sample_id": [f"img-{i:05d}" for i in range(count)],
                "split": ["train"] * train + ["val"] * 100,
                target: pd.Categorical(np.array(["no loop", HOSTILE, "two loops"])[digit % 3]),
                finest: pd.Categorical([f"digit {d}" for d in digit]),
            }
        )
        self.train = self.table[self.table["split"] == "train"]
        out.table("samples.parquet", self.table)
        out.summary |= {"images": {"train": train, "val": 100}, "classes": {target: 3, finest: 10} | self.said}

    def pixels(self, out, options) -> None:
        # An image is its class's own pattern and noise, so that a montage looks like one.
        shape = (self.config.pixels.size, self.config.pixels.size, 1)
        _, code = np.unique(self.table[self.section.ranks[-1]], return_inverse=True)
        patterns = np.random.default_rng(0).integers(0, 200, (code.max() + 1, *shape))
        noise = self.rng.integers(0, 55, (len(code), *shape))
        values = (patterns[code] + noise).astype(np.uint8)
        out.array("pixels.npy", values)
        out.json(moments.FILE, moments_of(self.table["split"].to_numpy(), values))

    def encoder(self, out, options) -> None:
        epoch = np.arange(1, options["captions"]["epochs"] + 1)
        loss = 3.5 * np.exp(-epoch / 8)
        out.table("history.parquet", pd.DataFrame({"epoch": epoch, "train_loss": loss, "val_loss": loss + 0.3}))

    def embed(self, out, options) -> None:
        out.array("embedding.npy", np.ones((len(self.table), 1), np.float32))

    def duplicates(self, out, options) -> None:
        rows = [("near_in_both_splits", "val", one, "digit 1") for one in ("digit 1", "digit 1", "digit 7")]
        rows += [("near_duplicate", "train", "digit 1", "digit 1")]
        out.table("findings.parquet", pd.DataFrame(rows, columns=["finding", "split", "class", "twin_class"]))

    def cluster(self, out, options) -> None:
        scope, count = options["clustering"].rsplit("-", 1)
        draw = (self.rng.beta(1.2, 2.0, len(self.train)) * int(count)).astype(int)
        superclass = self.train[self.section.target].astype(str)
        cluster = draw if scope == "whole" else superclass.astype("category").cat.codes * int(count) + draw
        frame = pd.DataFrame({"sample_id": self.train["sample_id"], "cluster": np.asarray(cluster, np.int32)})
        groups = frame.assign(superclass=superclass).groupby("cluster")
        table = pd.DataFrame({"cluster": groups.size().index, "size": groups.size().to_numpy()})
        table["superclass"] = None if scope == "whole" else groups["superclass"].first().to_numpy()
        out.table("assignment.parquet", frame)
        out.table("clusters.parquet", table.assign(objective=1.0))

    def hierarchy(self, out, options) -> None:
        name, family, params = options["space"], options["family"], options["params"]
        superclasses, images = self.train[self.section.target].nunique(), len(self.train)
        scope, _, count = params.get("clusterings", ["whole-0"])[0].rpartition("-")
        size = {
            "manual": lambda: self.train[params["rank"]].nunique(),
            "random_instance": lambda: images,
            "random": lambda: params["classes"],
            "random_superclass": lambda: params["per_superclass"] * superclasses,
            "rebalanced": lambda: superclasses * (5 if params["threshold"] < 10 else 3),
        }.get(family, lambda: int(params.get("classes", count)) * (1 if scope == "whole" else superclasses))()
        self.sizes[name] = size
        drawn = np.random.default_rng(zlib.crc32(str(params.get("clusterings", name)).encode()))
        shares = np.full(size, 1 / size)
        if "clusterings" in params:  # of one clustering alike, whatever the family
            shares = drawn.dirichlet(np.full(size, 3.0))
        labels = drawn.choice(size, images, p=shares).astype(np.int32)
        sizes = np.bincount(labels, minlength=size)
        names = [HOSTILE if i == 0 else f"class {i}" for i in range(size)]
        straddling = {"random": 0.97, "kmeans": 0.2, "nested": 0.2}.get(family, 0.0)
        properties = {"space": name, "family": family, "granularity": size, "images": images, "empty_classes": 0}
        properties |= {"refines_target": straddling == 0, "straddling_share": straddling}
        properties["class_size"] = {"min": int(sizes.min()), "median": float(np.median(sizes)), "max": int(sizes.max())}
        properties["starved_share"] = float((sizes < 5).mean())
        by_rank = dict.fromkeys(self.section.ranks, 0.5)
        properties |= dict.fromkeys(("purity", "mutual_information_bits", "nmi"), by_rank)
        classes = {"label": np.arange(size, dtype=np.int32), "name": names, "size": sizes}
        out.table("labels.parquet", pd.DataFrame({"sample_id": self.train["sample_id"], "label": labels}))
        out.table("classes.parquet", pd.DataFrame(classes).assign(parent=HOSTILE, purity=1.0))
        out.json("properties.json", properties)

    def pretrain(self, out, options) -> None:
        rows = []
        for run in map(Run.parse, options["runs"]):
            error = self._error(run, 0.8) if run.space in self.sizes else None
            rows.append(
                {"run_id": run.id, **self._about(run, options["network"]), "train_loss": 0.01, "val_error": error}
            )
        out.table("runs.parquet", pd.DataFrame(rows).astype({"granularity": "Int64", "val_error": "Float64"}))

    def finetune(self, out, options) -> None:
        network, rows = self.network, []
        parents = self.plan.pretrainings(self._network(network), self.of)
        for run in map(Run.parse, options["runs"]):
            parent = next(one.id for one in parents if (one.space, one.pretrain_seed) == (run.space, run.pretrain_seed))
            known = {"run_id": run.id, "parent": parent, "transfer": options["transfer"], **self._about(run, network)}
            rows.append(known | {"finetune_seed": run.finetune_seed, "train_loss": 0.01, "val_error": self._error(run)})
        out.table("runs.parquet", pd.DataFrame(rows).astype({"granularity": "Int64"}))

    def measure(self, out, options) -> None:
        network, about, rows = self.network, [], []
        embedding = {"run": "embedding", "network": None, "space": "embedding", "family": "encoder"}
        if "embedding" in options["of"]:
            about.append(embedding)
            rows += [("embedding", None, *row) for row in self._measured(options, 4.0)]
            self._drawn(out, options, "embedding")
        for run in map(Run.parse, options["runs"]):
            about.append({"run": run.id, **self._about(run, network)})
            last = self._network(network).recipe.epochs
            for epoch in ([0] if "untrained" in options["of"] else []) + [last]:
                error = 8 + self._effect(run) + 20 * (epoch == 0)
                rows += [(run.id, epoch, *row) for row in self._measured(options, error)]
                self._drawn(out, options, f"{run.name}@{epoch}")
        values = pd.DataFrame(rows, columns=["run", "epoch", "split", "key", "value"])
        values.insert(3, "measure", options["name"])
        out.table("values.parquet", values.astype({"epoch": "Int64"}))
        columns = ["run", "network", "space", "family", "granularity", "pretrain_seed", "transfer", "finetune_seed"]
        runs = pd.DataFrame(about).reindex(columns=columns)
        whole = dict.fromkeys(["granularity", "pretrain_seed", "finetune_seed"], "Int64")
        out.table("runs.parquet", runs.astype(whole | dict.fromkeys(["network", "transfer"], "str")))

    def _drawn(self, out, options, network) -> None:
        """Write the arrays that pictures of a measure show."""
        train, ranks = len(self.train), self.section.ranks
        apart = 1 + np.equal.outer(np.arange(10) % 3, np.arange(10) % 3)
        normal = self.rng.normal
        arrays = {
            "collapse": {f"val/{ranks[-1]}/distances": apart / (1 + np.eye(10))},
            "cluster_probe": {"train/plane": normal(size=(train, 2)).astype(np.float32)},
            "eigen_cam": {
                "val/maps": normal(size=(30, 2, 2)),
                "val/rows": train + np.arange(30),
                "val/side": np.array([8]),
            },
            "filters": {"val/conv1/mds": normal(size=(3, 2)), "val/conv1/side": np.array([1, -1, 0])},
            "number": {"val/number": np.ones(3)},  # a measure of the user's own
        }
        for key, array in arrays.get(options["measure"], {}).items():
            out.array(f"arrays/{network}/{key}.npy", array)

    def _measured(self, options, error) -> Iterator[tuple[str, str, float]]:
        numbers = {"collapse": "val/loops/digit/r1", "cluster_probe": "train/purity", "eigen_cam": "val/regions"}
        numbers |= {"filters": "val/conv1/between", "number": "val/number"}
        if options["measure"] in numbers:
            split, key = numbers[options["measure"]].split("/", 1)
            yield from [(split, key, error), (split, f"{key}_null", 1.01)]
            return
        noise = self.noise * abs(self.rng.standard_normal())
        for split in options["splits"]:
            if options["measure"] == "accuracy":
                yield split, "error", error + noise
                yield split, "macro_f1", 100 - error - noise
                yield split, "images", 100
                continue
            for i, rank in enumerate(self.section.ranks):
                yield "train", f"{rank}/l2", 0.1
                for probe in ("linear", "knn"):
                    yield split, f"{rank}/{probe}", error + 1.5 * (probe == "knn") + 6 * i + noise

    def _network(self, name):
        return next(one for one in self.plan.networks if one.name == name)

    def _about(self, run, network) -> dict:
        family = next((space.family for space in self.of.spaces if space.name == run.space), run.space)
        known = {"network": network, "space": run.space, "family": family}
        return known | {"granularity": self.sizes.get(run.space), "pretrain_seed": run.pretrain_seed}

    def _effect(self, run) -> float:
        family = self._about(run, "")["family"]
        found = 0.0 if run.space == "target" else self.effects.get(family, 0.0)
        return found + self.between * run.pretrain_seed

    def _error(self, run, more: float = 0.0) -> float:
        return float(6.0 + self._effect(run) + more + self.noise * self.rng.standard_normal())
