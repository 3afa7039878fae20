"""Pretrain: networks trained on label spaces, or on what another objective asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from granularity.base import extensions
from granularity.base.stage import Job, Needs, Stage
from granularity.data.listing import contents
from granularity.learning.cost import readers, resident_bytes, slower
from granularity.learning.options import Pretrain, own_network
from granularity.learning.runs import in_lockstep


def _plan(plan: Any) -> Iterator[Job]:
    config = plan.config
    pixels = config.pixels
    for condition in plan.conditions:
        where = {"condition": condition.name}
        for network in plan.networks:
            runs = plan.pretrainings(network, condition)
            needs = extensions.find("objective", network.objective.name).NEEDS
            for unit, held in plan.units("pretrain", runs, network, condition, network.recipe.epochs).items():
                spaces = dict.fromkeys(run.space for run in held)
                inputs = {role: tuple(plan.jobs(role, **where)) for role in ("samples", "pixels")}
                if needs == "hierarchy":
                    inputs["hierarchy"] = tuple(plan.job("hierarchy", {**where, "space": name}) for name in spaces)
                else:
                    inputs[needs] = tuple(plan.jobs(needs, **where))
                if network.init.run is not None:
                    inputs["init"] = (Job("pretrain", at=str(network.init.folder())),)
                arms = max(map(len, in_lockstep(held, config.jobs.arms)))
                yield Job(
                    "pretrain",
                    {**where, "network": network.name, "unit": unit},
                    {
                        "network": network.name,
                        "model": network.model.model_dump(mode="json"),
                        "recipe": network.recipe.model_dump(mode="json"),
                        "objective": network.objective.model_dump(mode="json"),
                        "init": network.init.model_dump(mode="json"),
                        "keep": network.keep,
                        "runs": [run.name for run in held],
                        "processes": config.jobs.processes,
                        "arms": arms,
                    },
                    inputs,
                    files=() if network.init.timm is None else (str(network.init.timm),),
                    passes=len(in_lockstep(held, arms)) * arms * network.recipe.epochs,
                    memory=lambda images: resident_bytes(images, pixels),
                    processes=config.jobs.processes * arms,
                    readers=-(-readers(pixels) // arms),
                    slower=slower(config),
                )


STAGE = Stage(
    name="pretrain",
    does="Pretrain networks on label spaces.",
    options=Pretrain,
    place="{root}/{condition}/pretrain/{network}/{unit}",
    files=("runs.parquet", "history.parquet", "checkpoints.parquet", "classes.parquet"),
    more_files=("backbones/*.safetensors",),
    plan=_plan,
    needs=Needs(1500, 1, 30, 2.0, gpu=True),
    message="Pretraining {wildcards.unit} of {wildcards.condition} ({wildcards.network})",
    inputs={
        "samples": "samples",
        "pixels": "pixels",
        "hierarchy": "hierarchy*",
        "embed": "embed?",
        "init": "pretrain?",
    },
    asked=lambda options: options.model_dump(mode="json", exclude={"arms"}),
    seeded=True,
    outside=lambda options: contents([] if options.init.timm is None else [options.init.timm]),
    chosen=lambda options: [("objective", options.objective.name), *own_network(options.model.name)],
)
