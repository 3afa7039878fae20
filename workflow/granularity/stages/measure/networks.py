"""The networks that a job measures: the embedding, and for each run untrained, kept, pretrained, finetuned ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from granularity.base.errors import GranularityError
from granularity.learning.backbones import Backbones
from granularity.learning.dataset import Data
from granularity.stages.measure.options import DEFAULT_OF

EMBEDDING = "embedding"
ABOUT = ("run", "network", "space", "family", "granularity", "pretrain_seed", "transfer", "finetune_seed")


@dataclass(frozen=True)
class Network:
    """One network to be measured.

    Attributes:
        name: the name of the run, with the epoch.
        about: `ABOUT` and `epoch`; what does not apply is None.
        load: a function from pixels to the network, on the CPU; None for the embedding.
        targets: the target class of each output, None for an output without one; None where outputs are no classes.
        normalised: a function from pixels to pixels as the network takes them.
        identity: `about`, and the bytes of its weights (of one untrained: those at the end of its training).
    """

    name: str
    about: dict[str, Any]
    load: Callable[[Data], torch.nn.Module] | None = None
    targets: Callable[[], list[str | None] | None] = lambda: None
    normalised: Callable[[Data], Data] = lambda data: data
    identity: Mapping[str, Any] = field(default_factory=lambda: {"run": EMBEDDING})


class Networks:
    """The networks of some pretrainings and finetunings. `inputs` are their artifacts, by a role that names the job."""

    def __init__(self, pretrained: Iterable[Path], finetuned: Iterable[Path]):
        self._pretrained, self._finetuned = Backbones(pretrained), Backbones(finetuned, "finetune")
        self.inputs = self._pretrained.inputs | self._finetuned.inputs

    def chosen(self, runs: Iterable[str], of: Iterable[str] | None, embedded: bool) -> list[Network]:
        """The networks that are asked for, in the order of the runs.

        Args:
            runs: names of pretrainings.
            of: see :class:`granularity.stages.measure.options.Measure`.
            embedded: whether there is an embedding.

        Raises:
            GranularityError: there is no such run, or there is nothing to measure.
        """
        of = set(of or DEFAULT_OF)
        found = (
            [Network(EMBEDDING, _about({"run_id": EMBEDDING, "space": EMBEDDING, "family": "encoder"}, None))]
            if "embedding" in of and embedded
            else []
        )
        for run in runs if of != {"embedding"} else ():
            found += self._of_run(self._pretrained.named(run), of)
        if not found:
            raise GranularityError(f"of: {', '.join(sorted(of))}: there are no such networks of the runs given")
        return found

    def _of_run(self, row: pd.Series, of: set[str]) -> Iterator[Network]:
        kept = self._pretrained.epochs(row)
        if "untrained" in of:
            yield _network(self._pretrained, row, 0, self._pretrained.untrained)
        for epoch in kept:
            if epoch and ("backbones" if epoch == kept[-1] else "checkpoints") in of:
                yield _network(self._pretrained, row, epoch, functools.partial(self._pretrained.load, epoch=epoch))
        made = self._finetuned.runs
        for _, finetuned in made[made["parent"] == row["run_id"]].iterrows() if "finetuned" in of else ():
            epoch = self._finetuned.about(finetuned)["epoch"]
            yield _network(self._finetuned, finetuned, epoch, self._finetuned.load)


def _network(source: Backbones, row: pd.Series, epoch: int, load: Callable) -> Network:
    about = _about(row, epoch)
    return Network(
        f"{Path(row['file']).stem}@{epoch}",
        about,
        lambda data: load(row, data.channels),
        lambda: source.targets(row),
        lambda data: source.normalised(data, row),
        {key: getattr(value, "item", lambda value=value: value)() for key, value in about.items()}
        | {"weights": source.sha256(row, epoch if epoch in source.epochs(row) else None)},
    )


def _about(row: Mapping[str, Any], epoch: int | None) -> dict[str, Any]:
    known = {key: row.get("run_id" if key == "run" else key) for key in ABOUT}
    return {key: None if pd.isna(value) else value for key, value in known.items()} | {"epoch": epoch}
