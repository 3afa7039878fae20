"""Names of trainings: a readable part, and an id that is a digest of what the training is made from."""

from __future__ import annotations

import re
from dataclasses import dataclass

from granularity.base.errors import GranularityError


@dataclass(frozen=True)
class Run:
    """A training. `finetune_seed` is None for a pretraining; `id` is a digest of everything it is made from."""

    space: str
    pretrain_seed: int
    finetune_seed: int | None
    id: str

    @property
    def name(self) -> str:
        finetune = "" if self.finetune_seed is None else f"-f{self.finetune_seed}"
        return f"{self.space}-p{self.pretrain_seed}{finetune}-{self.id}"

    @classmethod
    def parse(cls, name: str) -> Run:
        """Parse a name as written by `name`. Raise GranularityError if it is not the name of a run."""
        match = re.fullmatch(r"(.+)-p([0-9]{1,9})(?:-f([0-9]{1,9}))?-([0-9a-f]{8})", name)
        if match is None:
            raise GranularityError(f"{name}: not the name of a run (SPACE-pSEED-ID or SPACE-pSEED-fSEED-ID)")
        space, pretrain, finetune, run_id = match.groups()
        return cls(space, int(pretrain), None if finetune is None else int(finetune), run_id)
