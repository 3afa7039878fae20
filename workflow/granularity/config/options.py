"""The configuration: all sections, and checks across sections."""

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, create_model, model_validator

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Count, Device, Few, Name, Natural, Section, split_key
from granularity.learning.clip_options import Encoder
from granularity.learning.options import Init, Model, Objective, Recipe
from granularity.learning.training.objectives import chosen
from granularity.plan.trainings import deep, networks, transfers
from granularity.stages.cluster.options import Cluster
from granularity.stages.duplicates.options import Duplicates
from granularity.stages.hierarchy.space import TARGET, Space, clusterings, label_spaces_section, misnamed, spaces
from granularity.stages.measure.measures.probe import Probe
from granularity.stages.measure.options import Measure
from granularity.stages.pixels.options import Pixels
from granularity.stages.report.options import MERGED, Report
from granularity.stages.samples.options import Condition, kept_as, samples_section
from granularity.stages.samples.options import complaints as samples_complaints
from granularity.stages.theory.options import Theory

DIGITS_PX = 8
OWN_ENCODER = (
    "for photographs name published weights (encoder: {model: ViT-L-14-quickgelu, pretrained: openai}), or train a "
    "small encoder here (encoder: {model: config/encoders/photos-tiny.json, captions: {template: 'a photo of a {}'}})"
)
WORD = "[A-Za-z0-9][A-Za-z0-9_.-]*"
LONGEST = 100  # characters of a name
Unit = Literal["run", "space", "family", "condition", "auto"]


class Seeds(Section):
    base: Natural = Field(0, description="Base seed of splits, random IDs, k-means starts and runs.")
    draws: Few = Field(
        1,
        description="Number of repetitions of the whole configuration, with base seeds base, base + 1, and so on: new "
        "draws of images, labels, clusters and networks, each in its own folder, results/NAME/draw-N.",
    )
    pretrain: Few = Field(
        8,
        description="Number of pretraining seeds, and so of independent backbones, per label space, unless a "
        "condition sets `backbones`.",
    )
    finetune: Few = Field(
        1,
        description="Number of finetuning seeds per pretrained backbone. Intervals are over backbones, not over these.",
    )

    @model_validator(mode="after")
    def _plannable(self):
        if self.pretrain * self.finetune > 10_000:
            runs = f"{self.finetune} on each of {self.pretrain} backbones"
            raise ValueError(f"finetune: {runs} are more than 10,000 runs")
        return self


class Jobs(Section):
    """What one job trains, and with how many processes."""

    pretrain: Unit = Field(
        "auto",
        description="What one pretraining job trains: one run, one label space, one family, or one whole condition. "
        "Starting a job takes seconds, so tiny networks share one; results do not depend on it. `auto`: as many runs "
        "as one CPU trains in about half a minute, but at least one.",
    )
    finetune: Unit = Field("auto", description="What one finetuning job trains, as in `pretrain`.")
    measure: Unit = Field("auto", description="What one measuring job measures, as in `pretrain`.")
    processes: Annotated[int, Field(ge=1, le=1000)] = Field(
        1,
        description="Processes that train one network together, in pretrain and finetune. Each has its own GPU (or "
        "CPU thread) and a share of every batch. Part of the result: sums over processes affect the last bits.",
    )


class Network(Section):
    """One kind of network and how it is pretrained; omitted keys are as in `model` and `pretrain`."""

    name: Name
    model: dict[str, JsonValue] = Field({}, description="Keys that override `model`.")
    recipe: dict[str, JsonValue] = Field({}, description="Keys that override `pretrain`.")
    objective: Objective = Objective()
    init: Init = Field(Init(), description="scratch, timm:FILE, or {results: FOLDER, run: NAME OF A RUN}.")
    spaces: list[str] | None = Field(None, description="Only these label spaces (null: all of the condition).")
    keep: list[Natural] = Field([], description="Epochs whose weights are kept besides the last; 0: untrained.")
    grid: dict[str, list[JsonValue]] = Field(
        {}, description="Recipe keys with several values: every combination is a separate network."
    )


class Data(Section):
    """Another data set, to transfer to."""

    samples: dict[str, JsonValue] = Field(description="A whole `samples` section.")
    train_size: Count | Literal["all"] = Field("all", description="Training images, as in `conditions`.")


class Transfer(Section):
    """One way to finetune; omitted keys are as in `finetune`."""

    name: Name
    of: list[str] | None = Field(None, description="Only networks with these names (null: all).")
    data: Data | None = Field(
        None, description="Another data set {samples: ..., train_size: ...} (null: the images of the pretraining)."
    )
    recipe: dict[str, JsonValue] = Field({}, description="Keys that override `finetune`.")
    grid: dict[str, list[JsonValue]] = Field(
        {}, description="Recipe keys with several values: every combination is a separate transfer."
    )
    from_epoch: Natural | None = Field(
        None, description="Start from this epoch of the pretraining, which networks must `keep` (null: the last)."
    )
    keep: bool = Field(False, description="Keep the finetuned networks, so that they can be measured.")


