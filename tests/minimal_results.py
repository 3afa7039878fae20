"""Every artifact of a configuration under the artifact contract, but with a line of text in place of its data.

For what looks at results without reading them: `granularity status`, and Snakemake.
"""

from __future__ import annotations

from granularity.config.options import Config
from granularity.learning.runs import Run
from granularity.look.status import expected
from granularity.plan import jobs
from granularity.store import artifacts
from granularity.store.artifacts import Artifact

UPSTREAM = {
    "pixels": ["samples"],
    "encoder": ["samples"],
    "embedding": ["samples", "encoder"],
    "clusters": ["samples", "embedding"],
    "label_space": ["samples"],
    "pretrain": ["samples", "pixels"],
    "finetune": ["samples", "pixels"],
    "probe": ["samples", "pixels", "embedding"],
}


def write(config: Config) -> dict[tuple[str, ...], Artifact]:
    """Write them below the working directory, without the theory; returns them by kind and wildcards."""
    made: dict[tuple[str, ...], Artifact] = {}
    backbones: dict[tuple[str, str, int], Artifact] = {}  # condition, space, seed -> the pretraining that holds it
    for kind, wildcards, params in expected(config):
        if kind.startswith("theory"):
            continue
        condition = wildcards.get("condition", "")
        runs = [Run.parse(name) for name in params.get("runs", [])]
        sources = [made[base, condition] for base in UPSTREAM.get(kind, []) if (base, condition) in made]
        sources += [made["clusters", condition, name] for name in params.get("clusterings", [])]
        if kind == "pretrain":
            sources += [made["label_space", condition, run.space] for run in runs]
        elif kind in ("finetune", "probe"):
            sources += [backbones[condition, run.space, run.pretrain_seed] for run in runs]
        elif kind == "report":
            sources = list(made.values())
        artifact = create(config, kind, wildcards, params, sources)
        made[kind, *wildcards.values()] = artifact
        if kind == "pretrain":
            backbones |= {(condition, run.space, run.pretrain_seed): artifact for run in runs}
    return made


def create(config: Config, kind: str, wildcards: dict, params: dict, sources: list[Artifact]) -> Artifact:
    place = jobs.PATHS[kind].format(root=jobs.root(config), **wildcards)
    inputs = {str(source.path): source for source in sources}
    with artifacts.create(place, kind, jobs.MODULES[kind], inputs, params) as out:
        for name in jobs.FILES[kind]:
            out.text(name, f"{place}\n")
        if kind == "samples":  # what rules ask, for a job's resources
            out.summary["images"] = {"train": 500_000, "val": 100_000}
    return Artifact.peek(place)
