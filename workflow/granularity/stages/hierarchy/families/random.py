"""Random IDs: over the whole set, one per image, or within each superclass. Source: Hong et al., section 4."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field

from granularity.base.section import Count
from granularity.base.seeds import seed_of
from granularity.stages.hierarchy.checks import Check, in_one_target_class
from granularity.stages.hierarchy.labels import Labels, Training
from granularity.stages.hierarchy.space import Space, fewer_than_images
from granularity.store.artifact import Artifact


class Random:
    OPTION = (list[Count], Field([], description="Random IDs over the whole set: numbers of classes G."))
    WORDS = "random IDs"
    STYLE = ("#e07b00", "s")
    MEANINGLESS = True

    def spaces(option: list[int], samples: Any) -> Iterator[Space]:
        for classes in option:
            yield Space(f"random-{classes}", "random", {"classes": classes})

    def check(option: list[int], config: Any) -> Iterator[str]:
        return fewer_than_images("random", option, config)

    def labels(training: Training, classes: int) -> Labels:
        """Draw an ID per image, independently and uniformly; an ID never drawn keeps its output in the head."""
        rng = np.random.default_rng(seed_of(training.seed, "random", classes))
        return Labels(rng.integers(classes, size=len(training)).astype(np.int32), _names(classes))


class RandomInstance:
    OPTION = (bool, Field(False, description="A separate label for every image."))
    WORDS = "one label per image"
    STYLE = ("#e0303a", "*")
    MEANINGLESS = True

    def spaces(option: bool, samples: Any) -> Iterator[Space]:
        if option:
            yield Space("random-instance", "random_instance", {})

    def labels(training: Training) -> Labels:
        """Give every image its own ID, in random order."""
        rng = np.random.default_rng(seed_of(training.seed, "random", None))
        return Labels(rng.permutation(len(training)).astype(np.int32), _names(len(training)))


class RandomSuperclass:
    OPTION = (list[Count], Field([], description="Random IDs within each superclass: IDs per superclass."))
    WORDS = "random IDs per superclass"
    STYLE = ("#a8742a", "D")
    MEANINGLESS = True

    def spaces(option: list[int], samples: Any) -> Iterator[Space]:
        for per_superclass in option:
            yield Space(f"random-superclass-{per_superclass}", "random_superclass", {"per_superclass": per_superclass})

    def labels(training: Training, per_superclass: int) -> Labels:
        """Draw an ID per image within its superclass: meaningless, but each ID lies in exactly one target class."""
        superclass, names = training.coded(training.target)
        rng = np.random.default_rng(seed_of(training.seed, "random_superclass", per_superclass))
        values = superclass * per_superclass + rng.integers(per_superclass, size=len(training))
        names = [f"{name}, random ID {i}" for name in names for i in range(per_superclass)]
        return Labels(values.astype(np.int32), names)

    def checks(space: Artifact, samples: Artifact) -> Iterator[Check]:
        """L5; an ID that no image drew may be empty."""
        yield in_one_target_class(space, empty_allowed=True)


def _names(count: int) -> list[str]:
    return [f"random ID {i}" for i in range(count)]


SEVERAL = {"random": Random, "random_instance": RandomInstance, "random_superclass": RandomSuperclass}
