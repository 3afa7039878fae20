"""Every option of the workflow, its default and its meaning: the one home of all of them.

`config/config.yaml` and `config/schema.json` are generated from these models (`granularity config default` and
`granularity config schema`), and a test fails when they drift. Unknown keys are refused everywhere.
:mod:`granularity.config.files` reads and writes the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from granularity.base.section import Count, Device, Few, Natural, Rank, Section, Share
from granularity.stages.cluster.options import Cluster
from granularity.stages.encoder.options import Encoder
from granularity.stages.measure.measures.probe import Probe
from granularity.stages.pixels.options import Pixels
from granularity.stages.samples import RESERVED

Unit = Literal["run", "space", "family", "condition"]
SourceName = Literal[
    "digits",
    "folder",
    "table",
    "parquet",
    "webdataset",
    "inaturalist",
    "imagenet",
    "imagenet21k",
    "cifar",
    "mnist",
    "svhn",
    "wilds",
    "domainnet",
]
Scope = Literal["whole", "superclass"]


class Samples(Section):
    source: SourceName = Field(
        "digits",
        description="The family of data sets, in its publisher's own layout: see docs/datasets.md. `digits` "
        "(scikit-learn's bundled handwritten digits) needs no files; `folder` is your own images, in folders named "
        "after their classes.",
    )
    root: Path | None = Field(
        None,
        description="The folder that holds the data set. For `folder`: one folder level a rank, coarse to fine, then "
        "the images: root/RANK1/RANK2/.../image.jpg. If it holds `train` and `val`, these are the splits.",
    )
    hub: str | None = Field(
        None,
        description="For `parquet`, instead of root: a data set of the Hugging Face hub, ORG/NAME or "
        "ORG/NAME@REVISION. Downloaded once.",
    )
    labels: Path | None = Field(
        None,
        description="A file of labels, relative to root: what it is, and for which source, is in docs/datasets.md.",
    )
    shifted: dict[str, Path] = Field(
        {},
        description="For `imagenet`: test sets of a shifted distribution, by name (v2: /data/imagenetv2, ...). Each "
        "becomes a split of that name; list it in extra_splits.",
    )
    train: str | None = Field(None, description="The publisher's split to train on (null: train).")
    val: str | None = Field(
        None,
        description="The publisher's split to validate on (null: val or test, whichever there is first; else "
        "`validation` images are held out of the training split).",
    )
    extra_splits: list[str] = Field(
        [],
        description="Further splits of the publisher to keep in the sample table, such as a shifted test set. They "
        "are decoded and embedded, not trained on.",
    )
    ranks: list[Rank] = Field(
        ["loops", "digit"],
        min_length=1,
        description="The human label ranks, coarse to fine, of those that the source, the taxonomy and WordNet "
        "have. For `folder`: one name a folder level.",
    )
    target: str = Field("loops", description="The rank that finetuning and probing predict (the superclasses).")
    validation: Count | Share = Field(
        897,
        description="Images held out for validation where the publisher has no split for it, stratified by the finest "
        "rank: a count, or a share between 0 and 1.",
    )
    taxonomy: Path | None = Field(
        None,
        description="A CSV file that adds ranks: its first column names the classes of a rank that the source has, "
        "its other columns the ranks above them.",
    )
    wordnet: Path | None = Field(
        None,
        description="The folder with WordNet 3.0's data.noun (/usr/share/wordnet with Debian's wordnet-base). For "
        "sources with a rank `synset`: gives the rank `living_thing` and the label spaces `wordnet`.",
    )
    check_images: Literal["no", "fail", "skip"] = Field(
        "no",
        description="Decode every image and look for trouble (corrupt, truncated, empty, in both splits, ...): `fail` "
        "stops on errors, `skip` leaves such images out and records each in findings.parquet.",
    )
    checksums: Literal["content", "size"] = Field(
        "content",
        description="What tells later that an image has changed: its SHA-256, or only its size (for archives too "
        "large to read twice).",
    )

    @model_validator(mode="after")
    def _consistent(self):
        for key in ("ranks", "extra_splits"):
            values = getattr(self, key)
            if len(set(values)) != len(values):
                raise ValueError(f"{key}: one is given twice: {values}")
        for rank in self.ranks:
            if rank in (*RESERVED, "train", "val", *self.extra_splits):
                raise ValueError(f"ranks: no rank can be called '{rank}': tables have another column of that name")
        if self.target not in self.ranks:
            raise ValueError(f"target: '{self.target}' is not one of the ranks {self.ranks}")
        if self.source == "digits" and self.ranks != ["loops", "digit"]:
            raise ValueError("ranks: the digits have exactly the ranks [loops, digit]")
        if self.hub is not None and self.source != "parquet":
            raise ValueError(f"hub: is for source 'parquet', not for '{self.source}'")
        if self.source != "digits" and (self.root is None) == (self.hub is None):
            raise ValueError(f"root: source '{self.source}' needs the folder that holds the data set")
        if self.shifted and self.source != "imagenet":
            raise ValueError(f"shifted: is for source 'imagenet', not for '{self.source}'")
        if self.train is not None and self.train == self.val:
            raise ValueError(f"val: '{self.val}' is the training split")
        if {self.train or "train", self.val} & set(self.extra_splits):
            raise ValueError("extra_splits: the splits to train and validate on are not extra")
        for name in self.shifted:
            if name not in (self.val, *self.extra_splits):
                raise ValueError(f"shifted: '{name}' is not in extra_splits, so nothing would be read of it")
        return self


class Condition(Section):
    train_size: Count | Literal["all"] = Field(
        "all",
        description="Training images, stratified by the finest rank; smaller sets are subsets of larger ones.",
    )
    spaces: list[str] | None = Field(
        None,
        description="Only these label spaces, by name (null: all of them). The retraining baseline is always there.",
    )


class Rebalanced(Section):
    clusters: list[Count] = Field([2, 4, 8, 16], min_length=1, description="The grid of cluster counts a superclass.")
    thresholds: list[Natural] = Field(
        [12, 4],
        description="One label space a threshold: each superclass takes the largest count of the grid whose smallest "
        "cluster holds more images than this.",
    )


class Nested(Section):
    """Label spaces that refine one another exactly: levels of one tree of clusters."""

    scope: Scope = Field("whole", description="One tree over the whole set, or one in each superclass.")
    topdown: list[Count] = Field(
        [],
        description="Top-down: [10, 3, 3] makes 10 clusters, splits each into 3 and each of those into 3, and gives "
        "the label spaces topdown-10, topdown-10-3 and topdown-10-3-3 (G = 10, 30, 90).",
    )
    bottomup: list[Count] = Field(
        [],
        description="Bottom-up: [10, 30, 90] makes 90 clusters and merges their centroids to 30 and to 10.",
    )


class LabelSpaces(Section):
    manual: list[str] | None = Field(
        None, description="Human ranks to pretrain on (null: all but the target, which is always there)."
    )
    wordnet: list[Annotated[int, Field(ge=0, le=100)]] = Field(
        [],
        description="WordNet levels: level k labels an image with the synsets k steps above its own. Needs "
        "samples.wordnet and the rank `synset`.",
    )
    random: list[Count] = Field([10, 30, 100], description="Random IDs over the whole set: numbers of classes G.")
    random_instance: bool = Field(True, description="A label of its own for every image.")
    random_superclass: list[Count] = Field([10], description="Random IDs within each superclass: IDs a superclass.")
    kmeans: list[Count] = Field([10, 30, 90], description="k-means over the whole set: numbers of clusters.")
    kmeans_superclass: list[Count] = Field([3, 10, 30], description="k-means in each superclass: clusters in each.")
    kmeans_class: list[Count] = Field([], description="k-means in each class of the finest rank: clusters in each.")
    rebalanced: Rebalanced = Rebalanced()
    nested: Nested = Nested()
    coarse_mod: list[Count] = Field(
        [], description="Class number of the finest rank modulo this: coarse labels without meaning in common."
    )
    random_coarse: list[Count] = Field([], description="The same after one random permutation of the classes.")
    random_fine: bool = Field(False, description="Each class of the finest rank cut in two by a coin an image.")

    @model_validator(mode="after")
    def _once_each(self):
        for key, values in self:
            if isinstance(values, list) and len(set(values)) < len(values):
                raise ValueError(f"{key}: one is given twice: {values}")
        for key, values in (
            ("rebalanced.clusters", self.rebalanced.clusters),
            ("rebalanced.thresholds", self.rebalanced.thresholds),
            ("nested.bottomup", self.nested.bottomup),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"{key}: one is given twice: {values}")
        return self


class Model(Section):
    name: str = Field("resnet18", description="Any timm architecture.")
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
        ours = {"in_chans", "num_classes"}
        weights = {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path"}
        for key in self.args or ():
            if key in ours:
                raise ValueError(f"args.{key}: follows from pixels.mode and the label space")
            if key in weights:
                raise ValueError(f"args.{key}: networks are trained from scratch here")
        return self


class Augment(Section):
    flip: bool = Field(False, description="Mirror left to right, at random.")
    pad: Annotated[int, Field(ge=0, le=4096)] = Field(
        0, description="Padding with the mean colour before the crop, in pixels on each side."
    )
    crop: Count | None = Field(
        None,
        description="Side of a random crop in training and the centre crop in evaluation (null: the image).",
    )


class Recipe(Section):
    loss: Literal["auto", "softmax", "sigmoid"] = Field(
        "auto",
        description="Cross-entropy: softmax, or sigmoid (a yes or no for each class, summed over the classes). auto: "
        "sigmoid where the label space has images with several labels, else softmax.",
    )
    optimizer: Literal["sgd", "adam", "adamw"] = Field(
        "sgd", description="weight_decay is of the gradient (L2) for sgd and adam, of the weights for adamw."
    )
    lr: float = Field(0.3, gt=0, description="Peak learning rate.")
    momentum: float = Field(0.9, ge=0, lt=1, description="For sgd.")
    nesterov: bool = Field(False, description="For sgd: Nesterov's momentum.")
    weight_decay: float = Field(5e-4, ge=0)
    clip_norm: float | None = Field(
        None, gt=0, description="The gradient is scaled down to this norm, over all weights, where it is longer."
    )
    batch_size: Count = Field(100, description="Images a step; an incomplete last batch is dropped.")
    epochs: Count = 30
    warmup_epochs: Annotated[float, Field(ge=0)] = Field(
        2.4, description="Linear warm-up to the peak; a fraction gives any number of steps."
    )
    hold_epochs: Annotated[float, Field(ge=0)] = Field(0.0, description="At the peak, after the warm-up.")
    schedule: Literal["cosine", "linear", "step"] = Field(
        "cosine",
        description="How the learning rate falls to final_lr over the remaining epochs. step: times step_factor every "
        "step_epochs, not below final_lr.",
    )
    final_lr: float = Field(0.0, ge=0, description="Learning rate that the schedule ends at.")
    step_epochs: float = Field(1.0, gt=0, description="For schedule: step.")
    step_factor: float = Field(0.97, gt=0, le=1, description="For schedule: step.")
    head_bias: float | None = Field(
        None, description="Initial bias of the head's outputs (null: drawn at random, as PyTorch does)."
    )
    freeze_backbone: bool = Field(
        False,
        description="Train the head alone, on a backbone as in evaluation (a linear probe by gradient descent). For "
        "finetune only.",
    )
    dropout: bool = Field(True, description="false: none, whatever dropout the network has (model.args).")
    augment: Augment = Augment()
    precision: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16: autocast.")

    @model_validator(mode="after")
    def _consistent(self):
        if self.final_lr > self.lr:
            raise ValueError(f"final_lr: {self.final_lr} is more than the peak, lr = {self.lr}")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov: is for optimizer: sgd with momentum")
        return self


class Seeds(Section):
    base: Natural = Field(0, description="Splits, random IDs, k-means starts and runs follow it.")
    pretrain: Few = Field(2, description="Pretraining seeds a label space.")
    finetune: Few = Field(6, description="Finetuning seeds a pretrained backbone.")

    @model_validator(mode="after")
    def _plannable(self):
        if self.pretrain * self.finetune > 10_000:
            raise ValueError(
                f"finetune: {self.finetune} on each of {self.pretrain} backbones are more than 10,000 runs"
            )
        return self


class Jobs(Section):
    """What one job trains, and with how many processes."""

    pretrain: Unit = Field(
        "family",
        description="One job a run, label space, family or condition. Start-up costs seconds a job, so tiny networks "
        "share one; results do not depend on it.",
    )
    finetune: Unit = Field("family", description="The same.")
    probe: Unit = Field("condition", description="The same.")
    processes: Annotated[int, Field(ge=1, le=1000)] = Field(
        1,
        description="Processes that train one network together, in pretrain and finetune, each with a GPU (or a CPU "
        "thread) of its own and a share of every batch. Part of the result: sums over them decide its last bits.",
    )


class Theory(Section):
    """The theory simulations (`snakemake theory`), which need no images."""

    size: Literal["quick", "paper"] = Field(
        "quick", description="quick: minutes on a laptop; paper: the papers' own dimensions, sweeps and seeds."
    )
    parts: Few = Field(2, description="Jobs that the trainings of one world are cut into; changes no result.")


class Report(Section):
    title: str = Field("Does finer-grained pretraining help here?", description="The page's heading.")
    montage_clusters: Annotated[int, Field(ge=0, le=1000)] = Field(10, description="Clusters shown as rows of images.")


class Config(Section):
    """The configuration of one experiment; its results go to `results/NAME/`."""

    name: str = Field(
        "digits", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100, description="Names the results folder."
    )
    device: Device = Field(
        "auto",
        description="auto: a GPU if one is visible; cuda: a GPU or an error, never a silent fallback; cpu.",
    )
    seeds: Seeds = Seeds()
    samples: Samples = Samples()
    conditions: list[Condition] = Field(
        [
            Condition(train_size=300),
            Condition(
                train_size=900,
                spaces=["manual-digit", "random-30", "kmeans-30"],
            ),
        ],
        min_length=1,
        description="Training-set sizes, each a chain of its own from the samples on. 300 is the default because "
        "that is where a trial saw differences; with 900 every arm was within noise. Both are shown: 900 with one "
        "human, one random and one clustered label space, as all of them would take too long.",
    )
    encoder: Encoder = Encoder()
    cluster: Cluster = Cluster()
    label_spaces: LabelSpaces = LabelSpaces()
    pixels: Pixels = Pixels()
    model: Model = Model()
    pretrain: Recipe = Recipe()
    finetune: Recipe = Recipe()
    probe: Probe = Probe()
    jobs: Jobs = Jobs()
    theory: Theory = Theory()
    report: Report = Report()

    @model_validator(mode="after")
    def _counts_fit(self):
        spaces = self.label_spaces
        for rank in spaces.manual or ():
            if rank not in self.samples.ranks:
                raise ValueError(f"label_spaces.manual: '{rank}' is not one of the ranks {self.samples.ranks}")
        for rank in self.probe.ranks or ():
            if rank not in self.samples.ranks:
                raise ValueError(f"probe.ranks: '{rank}' is not one of the ranks {self.samples.ranks}")
        if spaces.wordnet and (self.samples.wordnet is None or "synset" not in self.samples.ranks):
            raise ValueError("label_spaces.wordnet: needs samples.wordnet, and 'synset' in samples.ranks")
        for i, condition in enumerate(self.conditions):
            size = condition.train_size
            if size == "all":
                continue
            for key, values in (
                ("kmeans", spaces.kmeans),
                ("kmeans_superclass", spaces.kmeans_superclass),
                ("kmeans_class", spaces.kmeans_class),
                ("nested.topdown", spaces.nested.topdown),
                ("nested.bottomup", spaces.nested.bottomup),
                ("rebalanced.clusters", spaces.rebalanced.clusters),
                ("random", spaces.random),
            ):
                for value in values:
                    if value > size:
                        raise ValueError(
                            f"label_spaces.{key}: {value} is more than the {size} training images of conditions[{i}]"
                        )
            for stage in ("pretrain", "finetune"):
                batch = getattr(self, stage).batch_size
                if batch > size:
                    raise ValueError(
                        f"{stage}.batch_size: {batch} is more than the {size} training images of conditions[{i}]"
                    )
        for stage in ("pretrain", "finetune"):
            batch = getattr(self, stage).batch_size
            if self.jobs.processes > batch:
                raise ValueError(f"jobs.processes: {self.jobs.processes} cannot share a {stage}.batch_size of {batch}")
        sizes = [condition.train_size for condition in self.conditions]
        if len(set(sizes)) != len(sizes):
            raise ValueError(f"conditions: a train_size is given twice: {sizes}")
        if self.samples.source == "digits":
            held_out = self.samples.validation
            held_out = round(1797 * held_out) if held_out < 1 else held_out
            for size in sizes:
                if size != "all" and size + held_out > 1797:
                    raise ValueError(
                        f"conditions: train_size {size} and {held_out} validation images are more than the 1797 digits"
                    )
        for stage in ("pretrain", "finetune"):
            augment = getattr(self, stage).augment
            crop = augment.crop
            if crop is not None and crop > self.pixels.size + 2 * augment.pad:
                raise ValueError(
                    f"{stage}.augment.crop: {crop} px do not fit in the padded {self.pixels.size} px image"
                )
        return self
