"""Finetune: pretrained networks with a fresh head, trained on the target of the same images or of others."""

from collections.abc import Iterator

from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.learning.cost import of_training
from granularity.learning.options import Finetune, augmentation, optimiser_file, own_network


def _plan(plan: Planned) -> Iterator[Job]:
    config = plan.config
    for condition in plan.conditions:
        where = {"condition": condition.name}
        for transfer in plan.transfers:
            data = plan.data_of(transfer, condition)
            for network in plan.networks_of(transfer):
                pretrained = plan.jobs("pretrain", network=network.name, **where)
                runs = plan.finetunings(transfer, network, condition)
                units = plan.units("finetune", runs, network, condition, transfer.recipe.epochs, data)
                asked = {"transfer": transfer.name, "keep": transfer.keep, "from_epoch": transfer.from_epoch}
                asked |= {"recipe": transfer.recipe.model_dump(mode="json"), "architecture": network.model.name}
                asked |= {"other_data": transfer.data is not None, "processes": config.jobs.processes}
                images = {role: tuple(plan.jobs(role, condition=data.name)) for role in ("samples", "pixels")}
                for unit, held in units.items():
                    yield Job(
                        "finetune",
                        {**where, "transfer": transfer.name, "network": network.name, "unit": unit},
                        {**asked, "runs": [run.name for run in held]},
                        {**images, "pretrain": tuple(plan.holding(pretrained, held))},
                        **of_training(config, len(held), transfer.recipe.epochs),
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
    seeded=True,
    chosen=lambda options: [
        ("optimiser", optimiser_file(options.recipe)),
        *augmentation(options.recipe),
        *own_network(options.architecture),
    ],
)