class Experiment(Section):
    """The configuration of one experiment; its results go to `results/NAME/`."""

    name: Annotated[str, Field(pattern=rf"^{WORD}(/{WORD})?$", max_length=200)] = Field(
        "digits", description="Names the results folder."
    )
    base: str | None = Field(
        None,
        description="A file that this file modifies; its path is relative to this file. Keys given here override it.",
    )
    device: Device = Field(
        "auto",
        description="auto: a GPU if the job sees one (on Slurm write cuda: auto asks for none); cuda: a GPU or an "
        "error; cpu.",
    )
    seeds: Seeds = Seeds()
    axes: dict[str, Annotated[list[JsonValue] | dict[str, dict[str, JsonValue]], Field(min_length=1)]] = Field(
        {},
        description="Keys with several values, such as {pretrain.lr: [0.1, 0.3]}, or settings by name, such as "
        "{images: {few: {conditions.0.train_size: 40, pretrain.epochs: 9}, many: {}}}: each combination is a separate "
        "configuration, in results/NAME/CELL.",
    )
    samples: Section  # with the keys of all sources, see build()
    conditions: list[Condition] = Field(
        [Condition(train_size="all")],
        min_length=1,
        description="Training-set sizes; each is computed separately from the samples on. Each: {train_size, spaces, "
        "backbones, primary, merged}; see docs/draws.md.",
    )
    encoder: Encoder = Encoder()
    duplicates: Duplicates = Duplicates()
    cluster: Cluster = Cluster()
    label_spaces: Section  # with the keys of all families
    pixels: Pixels = Pixels()
    model: Model = Model()
    pretrain: Recipe = Recipe()
    finetune: Recipe = Field(
        default_factory=Recipe, description="Inherits every key of `pretrain`; keys given here override it."
    )
    networks: list[Network] = Field(
        [],
        description="Several kinds of networks and recipes (empty: one, from `model` and `pretrain`). Each: {name, "
        "model, recipe, objective, init, spaces, keep, grid}; see docs/recipes.md.",
    )
    transfers: list[Transfer] = Field(
        [],
        description="Ways to finetune (empty: one, on the same data, from `finetune`). Each: {name, of, data, recipe, "
        "grid, keep}; see docs/recipes.md.",
    )
    probe: Probe = Probe()
    measures: list[Measure] = Field(
        [Measure(name="probe")],
        description="Measures of the networks. Each: {name, measure, of, splits, ranks, options}; see "
        "docs/recipes.md. The options of the measure `probe` are above.",
    )
    studies: list[str] = Field(
        [], description="Studies whose claims are judged from these results, by name; see docs/studies.md."
    )
    predictions: Path | None = Field(
        None, description="A file with the expected findings of a study, written before it runs; see docs/draws.md."
    )
    extensions: list[Path] = Field(
        [],
        description="Python files of your own: sources, families, objectives, networks, measures, studies or worlds; "
        "see docs/development.md.",
    )
    jobs: Jobs = Jobs()
    theory: Theory = Theory()
    report: Report = Report()

    @functools.cached_property  # not a field, so ignored in comparisons
    def given(self) -> dict[str, Any]:
        """The values set in files and on the command line, without defaults."""
        return self.model_dump(mode="json", exclude_unset=True)

    @model_validator(mode="before")
    @classmethod
    def inherited(cls, values: Any) -> Any:
        """Return the values with a complete `finetune`: the keys of `pretrain`, overridden by its own."""
        base, own = (values.get(key) for key in ("pretrain", "finetune")) if isinstance(values, dict) else (None, None)
        if not isinstance(base, dict) or not isinstance(own, dict | None):
            return values
        return {**values, "finetune": deep(base, own or {})}


