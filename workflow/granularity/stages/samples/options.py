"""Options of the samples: the keys of every source, and those that sources add. Needs no library except pydantic."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import ONCE, Count, Few, Rank, Section, Share, name_in
from granularity.base.shipped import given, located
from granularity.claims.primary import Primary
from granularity.data import listing
from granularity.data.columns import RESERVED
from granularity.stages.samples.sources import FILES

# `labels`, in the OPTIONS of each source that uses it
LABELS_TEXT = "A file of labels, relative to root; docs/datasets.md describes it for each source."
LABELS = (Path | None, Field(None, description=LABELS_TEXT))


class _Place(Section):
    source: name_in("source") = Field(
        "digits",
        description="The family of data sets, in its publisher's own layout: see docs/datasets.md. `digits` "
        "(scikit-learn's bundled handwritten digits) needs no files; `folder` is your own images, in folders named "
        "after their classes.",
    )
    root: Path | None = Field(
        None,
        description="The folder of the data set. For `folder`: one folder level per rank, coarse to fine, then the "
        "images: root/RANK1/RANK2/.../image.jpg. If it contains `train` and `val`, `validation`, `valid` or `test`, "
        "these are the splits.",
    )


class Samples(_Place):
    """The keys that every source takes; :func:`samples_section` adds those that some take."""

    train: str | None = Field(None, description="The publisher's split to train on (null: train).")
    val: str | None = Field(
        None,
        description="The publisher's split to validate on (null: val, or else test, if not among `extra_splits`, or "
        "else `validation` images held out of the training split).",
    )
    extra_splits: Annotated[list[str], ONCE] = Field(
        [],
        description="Further splits of the publisher to keep in the sample table, such as a shifted test set. They "
        "are decoded and embedded, not trained on.",
    )
    ranks: Annotated[list[Rank], ONCE] = Field(
        ["loops", "digit"],
        min_length=1,
        description="The human label ranks to use, coarse to fine, from the source, the taxonomy and WordNet. For "
        "`folder`: one name per folder level; ranks of the taxonomy and WordNet have no folder.",
    )
    target: str = Field("loops", description="The rank that finetuning and probing predict (the superclasses).")
    validation: Count | Share = Field(
        897,
        description="Images held out for validation if the publisher has no split for it, stratified by the finest "
        "rank: a count, or a share between 0 and 1.",
    )
    subset: Path | None = Field(
        None,
        description="A text file with the `sample_id` of a training image on each line, as `granularity export "
        "subset` writes: only these are trained on. Validation images stay.",
    )
    taxonomy: Path | None = Field(
        None,
        description="A CSV file that adds ranks: its first column names the classes of a rank of the source, its "
        "other columns the ranks above them.",
    )
    wordnet: Path | None = Field(
        None,
        description="The folder with WordNet 3.0's data.noun (/usr/share/wordnet with Debian's wordnet-base). For "
        "sources with a rank `synset`: gives the rank `living_thing` and the label spaces `wordnet`.",
    )
    check_images: Literal["no", "fail", "skip"] = Field(
        "no",
        description="Decode every image and look for problems (corrupt, truncated, empty, in both splits, ...): "
        "`fail` stops on errors, `skip` leaves these images out and records each in findings.parquet.",
    )
    checksums: Literal["content", "size"] = Field(
        "content",
        description="How to detect later that an image has changed: by its SHA-256, or only by its size (for archives "
        "too large to read twice).",
    )

    @model_validator(mode="after")
    def _consistent(self):
        for rank in self.ranks:
            if rank in (*RESERVED, "train", "val", *self.extra_splits):
                raise ValueError(f"ranks: '{rank}' cannot name a rank, because tables have another column of that name")
        if self.target not in self.ranks:
            if "ranks" not in self.model_fields_set:
                raise ValueError(f"ranks: name the ranks of source '{self.source}', coarse to fine")
            raise ValueError(f"target: '{self.target}' is not one of the ranks {self.ranks}")
        if self.val is not None and self.train == self.val:
            raise ValueError(f"val: '{self.val}' is the training split")
        if {self.train or "train", self.val} & set(self.extra_splits):
            raise ValueError("extra_splits: remove the splits to train and validate on; they are not extra")
        for complaint in complaints(self):
            raise ValueError(complaint)
        return self


def kept_as(split: str) -> str:
    """Return the name of an extra split in the sample table, where `train` and `val` are those that are used."""
    return f"{split} (published)" if split in ("train", "val") else split


class _Size(Section):
    train_size: Count | Literal["all"] = Field(
        "all",
        description="Training images, stratified by the finest rank; smaller sets are subsets of larger ones.",
    )


class Condition(_Size):
    spaces: list[str] | None = Field(
        None,
        description="Only these label spaces, by name (null: all of them). The retraining baseline is always included.",
    )
    primary: list[Primary] = Field(
        [],
        description="The comparisons that decide the report's answer, declared before the run; all others are "
        "exploratory. Each: {arm, against, smallest, spread}.",
    )
    merged: list[str] = Field(
        [],
        description="Names of label spaces that hold the target (no label spans two target classes). Networks are "
        "also trained on each for the epochs of both stages, without finetuning; each class of the head counts as its "
        "target class. Networks that are not finetuned on the same images have no such arm.",
    )
    backbones: Few | None = Field(None, description="Independent backbones per label space (null: seeds.pretrain).")


def samples_section() -> type[Samples]:
    """Return the section with the keys of all known sources; GranularityError: two of them define a key differently."""
    keys = {name: option for name, (option, _) in _brought().items()}
    brought = create_model("Brought", __base__=_Place, **keys)
    return create_model("Samples", __base__=(Samples, brought), __module__=__name__)


def stage_section() -> type[Samples]:
    """Return the options of the stage: the section `samples`, the size of one condition, and what to log."""
    show = (bool, Field(False, description="Check every image (check_images), and log each finding."))
    description = "Training images that the configuration requires, by key: fewer are an error. Not part of the result."
    asks = (dict[str, Count], Field({}, description=description))
    return create_model(
        "SamplesOptions", __base__=(samples_section(), _Size), __module__=__name__, show=show, asks=asks
    )


def module(samples: Samples) -> ModuleType:
    """Return the source that reads the data set."""
    return extensions.find("source", samples.source)


def complaints(samples: Samples, conditions: Sequence[Condition] = ()) -> Iterator[str]:
    """Yield what the chosen source cannot do, as "KEY of the section `samples`, or `conditions`: WHAT"."""
    source = module(samples)
    for key, ((_, field), takers) in _brought().items():
        if _file(samples) not in takers and getattr(samples, key) != field.default:
            names = f"source{'s' * (len(takers) > 1)} {', '.join(map(repr, takers))}"
            yield f"{key}: works only for {names}, not for '{samples.source}'"
    if samples.root is None and getattr(source, "NEEDS_ROOT", True):
        yield f"root: source '{samples.source}' needs the folder of the data set"
    if hasattr(source, "check"):
        yield from source.check(samples, conditions)


def of_source(samples: Samples) -> dict[str, Any]:
    """Return the section as JSON without the keys of other sources: the options that affect a sample table."""
    taken = {key for key, (_, takers) in _brought().items() if _file(samples) in takers}
    newer = {"subset"} if samples.subset is None else set()  # newer than ids of runs, so left out of them if not set
    return samples.model_dump(mode="json", include={*Samples.model_fields, *taken} - newer)


def asked(chosen: Any) -> dict[str, Any]:
    """Return the effective options: those of the source; images are checked if findings are to be shown."""
    options = of_source(chosen) | {"train_size": chosen.train_size}
    return options | ({"check_images": "fail"} if chosen.show and chosen.check_images == "no" else {})


def too_few(asks: Mapping[str, int], images: int) -> Iterator[str]:
    """Yield a complaint for every key that asks for more training images than there are."""
    for key, count in asks.items():
        if count > images:
            yield f"{key}: {count:,} is more than the {images:,} training images"


def files(samples: Samples) -> list[str]:
    """Return the existing label files (not images): editing one makes the sample table outdated."""
    paths = [samples.subset, samples.taxonomy, samples.wordnet and samples.wordnet / "data.noun"]
    paths += getattr(module(samples), "files", lambda _: ())(samples)
    named = [located(str(file)) for file in dict.fromkeys(paths) if file is not None]
    return [file for file in named if os.path.isfile(file)]


def folders(samples: Samples) -> list[str]:
    """Return the folders whose entries affect a sample table: `root`, unless the source says otherwise."""
    entries = getattr(module(samples), "folders", lambda section: (section.root,))(samples)
    return [str(folder) for folder in dict.fromkeys(entries) if folder is not None]


def outside(samples: Samples) -> dict[str, str]:
    """Return digests of everything a sample table is made from: stats of files below folders, and label files."""
    root = [] if samples.root is None else [str(samples.root)]
    walked = {folder: listing.stats(Path(folder)) for folder in dict.fromkeys([*root, *folders(samples)])}
    return walked | {given(file): digest for file in files(samples) for digest in listing.contents([file]).values()}


def expected_images(samples: Samples) -> int | None:
    """Return the approximate number of images, if the source states it."""
    count = getattr(source := module(samples), "EXPECTED_IMAGES", None)
    count = count.get(samples.train, count.get(samples.source)) if isinstance(count, dict) else count
    if not isinstance(count, int | None):
        raise GranularityError(f"{source.__file__}: EXPECTED_IMAGES: must be a whole number, or one for each name")
    return count


def _file(samples: Samples) -> str:
    return FILES.get(samples.source, samples.source)


def _brought() -> dict[str, tuple[tuple[Any, Any], list[str]]]:
    """Return the keys that only some sources take: each key's type and field, and the files that take it."""
    keys: dict[str, tuple[tuple[Any, Any], list[str]]] = {}
    for name in (name for name in extensions.names("source") if name not in FILES):
        for key, option in getattr(extensions.find("source", name), "OPTIONS", {}).items():
            (kind, field), takers = keys.setdefault(key, (option, []))
            takers.append(name)
            same = (kind, field.default) == (option[0], option[1].default)
            if key in (*Samples.model_fields, "train_size", "show") or not same:
                raise GranularityError(f"source '{name}': OPTIONS: there is already a key '{key}'; rename it")
    return keys
