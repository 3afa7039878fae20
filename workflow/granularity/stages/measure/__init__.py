"""Measure: properties of networks and embeddings, such as how well probes of their features predict human ranks."""

from collections.abc import Iterator
from typing import Any

from granularity.base.errors import GranularityError
from granularity.base.stage import Job, Needs, Planned, Stage
from granularity.data.listing import contents
from granularity.learning.cost import features, readers, resident_bytes
from granularity.learning.options import own_network
from granularity.learning.runs import Run
from granularity.stages.measure.measures.probe import WEIGHTS, Probe
from granularity.stages.measure.options import Measure, Measuring

WEIGHT_BYTES = 300  # bytes of memory per weight of linear probes fitted at once (measured)
EMBEDDING = 1024  # features of the widest published encoders
MANY_CLASSES = {"cpu": 1000, "cuda": 20_000}  # classes of all probed ranks, up to which `Needs.ms` holds (estimated)
FEATURE_BYTES = 10  # bytes of memory per feature of an image (measured)


def _plan(plan: Planned) -> Iterator[Job]:
    for measure in plan.config.measures:
        least = getattr(measure.module(), "LEAST_RANKS", 1)
        for condition in plan.conditions:
            if len(ranks := measure.ranks or condition.samples.ranks) < least:
                raise GranularityError(
                    f"measures: '{measure.name}' needs {least} ranks, a coarser and a finer one, but has only {ranks}; "
                    "add them to its `ranks` or to `samples.ranks`"
                )
            asked = "embedding" in measure.of if measure.of else measure.takes_embeddings and plan.embeds(condition)
            for network in (one for one in plan.networks if condition.spaces and not one.merged):
                runs = plan.backbones(network, condition)
                for unit, held in plan.units("measure", runs, network, condition).items():
                    there = {
                        "finetuned": bool(_kept(plan, network)),
                        "checkpoints": any(network.keep),
                        "embedding": False,
                    }
                    kinds = [one for one in measure.of or ["backbones"] if there.get(one, True)]
                    if asked:  # equal for all networks, so only the first job measures it
                        kinds.append("embedding")
                        asked = False
                    if kinds:
                        yield _job(plan, measure, condition, network, unit, held, kinds)


def _kept(plan: Planned, network: Any) -> list[str]:
    """Return the transfers that finetune a network on its own images and keep the weights."""
    return [one.name for one in plan.transfers if one.keep and one.data is None and one.finetunes(network)]


def _job(
    plan: Planned, measure: Measure, condition: Any, network: Any, unit: str, held: list[Run], of: list[str]
) -> Job:
    where = {"condition": condition.name}
    of_network = {**where, "network": network.name}
    inputs = {role: tuple(plan.jobs(role, **where)) for role in ("samples", "pixels")}
    if "embedding" in of:
        inputs["embed"] = tuple(plan.jobs("embed", **where))
    if of != ["embedding"]:
        inputs["pretrain"] = tuple(plan.holding(plan.jobs("pretrain", **of_network), held))
    if "finetuned" in of:
        kept = _kept(plan, network)
        finetuned = [job for name in kept for job in plan.jobs("finetune", transfer=name, **of_network)]
        inputs["finetune"] = tuple(plan.holding(finetuned, held))
    options = dict(measure.options)
    if measure.file == "probe" and not options:
        options = plan.config.probe.model_dump(mode="json")
    classes, pixels = plan.classes(condition, measure.ranks or condition.samples.ranks), plan.config.pixels
    many = MANY_CLASSES["cuda" if plan.config.device == "cuda" else "cpu"]
    penalties = len(Probe.model_validate(options).l2) if measure.file == "probe" else 0
    width = max(features(network.model), EMBEDDING if "embedding" in of else 0)
    weights = width * max(min(WEIGHTS // width, sum(classes) * penalties), *classes) if penalties else 0
    asked: dict[str, Any] = {"name": measure.name, "measure": measure.file, "of": of, "splits": measure.splits}
    asked |= {"ranks": measure.ranks, "options": options}
    asked |= {"architecture": network.model.name, "runs": [run.name for run in held]}
    return Job(
        "measure",
        {**of_network, "measure": measure.name, "unit": unit},
        asked,
        inputs,
        files=tuple(measure.files()),
        passes=(len(held) + 1) * max(1.0, sum(classes) / many),
        memory=lambda images: resident_bytes(images, pixels) + images * width * FEATURE_BYTES + weights * WEIGHT_BYTES,
        readers=readers(pixels),
    )


STAGE = Stage(
    name="measure",
    does="Measure networks: probes of their features, and other measures.",
    options=Measuring,
    place="{root}/{condition}/measure/{measure}/{network}/{unit}",
    files=("runs.parquet", "values.parquet"),
    more_files=("arrays/*.npy",),
    plan=_plan,
    needs=Needs(1500, 0, 30, 20.0, gpu=True),
    priority=1,
    message="Measuring {wildcards.unit} of {wildcards.condition} ({wildcards.network}, {wildcards.measure})",
    inputs=dict(samples="samples", pixels="pixels", embed="embed?", pretrain="pretrain*", finetune="finetune*"),
    seeded=True,
    outside=lambda options: contents(options.files()),
    chosen=lambda options: [("measure", options.file), *own_network(options.architecture)],
)