def complaints(config: Any) -> Iterator[str]:
    """Yield conflicts between a configuration's sections, each as "key: what"."""
    if config.name == "theory":
        yield "name: results/theory is reserved for the theory simulations; choose another name"
    sizes = [condition.train_size for condition in config.conditions]
    if len(set(sizes)) != len(sizes):
        yield f"conditions: a train_size is given twice: {sizes}"
    label_spaces = spaces(config.label_spaces, config.samples)
    yield from misnamed(label_spaces)
    for key in ("conditions", "networks"):
        for i, entry in enumerate(getattr(config, key)):
            yield from _unknown(
                f"{key}.{i}.spaces", entry.spaces, "label space", [space.name for space in label_spaces]
            )
    yield from _of_primary(config, [space.name for space in label_spaces])
    yield from _of_merged(config, label_spaces)
    yield from _unknown("studies", config.studies, "study", extensions.names("study"))
    for name in extensions.names("family"):
        family = extensions.find("family", name)
        if hasattr(family, "check"):
            yield from family.check(getattr(config.label_spaces, name), config)
    for complaint in samples_complaints(config.samples, config.conditions):
        yield complaint if complaint.startswith("conditions") else f"samples.{complaint}"
    yield from _of_encoder(config, label_spaces)
    yield from _of_networks(config)
    yield from _of_transfers(config)
    if config.predictions is not None and config.seeds.draws == 1 and not config.axes:
        yield "predictions: need a study; set seeds.draws or axes"
    yield from _names("measures", config.measures)
    for i, measure in enumerate(config.measures):
        splits = ["train", "val", *map(kept_as, config.samples.extra_splits)]
        yield from _unknown(f"measures.{i}.splits", measure.splits, "split", splits)
        yield from _unknown(f"measures.{i}.ranks", measure.ranks, "rank", config.samples.ranks)
        if "finetuned" in (measure.of or ()) and not any(one.keep and one.data is None for one in transfers(config)):
            yield f"measures.{i}.of: finetuned: no transfer to the same images keeps networks; set its keep: true"
        if "checkpoints" in (measure.of or ()) and not any(any(one.keep) for one in networks(config)):
            yield f"measures.{i}.of: checkpoints: no network keeps an epoch after 0; set its keep"
    mistakes = list(_of_recipes(config))  # `finetune` inherits some mistakes from `pretrain`
    for mistake in mistakes:
        if "finetune" not in mistake or mistake.replace("finetune", "pretrain", 1) not in mistakes:
            yield mistake


def _of_encoder(config: Any, made: Iterable[Space]) -> Iterator[str]:
    """Complain if other images would be embedded with the default encoder, which is for digits of 8 px."""
    encoder, digits = config.encoder, Encoder()
    requested = [
        space for entry in config.conditions for space in made if entry.spaces is None or space.name in entry.spaces
    ]
    embedded = bool(clusterings(requested)) or any("embedding" in (entry.of or ()) for entry in config.measures)
    embedded |= config.duplicates.embedded
    if config.samples.source == "digits" or not embedded or not encoder.trained_here:
        return
    if encoder.model == digits.model and config.pixels.size > DIGITS_PX:
        yield f"encoder.model: {digits.model} is for digits of {DIGITS_PX} px; {OWN_ENCODER}"
    if encoder.captions.template == digits.captions.template:
        yield f"encoder.captions.template: {digits.captions.template!r} is for digits; {OWN_ENCODER}"


def _of_primary(config: Any, made: list[str]) -> Iterator[str]:
    comparisons, first = sum(len(condition.primary) for condition in config.conditions), networks(config)[0]
    own = [name for name in made if first.spaces is None or name in first.spaces]
    finetuned = any(transfer.finetunes(first) for transfer in transfers(config))
    draws = config.seeds.draws if config.report.unit == "draw" else 1  # the unit of a study's intervals
    for i, condition in enumerate(config.conditions):
        asked = [name for name in own if condition.spaces is None or name in (TARGET, *condition.spaces)]
        backbones = condition.backbones or config.seeds.pretrain
        if condition.primary and not finetuned:
            yield f"conditions.{i}.primary: concerns the first network, '{first.name}', which no transfer finetunes"
        for j, one in enumerate(condition.primary):
            for key in ("arm", "against"):
                yield from _unknown(f"conditions.{i}.primary.{j}.{key}", [getattr(one, key)], "label space", asked)
            what = f"conditions.{i}.primary.{j}.smallest: finding {one.smallest} points takes at least"
            if draws > 1 and draws < (needed := one.backbones(comparisons, each=backbones) or 0):
                yield f"{what} {needed} draws with {backbones} backbones, not {draws}; raise seeds.draws"
            elif draws == 1 and backbones < (needed := one.backbones(comparisons) or 0):
                yield f"{what} {needed} backbones per label space, not {backbones}; raise conditions.{i}.backbones"


