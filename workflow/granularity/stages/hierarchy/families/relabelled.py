"""Classes of the finest rank merged or cut whatever they mean. Source: Yang, Steinhardt and Hu, section 3."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.labels import Frame, Labels, Training
from granularity.stages.hierarchy.space import Space


def _known(name: str) -> str:
    if not re.fullmatch("(coarse-mod|random-coarse)-[1-9][0-9]{0,8}|random-fine", name):
        raise ValueError(f"'{name}' is none of coarse-mod-C, random-coarse-C (C classes) and random-fine")
    return name


OPTION = (
    list[Annotated[str, AfterValidator(_known)]],
    Field(
        [],
        description="Relabellings of the finest rank, by name: coarse-mod-5 takes class numbers modulo 5, "
        "random-coarse-5 permutes the classes at random before, random-fine cuts each class in two by a coin tossed "
        "for each image.",
    ),
)
WORDS = {
    "coarse_mod": "class number modulo C",
    "random_coarse": "random groups of classes",
    "random_fine": "random halves of classes",
}
STYLE = {"coarse_mod": ("#8d6e63", "p"), "random_coarse": ("#8d6e63", "d"), "random_fine": ("#8d6e63", "x")}


def series(params: dict[str, Any]) -> str:
    return params["way"]


def spaces(option: list[str], samples: Any) -> Iterator[Space]:
    for name in option:
        way, _, classes = name.rpartition("-") if name[-1].isdigit() else (name, "", "")
        params = {"way": way.replace("-", "_")} | ({"classes": int(classes)} if classes else {})
        yield Space(name, "relabelled", params)


def elsewhere(training: Training, images: Frame, way: str, classes: int = 0) -> Labels | None:
    """Coarse labels y mod C~, or fine ones y + beta C, beta a fair coin that is tossed once per training image.

    y is the number of the finest class in the publisher's order (-1 where its list lacks the class), after a random
    permutation in `random_coarse`; C is their number, which a GranularityError says if C~ does not divide it.
    """
    fine, count = training.publishers_numbers(images), len(training.order)
    if way == "random_fine":
        if images is not training.frame:
            return None
        coin = np.random.default_rng(seed_of(training.seed, way)).integers(2, size=len(training), dtype=np.int32)
        names = [f"{name}, half {half}" for half in (1, 2) for name in training.order]
        return Labels(fine + coin * np.int32(count), names)
    if count % classes:
        name = f"label_spaces.relabelled: {way.replace('_', '-')}-{classes}"
        raise GranularityError(f"{name}: {classes} does not divide the {count} classes of {training.finest}")
    drawn = way == "random_coarse"
    numbers = np.random.default_rng(seed_of(training.seed, way, classes)).permutation(count) if drawn else range(count)
    group = np.asarray(numbers) % classes
    names = [" + ".join(training.order[i] for i in np.flatnonzero(group == one)) for one in range(classes)]
    return Labels(np.where(fine < 0, -1, group[fine]).astype(np.int32), names)
