"""`granularity config check`: what would fail in a job, as far as no data are needed, and what would be made."""

import contextlib
import difflib
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.config.files import Found, setter
from granularity.config.options import Config
from granularity.learning.options import Augment, Model, Recipe
from granularity.look.costs import BACKWARD, Costs, Kept, Stage, cores
from granularity.look.inspection import is_current
from granularity.look.text import WIDTH, fitted, seconds, tables_of
from granularity.plan.fresh import Results
from granularity.plan.graph import ConditionPlan, Plan
from granularity.plan.trainings import NetworkPlan
from granularity.stages.embed import elsewhere
from granularity.stages.hierarchy.families import file
from granularity.stages.hierarchy.space import TARGET
from granularity.stages.pixels.options import Pixels
from granularity.stages.samples.options import Samples, too_few
from granularity.stages.samples.source import VALIDATION
from granularity.store import place
from granularity.store.artifact import RUN, Artifact

FEW = 5  # backbones per label space, below which hardly any difference is significant
SMALL = 32  # pixels, above which the default network is too small
OWN = ("folder", "table", "parquet", "webdataset")  # sources that need not have a validation split
HELD_OUT = Samples.model_fields["validation"].default
DRAWS = 30  # images that a policy is tried on, because each draws other operations
Complaint = tuple[str, str]  # section, and "key: what is wrong" for one of its keys


class Built(NamedTuple):
    """A network that can be built: operations of a forward pass of one image, and counts of its convolutions."""

    flops: float
    blind: int  # convolutions with kernels of several pixels that see only one pixel
    convolutions: int


def check(plan: Plan) -> tuple[list[str], dict[str, Built]]:
    """Try everything in a configuration that needs no data.

    Return what is wrong, each as "key: what"; and the networks that can be built, by name.
    """
    built = {network.name: _built(network, plan) for network in plan.networks}
    flops = {name: entry for name, entry in built.items() if isinstance(entry, Built)}
    errors = [(_model_key(plan, entry), built[entry.name]) for entry in plan.networks if entry.name not in flops]
    recipes = [(entry.where, entry.recipe) for entry in plan.networks] + [
        (entry.where, entry.recipe) for entry in plan.transfers
    ]
    for where, recipe in recipes:
        errors += [(where, text) for text in (*_of_optimiser(recipe), *_of_policy(recipe.augment, plan.config.pixels))]
    for network in plan.networks:
        errors += _of_objective(network, plan, network.name in flops)
    if any(map(plan.embeds, plan.conditions)):
        errors += [("encoder", text) for text in _of_encoder(plan)]
    errors += [
        ("label_spaces", f"file: {text}") for condition in plan.conditions for text in _of_files(plan, condition)
    ]
    # An error that an entry inherits from a section is reported for the section.
    common = {text for where, text in errors if where in ("model", "pretrain")}
    lines = [f"{where}.{text}" for where, text in errors if where in ("model", "pretrain") or text not in common]
    for condition in plan.conditions:
        images = image_ids(plan, condition, "train")
        if images is not None:
            lines += [f"{condition.name}: {text}" for text in too_few(plan.asks(condition), len(images))]
    return list(dict.fromkeys(lines)), flops


def _model_key(plan: Plan, network: NetworkPlan) -> str:
    own = [i for i, entry in enumerate(plan.config.networks) if entry.name == network.entry and entry.model]
    return f"networks.{own[0]}.model" if own else "model"


def _built(network: NetworkPlan, plan: Plan) -> Built | str:
    """Build the network and try it on one image; return what is wrong with the section `model` if that fails."""
    import timm
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from granularity.learning.networks.network import build

    model, name = network.model, network.model.name
    names = extensions.names("network")
    if name not in names and not timm.is_model(name):
        close = difflib.get_close_matches(name, [*timm.list_models(), *names], n=5, cutoff=0.5)
        meant = f"did you mean {', '.join(close)}?" if close else "timm.list_models() has them all"
        return f"name: there is no network '{name}'; {meant}"
    side, channels = network.recipe.augment.crop or plan.config.pixels.size, len(plan.config.pixels.mode)
    for device in ("meta", "cpu"):  # some networks branch on random numbers, which the meta device does not have
        problem = "name: cannot be built"
        try:
            with torch.device(device), torch.no_grad():
                module = build(model, channels, 2, 0, network.recipe.head_bias).eval()
                problem = f"name: this network cannot take images of {side} px"
                sizes = _sizes_seen(module)
                with FlopCounterMode(display=False) as counter:
                    module(torch.zeros(1, channels, side, side))
            return Built(float(counter.get_total_flops()), sizes.count(1), len(sizes))
        except Exception as error:  # a network may raise anything
            failed = _line(error)
    if failed.startswith("model.stem"):
        return f"stem: {failed.partition(': ')[2]}"
    detail = failed.removeprefix(f"model.name = {name}, model.args = {model.args}: ")
    return f"{problem} ({detail})" if detail == failed else f"{'args' if model.args else 'name'}: {detail} ({name})"