def _of_merged(config: Any, made: Iterable[Space]) -> Iterator[str]:
    """Complain about label spaces that cannot be merged into the target, if that is known before they are made."""
    ranks, trained = config.samples.ranks, any(network.merged for network in networks(config))
    for i, condition in enumerate(config.conditions):
        if condition.merged and not trained:
            yield f"conditions.{i}.merged: no network is trained on label spaces and finetuned on the same images"
        where, by_name = f"conditions.{i}.merged", {space.name: space for space in made}
        candidates = [name for name in by_name if condition.spaces is None or name in (TARGET, *condition.spaces)]
        yield from _unknown(where, condition.merged, "label space", candidates)
        for name in (entry for entry in condition.merged if entry in by_name):
            space = by_name[name]
            rank = space.params.get("rank")
            coarser = rank in ranks and ranks.index(rank) < ranks.index(config.samples.target)
            whole = any(entry.startswith("whole-") for entry in space.params.get("clusterings", ()))
            if coarser or whole or space.family == "random":
                yield f"{where}: '{name}' does not hold the target: a class of it may lie in several target classes"


def _unknown(where: str, names: Iterable[str] | None, kind: str, known: Iterable[str]) -> Iterator[str]:
    for name in names or ():
        if name not in known:
            yield f"{where}: there is no {kind} '{name}'; there are {', '.join(known)}"


def _of_networks(config: Any) -> Iterator[str]:
    planned = networks(config)
    yield from _names("networks", config.networks, planned)
    for i, entry in enumerate(config.networks):
        if entry.name.endswith(MERGED):
            yield f"networks.{i}.name: '{entry.name}' has an ending reserved for conditions.merged; choose another name"
    for network in planned:
        if network.recipe.freeze_backbone and not network.merged:
            yield f"{network.where}.freeze_backbone: there is no backbone yet; use it in finetune"
    for i, network in enumerate(config.networks):
        try:
            chosen(network.objective)
            if network.init.run is not None:
                network.init.folder()
        except GranularityError as error:
            key, message = split_key(str(error))
            yield f"networks.{i}.{key or 'objective.name'}: {message}"
        if network.init.timm is not None and not network.init.timm.is_file():
            yield f"networks.{i}.init.timm: there is no file '{network.init.timm}'"


def _of_transfers(config: Any) -> Iterator[str]:
    planned, sources = transfers(config), networks(config)
    yield from _names("transfers", config.transfers, planned)
    entries = list(dict.fromkeys(network.entry for network in sources))
    for i, transfer in enumerate(config.transfers):
        yield from _unknown(f"transfers.{i}.of", transfer.of, "network", entries)
        epoch = transfer.from_epoch
        for network in sources if epoch is not None else ():
            if network.entry in (transfer.of or entries) and epoch not in network.keep:
                yield f"transfers.{i}.from_epoch: the network '{network.name}' does not keep epoch {epoch}"
    for data in {transfer.data.where: transfer.data for transfer in planned if transfer.data}.values():
        for complaint in samples_complaints(data.samples, [Condition(train_size=data.train_size)]):
            key, message = split_key(complaint)
            yield f"{data.where}.{'train_size' if key == 'conditions' else f'samples.{key}'}: {message}"


def _of_recipes(config: Any) -> Iterator[str]:
    sizes = [(f"conditions[{i}]", condition.train_size) for i, condition in enumerate(config.conditions)]
    recipes = [(network.where, network.recipe, sizes) for network in networks(config) if not network.merged]
    for transfer in transfers(config):
        target_sizes = sizes if transfer.data is None else [(transfer.data.where, transfer.data.train_size)]
        recipes.append((transfer.where, transfer.recipe, target_sizes))
    for where, recipe, images in recipes:
        for section, size in images:
            if size != "all" and recipe.batch_size > size:
                yield f"{where}.batch_size: {recipe.batch_size} is more than the {size} training images of {section}"
        if complaint := recipe.unshareable(config.jobs.processes):
            yield f"jobs.{complaint} ({where})"
        crop, pad = recipe.augment.crop, recipe.augment.pad
        if crop is not None and crop > config.pixels.size + 2 * pad:
            yield f"{where}.augment.crop: {crop} px do not fit in the padded {config.pixels.size} px image"
        if pad and config.pixels.format == "jpeg":
            yield f"{where}.augment.pad: images of pixels.format jpeg cannot be padded; set pad to 0"


def _names(key: str, *several: Iterable[Any]) -> Iterator[str]:
    """Complain about names that are too long or used twice, by entries or by combinations of their grids."""
    for names in ([entry.name for entry in entries] for entries in several):
        yield from (f"{key}: a name of more than 60 characters: {name}" for name in names if len(name) > 60)
        if len(set(names)) < len(names):
            yield f"{key}: a name is given twice: {names}"
            return


def build() -> type[Experiment]:
    """Return the model of a configuration, with the keys of all sources and families known now."""
    samples, label_spaces = samples_section(), label_spaces_section()
    sections = {"samples": (samples, samples()), "label_spaces": (label_spaces, label_spaces())}
    return create_model("Config", __base__=Experiment, __doc__=Experiment.__doc__, **sections)


Config = build()
