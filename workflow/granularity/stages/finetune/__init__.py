"""Finetune: pretrained networks with a fresh head, trained on the target of the same images or of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from granularity.base.stage import Job, Needs, Stage
from granularity.learning.cost import readers, resident_bytes, slower
from granularity.learning.options import Finetune, own_network
from granularity.learning.runs import in_lockstep


def _plan(plan: Any) -> Iterator[Job]:
    config = plan.config
    pixels = config.pixels
    for condition in plan.conditions:
        where = {"condition": condition.name}
        for transfer in plan.transfers:
            data = plan.data_of(transfer, condition)
            for network in plan.networks_of(transfer):
                pretrained = plan.jobs("pretrain", network=network.name, **where)
                runs = plan.finetunings(transfer, network, condition)
                units = plan.units("finetune", runs, network, condition, transfer.recipe.epochs, data)
                for unit, held in units.items():
                    arms = max(map(len, in_lockstep(held, config.jobs.arms)))
                    yield Job(
                        "finetune",
                        {**where, "transfer": transfer.name, "network": network.name, "unit": unit},
                        {
                            "transfer": transfer.name,
                            "recipe": transfer.recipe.model_dump(mode="json"),
                            "keep": transfer.keep,
                            "from_epoch": transfer.from_epoch,
                            "architecture": network.model.name,
                            "other_data": transfer.data is not None,
                            "runs": [run.name for run in held],
                            "processes": config.jobs.processes,
                            "arms": arms,
                        },
                        {
                            "samples": tuple(plan.jobs("samples", condition=data.name)),
                            "pixels": tuple(plan.jobs("pixels", condition=data.name)),
                            "pretrain": tuple(plan.holding(pretrained, held)),
                        },
                        passes=len(in_lockstep(held, arms)) * arms * transfer.recipe.epochs,
                        memory=lambda images: resident_bytes(images, pixels),
                        processes=config.jobs.processes * arms,
                        readers=-(-readers(pixels) // arms),
                        slower=slower(config),
                    )


STAGE = Stage(
    name="finetune",
    does="Finetune pretrained networks on the target.",
    options=Finetune,
    place="{root}/{condition}/finetune/{transfer}/{network}/{unit}",
    files=("runs.parquet", "history.parquet", "predictions.parquet", "classes.parquet"),
    more_files=("networks/*.safetensors", "checkpoints.parquet"),
    plan=_plan,
    needs=Needs(1500, 2, 30, 2.0, gpu=True),
    message="Finetuning {wildcards.unit} of {wildcards.condition} ({wildcards.network}, {wildcards.transfer})",
    inputs={"samples": "samples", "pixels": "pixels", "pretrain": "pretrain*"},
    asked=lambda options: options.model_dump(mode="json", exclude={"arms"}),
    seeded=True,
    chosen=lambda options: own_network(options.architecture),
)