def _sizes_seen(network: Any) -> list[int]:
    """Return a list to which each convolution of several pixels will append its input's side, in pixels."""
    import torch

    sides: list[int] = []
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d) and max(layer.kernel_size) > 1:
            layer.register_forward_hook(lambda _, images, found: sides.append(max(images[0].shape[2:])))
    return sides


def _of_optimiser(recipe: Recipe) -> Iterator[str]:
    import torch

    from granularity.learning.training.loop import optimiser

    weights = torch.nn.Parameter(torch.zeros(2, 2))
    weights.grad = torch.zeros(2, 2)
    key = "optimizer_args" if recipe.optimizer_args else "optimizer"
    try:
        optimiser([weights], recipe).step()
    except GranularityError as error:
        key, _, detail = _line(error).partition(": ")  # optimizer = NAME, or optimizer = NAME, optimizer_args = {...}
        if ", optimizer_args = " in key:
            yield f"optimizer_args: {_line(error.__cause__ or error)}"
        else:
            yield f"optimizer: {recipe.optimizer}: {detail}"
    except Exception as error:
        yield f"{key}: {recipe.optimizer} cannot take a step ({_line(error)})"


def _of_policy(augment: Augment, pixels: Any) -> Iterator[str]:
    from PIL import Image

    from granularity.learning.data.augment import training_view

    if augment.policy is None:
        return
    image = Image.new(pixels.mode, (pixels.size, pixels.size))
    try:
        for step in range(DRAWS):
            training_view(image, augment, pixels.size, 0, step, 0)
    except Exception as error:
        yield f"augment.{'policy_args' if augment.policy_args else 'policy'}: {_line(error.__cause__ or error)}"


def _of_objective(network: NetworkPlan, plan: Plan, can_be_built: bool) -> Iterator[Complaint]:
    import torch

    from granularity.learning.networks.network import build
    from granularity.learning.training.objectives import chosen

    module, options = chosen(network.objective)
    try:
        module.describe(None, network.recipe, options)
    except GranularityError as error:
        yield network.where, f"loss: {_line(error).partition(': ')[2]}"
    except Exception:  # the objective reads its labels, which are not made yet
        return
    if not can_be_built or not hasattr(module, "check"):
        return
    side, channels = network.recipe.augment.crop or plan.config.pixels.size, len(plan.config.pixels.mode)
    try:
        with torch.no_grad():
            module.check(build(network.model, channels, 1, 0).eval(), torch.zeros(1, channels, side, side), options)
    except GranularityError as error:
        yield f"networks.{[entry.name for entry in plan.config.networks].index(network.entry)}", _line(error)


def _of_encoder(plan: Plan) -> Iterator[str]:
    encoder = plan.config.encoder
    if encoder.embeddings is None:
        yield from map(_line, extensions.find("encoder", encoder.kind).check(encoder))
        return
    for condition in filter(plan.embeds, plan.conditions):
        try:
            elsewhere.places(encoder.embeddings, image_ids(plan, condition))
        except GranularityError as error:
            yield f"embeddings: {_line(error)}"


def _of_files(plan: Plan, condition: ConditionPlan) -> Iterator[str]:
    """Yield what is wrong with the label files of a condition; images are compared only if its samples exist."""
    for params in (one.params for one in condition.spaces if one.family == "file"):
        try:
            file.checked(params["path"], params["sha256"], image_ids(plan, condition, "train"), "of" in params)
        except GranularityError as error:
            yield f"{_line(error)} ({condition.name})"


