"""Measure: what networks and embeddings are like, such as what probes of their features say about human ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from granularity.base.stage import Job, Needs, Stage
from granularity.learning.cost import resident_bytes
from granularity.learning.options import own_network
from granularity.stages.measure.options import Measure, Measuring

CLASS_BYTES = 40  # of main memory, in a linear probe, for each image and class
MANY_CLASSES = 2000  # of a probed rank; up to there a probe takes `Needs.ms`


def _plan(plan: Any) -> Iterator[Job]:
    for measure in plan.config.measures:
        for condition in plan.conditions:
            for network in plan.networks if condition.spaces else ():
                yield from _jobs(plan, measure, condition, network)


def _jobs(plan: Any, measure: Measure, condition: Any, network: Any) -> Iterator[Job]:
    where = {"condition": condition.name}
    inputs = {role: tuple(plan.jobs(role, **where)) for role in ("samples", "pixels")}
    # The embedding is the same whatever the network: it is measured beside the first one.
    embedding = ("embedding" in measure.of) if measure.of else plan.embeds(condition)
    if embedding and network is plan.networks[0]:
        inputs["embed"] = tuple(plan.jobs("embed", **where))
    of = measure.of or ["backbones", *(["embedding"] if "embed" in inputs else [])]
    if "embed" not in inputs:
        of = [one for one in of if one != "embedding"]
    options = _options(plan.config, measure)
    ranks = measure.ranks or options.get("ranks") or condition.samples.ranks
    classes = plan.classes(condition, ranks)
    picture = plan.config.pixels.bytes
    # The extra seeds of the target are there for the one-pass baseline alone.
    runs = [run for run in plan.pretrainings(network, condition) if run.pretrain_seed < plan.config.seeds.pretrain]
    for unit, held in plan.units("measure", runs, network, condition).items():
        found = dict(inputs)
        if set(of) & {"backbones", "checkpoints", "untrained", "finetuned"}:
            found["pretrain"] = tuple(plan.holding(plan.jobs("pretrain", network=network.name, **where), held))
        if "finetuned" in of:
            kept = [transfer.name for transfer in plan.transfers if transfer.keep and transfer.data is None]
            finetuned = [
                job for name in kept for job in plan.jobs("finetune", transfer=name, network=network.name, **where)
            ]
            found["finetune"] = tuple(plan.holding(finetuned, held))
        yield Job(
            "measure",
            {**where, "measure": measure.name, "network": network.name, "unit": unit},
            {
                "name": measure.name,
                "measure": measure.file,
                "of": of,
                "splits": measure.splits,
                "ranks": measure.ranks,
                "options": options,
                "architecture": network.model.name,
                "augment": network.recipe.augment.model_dump(mode="json"),
                "runs": [run.name for run in held],
            },
            found,
            files=tuple(measure.files()),
            passes=(len(held) + 1) * len(ranks) * max(1.0, classes / MANY_CLASSES),
            memory=lambda images: resident_bytes(images, picture) + images * classes * CLASS_BYTES,
        )


def _options(config: Any, measure: Measure) -> dict[str, Any]:
    """The measure's own options; those of the section of its name, where the configuration has one and it has none."""
    if measure.file == "probe" and not measure.options:
        return config.probe.model_dump(mode="json")
    return dict(measure.options)


STAGE = Stage(
    name="measure",
    does="Measure networks: probes of their features, and whatever else a measure says.",
    options=Measuring,
    place="{root}/{condition}/measure/{measure}/{network}/{unit}",
    files=("runs.parquet", "values.parquet"),
    more_files=("arrays/*.npy",),
    plan=_plan,
    needs=Needs(1500, 60, 30, 20.0, gpu=True),
    message="Measuring {wildcards.unit} of {wildcards.condition} ({wildcards.network}, {wildcards.measure})",
    inputs={
        "samples": "samples",
        "pixels": "pixels",
        "embed": "embed?",
        "pretrain": "pretrain*",
        "finetune": "finetune*",
    },
    seeded=True,
    chosen=lambda options: [("measure", options.file), *own_network(options.architecture)],
)
