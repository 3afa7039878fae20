"""Options of trainings: networks, augmentation, recipes, objectives, initial weights; and of both training stages.

Light: planning reads these, and imports no torch.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Count, Few, Name, Natural, Precision, Section
from granularity.learning.runs import Run
from granularity.store import artifacts

Parts = Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=2, max_length=2)]
Shapes = Annotated[list[Annotated[float, Field(ge=0.01, le=100)]], Field(min_length=2, max_length=2)]


class Model(Section):
    name: str = Field(
        "resnet18", description="Any timm architecture, or a network of your own (a file named in extensions)."
    )
    args: dict[str, JsonValue] | None = Field(
        {"layers": [1, 1, 1, 0], "channels": [8, 16, 32, 32], "stem_type": "deep", "stem_width": 4},
        description="Keyword arguments for timm.create_model. Your keys are merged over these: null for none of them.",
    )
    stem: Literal["timm", "small"] = Field(
        "small",
        description="`small`: a 3x3 stride-1 first convolution and no max-pooling, for images of 32 px or less.",
    )

    @model_validator(mode="after")
    def _from_scratch(self):
        if ":" in self.name:  # timm would go to a hub, for whatever is there today
            raise ValueError("name: must be the name of an architecture; weights are a file of yours, named in init")
        ours = {"in_chans", "num_classes"}
        weights = {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path"}
        for key in self.args or ():
            if key in ours:
                raise ValueError(f"args.{key}: follows from pixels.mode and the label space")
            if key in weights:
                raise ValueError(f"args.{key}: initial weights are named in init")
        return self


class Augment(Section):
    later: ClassVar[frozenset[str]] = frozenset({"scale", "ratio", "policy"})

    flip: bool = Field(False, description="Mirror left to right, at random.")
    pad: Annotated[int, Field(ge=0, le=4096)] = Field(
        0, description="Padding before the crop, with the mean colour, in pixels on each side."
    )
    crop: Count | None = Field(
        None,
        description="Side of a random crop in training and the centre crop in evaluation (null: the image; of "
        "pixels.format jpeg its centre square).",
    )
    scale: Parts | None = Field(
        None,
        description="The random crop takes a share of the image's area between these two, such as [0.08, 1], and is "
        "resized to `crop` (null: it is cut out as it is).",
    )
    ratio: Shapes = Field(
        [0.75, 1.3333333], description="With scale: the width of such a crop over its height, between these."
    )
    policy: dict[str, JsonValue] | None = Field(
        None,
        description="What is done to the crop besides: {name: RandAugment, num_ops: 2, magnitude: 9} or any other "
        "transform of torchvision.transforms.v2 with its arguments, or a policy of timm ({name: rand-m9-mstd0.5}).",
    )

    @model_validator(mode="after")
    def _consistent(self):
        for name in ("scale", "ratio"):
            low, high = getattr(self, name) or (0, 0)
            if low > high:
                raise ValueError(f"{name}: {low} is more than {high}")
        if self.scale is not None and self.crop is None:
            raise ValueError("scale: needs crop, the side that the crops are resized to")
        if self.policy is not None and not isinstance(self.policy.get("name"), str):
            raise ValueError("policy: must have a name, of torchvision.transforms.v2 or timm")
        if self.pad and self.on_host:
            raise ValueError("pad: is for plain crops; there is none with scale or policy")
        return self

    @property
    def on_host(self) -> bool:
        """Whether each image is augmented by itself, before it reaches the device."""
        return self.scale is not None or self.policy is not None


class Recipe(Section):
    later: ClassVar[frozenset[str]] = frozenset({"micro_batch", "compile", "shuffle_block", "stack"})

    loss: Literal["auto", "softmax", "sigmoid"] = Field(
        "auto",
        description="Cross-entropy: softmax, or sigmoid (a yes or no for each class, summed over the classes). auto: "
        "sigmoid where the label space has images with several labels, else softmax.",
    )
    optimizer: Annotated[str, Field(pattern="^[A-Za-z0-9_]+$", max_length=60)] = Field(
        "sgd",
        description="sgd, adam, adamw, or any name of timm's factory (timm.optim.list_optimizers()). weight_decay is "
        "of the gradient (L2) for sgd and adam, of the weights for adamw.",
    )
    optimizer_args: dict[str, JsonValue] = Field(
        {}, description="Further keyword arguments of the optimizer, such as {betas: [0.9, 0.95]}."
    )
    lr: float = Field(0.3, gt=0, description="Peak learning rate.")
    momentum: float = Field(
        0.9, ge=0, lt=1, description="Momentum of sgd, and of those of timm's optimisers that take one."
    )
    nesterov: bool = Field(False, description="Whether the momentum of sgd is Nesterov's.")
    weight_decay: float = Field(5e-4, ge=0, description="Weight decay, of all weights.")
    clip_norm: float | None = Field(
        None, gt=0, description="The gradient is scaled down to this norm, over all weights, where it is longer."
    )
    batch_size: Count = Field(100, description="Images per step; an incomplete last batch is dropped.")
    epochs: Count = Field(30, description="Passes over the training split.")
    shuffle_block: Count = Field(
        1,
        description="Images that lie one after another and are read close to each other in time, for slow disks: "
        "blocks of so many are permuted, and then the images of each 256 blocks. 1: any order is as likely as another.",
    )
    warmup_epochs: Annotated[float, Field(ge=0)] = Field(
        2.4, description="Linear warm-up to the peak; a fraction gives any number of steps."
    )
    hold_epochs: Annotated[float, Field(ge=0)] = Field(0.0, description="Epochs at the peak, after the warm-up.")
    schedule: Literal["cosine", "linear", "step"] = Field(
        "cosine",
        description="How the learning rate falls to final_lr over the remaining epochs. step: it is multiplied by "
        "step_factor every step_epochs, and stays at final_lr or above.",
    )
    final_lr: float = Field(0.0, ge=0, description="Learning rate that the schedule ends at.")
    step_epochs: float = Field(1.0, gt=0, description="With `schedule: step`: epochs between two falls.")
    step_factor: float = Field(0.97, gt=0, le=1, description="With `schedule: step`: the factor of each fall.")
    head_bias: float | None = Field(
        None, description="Initial bias of the head's outputs (null: drawn at random, as PyTorch does)."
    )
    freeze_backbone: bool = Field(
        False,
        description="Train the head alone, on a backbone as in evaluation (a linear probe by gradient descent). For "
        "finetune only.",
    )
    dropout: bool = Field(True, description="false: no dropout, whatever the network has (model.args).")
    augment: Augment = Augment()
    precision: Precision = Field(
        "float32",
        description="Of products in training and evaluation: float32; tf32, which GPUs multiply faster; or bfloat16, "
        "by torch's autocast.",
    )
    micro_batch: Count | None = Field(
        None,
        description="Images that are in memory at once: gradients of the parts of a batch are summed, and batch "
        "normalisation takes the moments of each part (null: the whole batch, also over several processes).",
    )
    compile: bool = Field(False, description="Compile the network by torch.compile: a minute, then faster steps.")
    stack: Few | None = Field(
        None,
        description="Networks of one job that are trained side by side at most, as one network of grouped convolutions "
        "(null: as many as pay, which is one for all but small networks; 1: one after another). A network's last bits "
        "tell whether it was in a stack, but not which others were. Where a recipe or a network is for one at a time "
        "(micro_batch, clip_norm, compile, freeze_backbone, dropout, precision, several processes, layers other than "
        "convolution and batch normalisation, numbers of channels other than 8, 16, ...), so it is trained, whatever "
        "this says.",
    )

    @property
    def for_one(self) -> str:
        """The first option that can be had for one network at a time only; "" for none."""
        asked = {name: getattr(self, name) for name in ("micro_batch", "clip_norm", "compile", "freeze_backbone")}
        asked["precision"] = (
            self.precision != "float32"
        )  # rounding would hide what is looked for before a stack is made
        asked["optimizer"] = self.optimizer not in ("sgd", "adam", "adamw")  # others look at norms of whole tensors
        return next((name for name, value in asked.items() if value), "")

    @model_validator(mode="after")
    def _consistent(self):
        if self.final_lr > self.lr:
            raise ValueError(f"final_lr: {self.final_lr} is more than the peak, lr = {self.lr}")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov: is for optimizer: sgd with momentum")
        if self.micro_batch is not None and self.batch_size % self.micro_batch:
            raise ValueError(f"micro_batch: {self.micro_batch} does not divide batch_size = {self.batch_size}")
        for key in self.optimizer_args:
            if key in type(self).model_fields:
                raise ValueError(f"optimizer_args.{key}: is an option of its own: {key}")
        return self


class Objective(Section):
    """The objective of a pretraining: what it minimises; a name alone stands for an objective with its defaults."""

    name: Name = Field("labels", description="A file in learning/objectives/, or one of your own.")
    options: dict[str, JsonValue] = Field({}, description="The objective's own options; its file says which.")

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class Init(Section):
    """The weights that a network starts with; at most one of them. The head is always fresh."""

    timm: Path | None = Field(None, description="A safetensors file with timm's weights of this architecture.")
    results: Path | None = Field(
        None, description="The results of another configuration (results/NAME), or one pretrain result in there."
    )
    run: str | None = Field(
        None,
        min_length=1,
        description="Which of its runs: its name (SPACE-pSEED-ID) or id; RUN@EPOCH for an epoch that was kept.",
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
            raise ValueError("timm: excludes results and run; a network starts with one set of weights")
        if self.results is not None and self.run is None:
            raise ValueError("run: is missing: which run of results?")
        return self

    @property
    def scratch(self) -> bool:
        return self.timm is None and self.run is None

    def folder(self) -> Path:
        """The pretrain result, in or below `results`, that holds the backbone of `run`.

        Raises:
            GranularityError: no result has that backbone, or several have.
        """
        run, at, epoch = (self.run or "").partition("@")
        if self.results is None:
            raise GranularityError(f"init.run: {self.run}: of which results? (init.results)")
        pattern = f"backbones/*{glob.escape(run)}{at}{glob.escape(epoch)}.safetensors"
        found = [
            path
            for path in (artifacts.find(self.results) if self.results.exists() else ())
            if any(_is_run(file.stem, self.run) for file in path.glob(pattern))
        ]
        if not found:
            raise GranularityError(
                f"init: {self.results}: holds no backbone of a run '{self.run}'; make it with its own configuration: "
                "snakemake pretrain --configfile FILE"
            )
        if len(found) > 1:
            raise GranularityError(
                f"init: the run '{self.run}' is in {', '.join(map(str, found))}; name one in results"
            )
        return found[0]


class Trainings(Section):
    """Options that both training stages have."""

    recipe: Recipe = Recipe()
    runs: list[str] = Field(
        [], description="Names of the runs of this job: SPACE-pSEED-ID, or SPACE-pSEED-fSEED-ID in finetune."
    )
    processes: Few = Field(1, description="Number of processes that train one network together; it decides last bits.")
    arms: Few = Field(1, description="Number of processes that train a network each, in lockstep; changes no byte.")

    @field_validator("runs")
    @classmethod
    def _are_names(cls, names: list[str]) -> list[str]:
        try:
            ids = [Run.parse(name).id for name in names]
        except GranularityError as error:
            raise ValueError(str(error)) from None
        if len(set(ids)) < len(ids):
            raise ValueError(f"a run is named twice: {names}")
        return names

    @model_validator(mode="after")
    def _can_share(self):
        if self.arms > 1 and self.processes > 1:
            raise ValueError("arms: arms in lockstep are trained by one process each; set processes or arms")
        for key, count in {"processes": self.processes, "arms": self.arms}.items():
            if count > self.recipe.batch_size:
                raise ValueError(f"{key}: {count} cannot share a batch_size of {self.recipe.batch_size}")
        one, whole = self.recipe.micro_batch, self.recipe.batch_size
        if one is not None and (whole // one) % self.processes:
            raise ValueError(f"processes: {self.processes} cannot share the {whole // one} micro-batches evenly")
        if self.recipe.compile and one is None and self.processes > 1:
            raise ValueError("compile: set micro_batch; what is normalised over several processes is not compiled")
        return self


class Pretrain(Trainings):
    """Options of the stage `pretrain`."""

    network: Name = Field("default", description="The name of this network; a column of the results.")
    model: Model = Model()
    objective: Objective = Objective()
    init: Init = Init()
    keep: list[Natural] = Field(
        [], description="Epochs after which the weights are kept as well; 0 is the untrained network."
    )

    @model_validator(mode="after")
    def _consistent(self):
        if self.recipe.freeze_backbone:
            raise ValueError("recipe.freeze_backbone: there is no backbone yet; it is for finetune")
        check_keep(self.keep, self.recipe)
        return self


class Finetune(Trainings):
    """Options of the stage `finetune`."""

    transfer: Name = Field("default", description="The name of this transfer; a column of the results.")
    keep: bool = Field(False, description="Keep the finetuned networks: networks/RUN.safetensors.")
    from_epoch: Natural | None = Field(None, description="Start from this epoch of the pretraining (null: its end).")
    architecture: str = Field(
        "", description="Name of the backbones' architecture; if it is a file of your own, its code counts."
    )
    other_data: bool = Field(
        False, description="Whether the images are of another data set than those of the pretraining."
    )


def check_keep(keep: list[int], recipe: Recipe) -> None:
    """Raise a ValueError if epochs to be kept are named twice, or never come."""
    if len(set(keep)) < len(keep):
        raise ValueError(f"keep: an epoch is given twice: {keep}")
    late = [epoch for epoch in keep if epoch > recipe.epochs]
    if late:
        raise ValueError(f"keep: there is no epoch {late[0]} in recipe.epochs = {recipe.epochs}")


def _is_run(stem: str, run: str) -> bool:
    """Whether a file is of a run, given by its name or by its id."""
    return stem == run or stem.endswith(f"-{run}")


def own_network(name: str) -> list[tuple[str, str]]:
    """The network of an architecture, as an extension that is chosen, where it is a file and not one of timm's."""
    return [("network", name)] if name in extensions.names("network") else []
