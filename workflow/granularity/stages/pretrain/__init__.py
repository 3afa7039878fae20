"""Pretrain: networks trained on label spaces, or with another objective."""

from collections.abc import Iterator

from granularity.base import extensions
from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.data.listing import contents
from granularity.learning.cost import of_training
from granularity.learning.options import Pretrain, augmentation, optimiser_file, own_network


def _plan(plan: Planned) -> Iterator[Job]:
    config = plan.config
    for condition in plan.conditions:
        where = {"condition": condition.name}
        for network in plan.networks:
            runs = plan.pretrainings(network, condition)
            needs = extensions.find("objective", network.objective.name).NEEDS
            sections = ("model", "recipe", "objective", "init")
            asked = {key: getattr(network, key).model_dump(mode="json") for key in sections}
            asked |= {"network": network.name, "keep": network.keep, "processes": config.jobs.processes}
            for unit, held in plan.units("pretrain", runs, network, condition, network.recipe.epochs).items():
                spaces = dict.fromkeys(run.space for run in held)
                inputs = {role: tuple(plan.jobs(role, **where)) for role in ("samples", "pixels")}
                if needs == "hierarchy":
                    inputs["hierarchy"] = tuple(plan.job("hierarchy", {**where, "space": name}) for name in spaces)
                else:
                    inputs[needs] = tuple(plan.jobs(needs, **where))
                if network.init.run is not None:
                    inputs["init"] = (Job("pretrain", at=str(network.init.folder())),)
                yield Job(
                    "pretrain",
                    {**where, "network": network.name, "unit": unit},
                    {**asked, "runs": [run.name for run in held]},
                    inputs,
                    files=() if network.init.timm is None else (str(network.init.timm),),
                    **of_training(config, len(held), network.recipe.epochs),
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
    inputs=dict(samples="samples", pixels="pixels", hierarchy="hierarchy*", embed="embed?", init="pretrain?"),
    seeded=True,
    outside=lambda options: contents([] if options.init.timm is None else [options.init.timm]),
    chosen=lambda options: [
        ("objective", options.objective.name),
        ("optimiser", optimiser_file(options.recipe)),
        *augmentation(options.recipe),
        *own_network(options.model.name),
    ],
)
