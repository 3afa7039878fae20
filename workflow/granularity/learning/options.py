"""Options of trainings, and of both training stages. Planning reads these, so they do not import torch."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Count, Few, Name, Natural, Precision, Section, name_in, once
from granularity.learning.runs import Run
from granularity.store import place

Parts = Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=2, max_length=2)]


def _names_of_runs(names: list[str]) -> list[str]:
    try:
        once([Run.parse(name).id for name in names])
    except GranularityError as error:
        raise ValueError(str(error)) from None
    return names


def _is_nothing(value: Any) -> bool:
    """Return whether an option newer than existing manifests has its default; then manifests leave it out."""
    return not value


RunNames = Annotated[list[str], AfterValidator(_names_of_runs)]


ARCHITECTURE = "resnet18"
OF_OTHERS = {"args": None, "stem": "timm"}  # defaults of other architectures


class Model(Section):
    name: str = Field(
        ARCHITECTURE, description="Any timm architecture, or a network of your own (named in extensions)."
    )
    args: dict[str, JsonValue] | None = Field(
        {"layers": [1, 1, 1, 0], "channels": [8, 16, 32, 32], "stem_type": "deep", "stem_width": 4},
        description="Keyword arguments for timm.create_model. The default is a small network for small images; yours "
        "replace all of it, and other architectures start with none.",
    )
    stem: Literal["timm", "small"] = Field(
        "small",
        description="`small`: a 3x3 stride-1 first convolution, no max-pooling: for images of 32 px or less. `timm`: "
        "the architecture's own, the default for all others.",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_another(cls, values: Any) -> Any:
        other = isinstance(values, dict) and values.get("name", ARCHITECTURE) != ARCHITECTURE
        return {**OF_OTHERS, **values} if other else values

    @model_validator(mode="after")
    def _from_scratch(self):
        if ":" in self.name:  # timm would load from a hub whatever is there today
            raise ValueError("name: must be the name of an architecture; to load weights, name their file in init")
        for key in self.args or ():
            if key in ("in_chans", "num_classes"):
                raise ValueError(f"args.{key}: is determined by pixels.mode and the label space; remove it")
            if key in ("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path"):
                raise ValueError(f"args.{key}: must not be set here; name initial weights in init")
        return self


class Augment(Section):
    later: ClassVar[frozenset[str]] = frozenset({"scale", "policy", "policy_args"})

    flip: bool = Field(False, description="Mirror left to right, at random.")
    pad: int = Field(0, ge=0, le=4096, description="Padding before the crop, with the mean colour, in pixels per side.")
    crop: Count | None = Field(
        None,
        description="Side of the random crop, and of the centre crop in evaluation (null: the "
        "image; for jpeg its centre).",
    )
    scale: Parts | None = Field(
        None,
        description="Range of the random crop's share of the image's area, such as [0.08, 1]. Its width over height "
        "is between 3/4 and 4/3, and it is resized to `crop` (null: no resizing).",
    )
    policy: name_in("augmentation") | None = Field(
        None,
        description="Further augmentation of each crop, by torchvision.transforms.v2 or by a file of your own.",
        exclude_if=_is_nothing,
    )
    policy_args: dict[str, JsonValue] = Field(
        {},
        description="Keyword arguments of the policy, such as {magnitude: 5}; not merged with inherited ones.",
        exclude_if=_is_nothing,
    )

    @property
    def one_by_one(self) -> bool:
        """Whether images are augmented one by one in main memory, whatever their shape."""
        return self.scale is not None or self.policy is not None

    @model_validator(mode="after")
    def _consistent(self):
        if self.scale is not None and self.scale[0] > self.scale[1]:
            raise ValueError(f"scale: {self.scale[0]} is more than {self.scale[1]}")
        if self.scale is not None and self.crop is None:
            raise ValueError("scale: needs crop, the side that the crops are resized to")
        if self.pad and self.one_by_one:
            raise ValueError("pad: works only for plain crops; remove it, or scale and policy")
        if self.policy_args and self.policy is None:
            raise ValueError("policy_args: need a policy; set policy")
        return self


class Recipe(Section):
    later: ClassVar[frozenset[str]] = frozenset({"micro_batch", "compile"})

    loss: Literal["auto", "softmax", "sigmoid"] = Field(
        "auto", description="Softmax, or sigmoid summed over classes; auto: sigmoid if images have several labels."
    )
    optimizer: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$", max_length=60)] = Field(
        "sgd",
        description="sgd and adam (whose weight_decay is L2, in the gradient), adamw (of the weights), or any name of "
        "timm.optim.list_optimizers().",
    )
    optimizer_args: dict[str, JsonValue] = Field(
        {},
        description="Further keyword arguments of the optimizer, such as {betas: [0.9, 0.95]}; not merged with "
        "inherited ones.",
    )
    lr: float = Field(0.3, gt=0, description="Peak learning rate.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of sgd, and of timm's optimisers that take one.")
    nesterov: bool = Field(False, description="Whether the momentum of sgd is Nesterov's.")
    weight_decay: float = Field(5e-4, ge=0, description="Weight decay, of all weights.")
    clip_norm: float | None = Field(
        None, gt=0, description="Largest norm of the gradient over all weights; a longer gradient is scaled down to it."
    )
    batch_size: Count = Field(100, description="Images per step; an incomplete last batch is dropped.")
    epochs: Count = Field(30, description="Passes over the training split.")
    warmup_epochs: float = Field(2.4, ge=0, description="Epochs of linear warm-up to the peak; may be a fraction.")
    hold_epochs: float = Field(0.0, ge=0, description="Epochs at the peak, after the warm-up.")
    schedule: Literal["cosine", "linear", "step"] = Field(
        "cosine", description="How the learning rate falls to final_lr; step: by step_factor every step_epochs."
    )
    final_lr: float = Field(0.0, ge=0, description="Learning rate at the end of the schedule.")
    step_epochs: float = Field(1.0, gt=0, description="With `schedule: step`: epochs between two drops.")
    step_factor: float = Field(0.97, gt=0, le=1, description="With `schedule: step`: the factor of each drop.")
    head_bias: float | None = Field(
        None, description="Initial bias of the head's outputs (null: drawn at random, as PyTorch does)."
    )
    freeze_backbone: bool = Field(
        False, description="For finetune only: train only the head; the backbone stays in evaluation mode."
    )
    dropout: bool = Field(
        True, description="false: no dropout (of units, paths, patches or blocks), even if model.args asks for it."
    )
    augment: Augment = Augment()
    precision: Precision = Field(
        "float32", description="Precision of products: float32; tf32, faster on GPUs; or bfloat16, by torch's autocast."
    )
    micro_batch: Count | None = Field(
        None,
        description="Images in memory at once: gradients are summed over the parts of a batch, and batch "
        "normalisation uses the moments of each part (null: the whole batch, also over several processes on GPUs).",
    )
    compile: bool = Field(
        False, description="Compile the network with torch.compile: takes a minute, then steps are faster."
    )

    @property
    def for_one(self) -> bool:
        """Whether the recipe asks for something that works only for one network at a time."""
        rounded = self.precision != "float32"  # rounding would hide what is checked before networks are stacked
        whole = self.optimizer not in ("sgd", "adam", "adamw")  # others use norms of whole tensors
        return rounded or whole or any((self.micro_batch, self.clip_norm, self.compile, self.freeze_backbone))

    def unshareable(self, processes: int) -> str:
        """Return why several processes cannot train one network with this recipe together; empty if they can."""
        micro_batches = self.batch_size // self.micro_batch if self.micro_batch else processes
        if processes > self.batch_size:
            return f"processes: {processes} cannot share a batch_size of {self.batch_size}"
        if micro_batches % processes:
            return f"processes: {processes} cannot share the {micro_batches} micro-batches evenly"
        if processes > 1 and self.compile and not self.micro_batch:
            return f"processes: {processes} cannot share a normalisation under compile; set micro_batch"
        return ""

    @model_validator(mode="after")
    def _consistent(self):
        if self.final_lr > self.lr:
            raise ValueError(f"final_lr: {self.final_lr} is more than the peak, lr = {self.lr}")
        if self.warmup_epochs > self.epochs:
            raise ValueError(f"warmup_epochs: {self.warmup_epochs:g} are more than epochs = {self.epochs}; lower it")
        if self.warmup_epochs + self.hold_epochs > self.epochs:
            both = f"{self.hold_epochs:g} and warmup_epochs = {self.warmup_epochs:g}"
            raise ValueError(f"hold_epochs: {both} are more than epochs = {self.epochs}; lower it")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov: needs optimizer: sgd with momentum")
        if self.micro_batch is not None and self.batch_size % self.micro_batch:
            raise ValueError(f"micro_batch: {self.micro_batch} does not divide batch_size = {self.batch_size}")
        for key in self.optimizer_args:
            if key in type(self).model_fields:
                raise ValueError(f"optimizer_args.{key}: must not be set here; set the option {key}")
        return self


class Objective(Section):
    """The objective that pretraining minimises. A name alone means that objective with its default options."""

    name: Name = Field("labels", description="A file in learning/training/objectives/, or one of your own.")
    options: dict[str, JsonValue] = Field({}, description="Options of the objective; see its file.")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class Init(Section):
    """The weights that a network starts with; set at most one. The head always starts from scratch."""

    timm: Path | None = Field(None, description="A safetensors file with timm's weights of this architecture.")
    results: Path | None = Field(None, description="Another configuration's results/NAME, or a pretrain result of it.")
    run: str | None = Field(
        None, min_length=1, description="A run's name (SPACE-pSEED-ID) or id; RUN@EPOCH for an epoch that was kept."
    )

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value == "scratch":
            return {}
        if value.startswith("timm:"):
            return {"timm": value.removeprefix("timm:")}
        raise ValueError("must be scratch, timm:FILE, or a mapping of results and run")

    @model_validator(mode="after")
    def _one(self):
        if self.timm is not None and (self.results or self.run):
            raise ValueError("timm: cannot be combined with results and run; a network starts with one set of weights")
        if self.results is not None and self.run is None:
            raise ValueError("run: is missing; name a run of results")
        return self

    @property
    def scratch(self) -> bool:
        return self.timm is None and self.run is None

    def folder(self) -> Path:
        """Return the pretrain result, in or below `results`, that holds the backbone of `run`. Raise GranularityError
        if none has that backbone, or several do.
        """
        if self.results is None:
            raise GranularityError(f"init.run: {self.run}: name its folder of results in init.results")
        folders = place.find(self.results) if self.results.exists() else ()
        ends = (f"/{self.run}.safetensors", f"-{self.run}.safetensors")  # its name, or its id
        matches = [result for result in folders if any(str(file).endswith(ends) for file in result.glob("backbones/*"))]
        if len(matches) == 1:
            return matches[0]
        if matches:
            places = ", ".join(map(str, matches))
            raise GranularityError(f"init: the run '{self.run}' is in {places}; name one in results")
        raise GranularityError(
            f"init: {self.results}: contains no backbone of a run '{self.run}'; make it with its own configuration: "
            "snakemake pretrain --configfile FILE"
        )


class Trainings(Section):
    """Options that both training stages have."""

    recipe: Recipe = Recipe()
    runs: RunNames = Field([], description="Names of this job's runs: SPACE-pSEED-ID, or SPACE-pSEED-fSEED-ID.")
    processes: Few = Field(
        1, description="Number of processes that train one network together; it affects the last bits."
    )

    @model_validator(mode="after")
    def _can_share(self):
        if complaint := self.recipe.unshareable(self.processes):
            raise ValueError(complaint)
        return self


class Pretrain(Trainings):
    """Options of the stage `pretrain`."""

    network: Name = Field("default", description="The name of this network; a column of the results.")
    model: Model = Model()
    objective: Objective = Objective()
    init: Init = Init()
    keep: list[Natural] = Field([], description="Epochs whose weights are kept as well; 0 is the untrained network.")

    @model_validator(mode="after")
    def _consistent(self):
        if self.recipe.freeze_backbone:
            raise ValueError("recipe.freeze_backbone: there is no backbone yet; use it in finetune")
        check_keep(self.keep, self.recipe)
        return self


class Finetune(Trainings):
    """Options of the stage `finetune`."""

    transfer: Name = Field("default", description="The name of this transfer; a column of the results.")
    keep: bool = Field(False, description="Keep the finetuned networks: networks/RUN.safetensors.")
    from_epoch: Natural | None = Field(None, description="Start from this epoch of the pretraining (null: the last).")
    architecture: str = Field("", description="Architecture of the backbones; if it is your own file, its code counts.")
    other_data: bool = Field(False, description="Whether the images come from another data set than in pretraining.")


def check_keep(keep: list[int], recipe: Recipe) -> None:
    """Raise ValueError if epochs to keep are named twice, or lie beyond the training."""
    if len(set(keep)) < len(keep):
        raise ValueError(f"keep: an epoch is given twice: {keep}")
    for epoch in keep:
        if epoch > recipe.epochs:
            raise ValueError(f"keep: there is no epoch {epoch} in recipe.epochs = {recipe.epochs}")


def own_network(name: str) -> list[tuple[str, str]]:
    """Return an architecture as a chosen extension if it is a file and not one of timm's, else nothing."""
    return [("network", name)] if name in extensions.names("network") else []


def optimiser_file(recipe: Recipe) -> str:
    """Return the extension that makes a recipe's optimiser: a file of that name, or timm's factory."""
    return recipe.optimizer if recipe.optimizer in extensions.names("optimiser") else "timm"


def augmentation(recipe: Recipe) -> list[tuple[str, str]]:
    """Return the policy that a recipe applies to crops, as a chosen extension."""
    return [] if recipe.augment.policy is None else [("augmentation", recipe.augment.policy)]