def image_ids(plan: Plan, condition: ConditionPlan, split: str | None = None) -> Any | None:
    """Return the ids of a condition's images; None if its samples are missing or outdated."""
    (job,) = plan.jobs("samples", condition=condition.name)
    with contextlib.suppress(GranularityError):  # missing or outdated
        if Results(plan).unlike(job) is None:
            table = Artifact.open(plan.folder(job)).table("samples.parquet", ["sample_id", "split"])
            return table["sample_id"][(table["split"] == split) | (split is None)]
    return None


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


# ---------------------------------------------------------------- the plan


def remarks(study: Config, plan: Plan, built: dict[str, Built]) -> Iterator[str]:
    """Yield possible mistakes in a configuration and, once they are made, in its sample tables; of a study, in those of
    a cell's plan.
    """
    draws = study.seeds.draws if study.report.unit == "draw" else 1
    few = f"with fewer than {FEW}, few differences can be significant"
    if 1 < draws < FEW:
        yield f"seeds.draws: {draws} draws; {few}"
    samples = plan.config.samples
    if samples.target == samples.ranks[-1]:
        yield f"samples.target: '{samples.target}' is the finest rank; no human labels are finer than the target"
    if samples.source != "digits" and plan.config.pixels.size == Pixels().size:
        yield f"pixels.size: {plan.config.pixels.size} px, the default, is for the digits"
    if samples.source in OWN and samples.val is None and samples.validation == HELD_OUT:
        said = f"{HELD_OUT} images, the default, is for the digits; set it"
        yield f"samples.validation: {said}, unless a split of your images is named {', '.join(VALIDATION)}"
    if plan.config.model == Model() and plan.config.pixels.size > SMALL:
        yield f"model: the default is a small network for digits; for {plan.config.pixels.size} px set model.name"
    for network in plan.networks:
        detail = built[network.name]
        if 3 * detail.blind > detail.convolutions:
            side = network.recipe.augment.crop or plan.config.pixels.size
            remark = f"at {side} px {detail.blind} of {detail.convolutions} convolutions see a single pixel"
            yield f"{network.name}: {remark}; raise pixels.size, or choose a network that shrinks images less"
    for condition in plan.conditions:
        if condition.spaces and draws == 1 and condition.backbones < FEW:
            remark = f"{condition.backbones} backbones per label space; {few}"
            yield f"{condition.name}: {remark} (seeds.pretrain, conditions.backbones)"
        summary = plan.summary(condition)
        findings = ", ".join(f"{count} {name}" for name, count in summary.get("findings", {}).items())
        yield from (f"{condition.name}: {detail}" for detail in summary.get("remarks", ()))
        if findings:
            (job,) = plan.jobs("samples", condition=condition.name)
            yield f"{condition.name}: {findings}; see granularity inspect {plan.folder(job)}/findings.parquet"


def describe(study: Config, plans: Sequence[Plan], found: Found, built: Sequence[dict[str, Built]]) -> str:
    """Describe the label spaces and their origins, the trainings to make and those already there, and their cost.

    For a study, whose cells' `plans` are given: the label spaces and trainings of the first cell, and the cost of all.
    """
    plan, lines = plans[0], [f"{plans[0].config.name}: {plans[0].root}"]
    if len(plans) > 1:
        cells = ", ".join(entry.config.name.partition("/")[2] for entry in plans)
        lines = [*fitted([f"{len(plans)} cells: {cells}"]), "", *lines]
    for i, condition in enumerate(entry for entry in plan.conditions if entry.spaces):
        key = "conditions" if setter(f"conditions.{i}", found) == "default" else f"conditions.{i}"
        lines += ["", f"{condition.name}: {len(condition.spaces)} label spaces; {key} ({setter(key, found)})"]
        by_origin = defaultdict(list)
        for space in condition.spaces:
            key = "samples.target" if space.name == TARGET else f"label_spaces.{space.family}"
            by_origin[f"{key} ({setter(key, found)})"].append(space.name)
        for origin, names in by_origin.items():
            lines += fitted([f"  {', '.join(names)}: {origin}"])
            if origin.startswith("label_spaces.file ") and image_ids(plan, condition) is None:
                lines += fitted(["    images not checked; run `snakemake samples`, then check again"])
    kept, costs = _kept(place.store_of(Path(plan.root))), list(map(Costs, plans, map(_flops, built)))
    rows = [["", "trainings", "in all", "there", "to make", "FLOP", "time"]]
    rows += _trainings(plan, built[0], kept, costs[0])
    lines += ["", *tables_of(rows, 2), "", *_cost(costs, kept), "", *textwrap.wrap(LEGEND, WIDTH)]
    if noted := [f"- {line}" for line in remarks(study, plan, built[0])]:
        lines += ["", "Please check:", *fitted(noted)]
    return "\n".join(lines)


LEGEND = (
    "there: in the store, made by the present code. FLOP: floating-point operations of the jobs to run, forward and "
    "backward. time: of the jobs to run on one CPU (or GPU), from steps timed on this machine, of labels whatever the "
    "objective. -: unknown, because the images are not counted yet (snakemake samples), or a trial failed. Not "
    "counted: reading and scaling the images, k-means, the theory."
)


def _flops(built: dict[str, Built]) -> dict[str, float]:
    return {name: one.flops for name, one in built.items()}


def _cost(costs: Sequence[Costs], kept: set[Kept]) -> Iterator[str]:
    """Yield lines with the cost of what is still to make, by stage and in total."""
    kept, made = set(kept), set()
    cell_stages = [stage for cell_costs in costs for stage in cell_costs.stages(kept, made)]
    stages = []
    for name in dict.fromkeys(stage.name for stage in cell_stages):
        times = [stage.seconds for stage in cell_stages if stage.name == name]
        jobs = sum(stage.jobs for stage in cell_stages if stage.name == name)
        stages.append(Stage(name, jobs, None if None in times else sum(times)))
    if not stages:
        yield "nothing to run"
        return
    rows = [
        ["stage", "jobs to run", "time"],
        *([stage.name, str(stage.jobs), about(stage.seconds)] for stage in stages),
    ]
    yield from tables_of(rows, 1)
    durations = [stage.seconds for stage in stages if stage.seconds is not None]
    on_cpus = costs[0].device == "cpu"
    unit, total = f"{cores()} CPUs" if on_cpus else "one GPU", sum(durations) / (cores() if on_cpus else 1)
    unknown = ", ".join(stage.name for stage in stages if stage.seconds is None)
    if unknown:
        yield f"not known yet: {unknown}; run `snakemake samples`, then check again"
    yield f"{'of those known' if unknown else 'in all'}: {about(total)} on {unit} of this machine"


def about(number: float | None) -> str:
    return "-" if number is None else f"about {seconds(number)}"


def _trainings(plan: Plan, built: dict[str, Built], kept: set[Kept], costs: Costs) -> Iterator[list[str]]:
    """Yield a row for each network of a condition, and for each way of finetuning it."""
    for condition in (one for one in plan.conditions if one.spaces):
        trainings, where = [], {"condition": condition.name}
        for one in plan.networks:
            jobs = plan.jobs("pretrain", network=one.name, **where)
            trainings.append((one.name, one, one.recipe, condition, plan.pretrainings(one, condition), jobs))
        for transfer in plan.transfers:
            data = plan.data_of(transfer, condition)
            for network in plan.networks_of(transfer):
                runs = plan.finetunings(transfer, network, condition)
                jobs = plan.jobs("finetune", transfer=transfer.name, network=network.name, **where)
                trainings.append((f"{network.name} > {transfer.name}", network, transfer.recipe, data, runs, jobs))
        for name, network, recipe, data, runs, jobs in trainings:
            missing = sum(costs.missing(job, kept) for job in jobs)
            done = len(runs) - missing
            images = costs.counted(data).get("train") or data.images or 0
            work = BACKWARD * built[network.name].flops * images * recipe.epochs * missing
            operations = f"{work:.1e}".replace("+", "") if work else "-"
            one = costs.training(jobs[0], data) if missing else None
            time = about(missing * one) if one else "-"
            yield [condition.name, name, *map(str, (len(runs), done, missing)), operations, time]


def _kept(store: Path) -> set[Kept]:
    """Return the results of trainings made by the present code."""
    found = set()
    for folder in place.within(store / RUN):
        try:
            run = Artifact.peek(folder)
        except GranularityError:
            continue
        if is_current(run):
            found.add(Kept(*(run.manifest["options"][key] for key in Kept._fields)))
    return found
