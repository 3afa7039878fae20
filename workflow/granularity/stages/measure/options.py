"""Options of stage `measure`: an entry of the configuration's `measures`, and the options of one job."""

from types import ModuleType
from typing import Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import Name, Rank, Section
from granularity.learning.options import RunNames

DEFAULT_OF = ("backbones", "embedding")


class Measure(Section):
    """One measure, of some networks on some splits."""

    name: Name = Field("probe", description="Names the measurement, in its folder and in tables.")
    measure: Name | None = Field(
        None, description="The measure: a file in stages/measure/measures/, or your own (null: the file of this name)."
    )
    of: list[Literal["backbones", "checkpoints", "untrained", "finetuned", "embedding"]] | None = Field(
        None,
        min_length=1,
        description="What is measured: `backbones` (after the last epoch), `checkpoints` (epochs in between that were "
        "kept), `untrained` (networks before their first step), `finetuned` (finetuned networks that were kept), "
        "`embedding` (CLIP's). Null: the backbones, and the embedding if label spaces are made from it and the measure "
        "takes it.",
    )
    splits: list[str] = Field(["val"], min_length=1, description="Splits of the sample table to measure on.")
    ranks: list[Rank] | None = Field(None, min_length=1, description="Human ranks that a measure reads (null: all).")
    options: dict[str, JsonValue] = Field({}, description="Options of the measure; see its file.")

    @model_validator(mode="after")
    def _known(self):
        for key in ("of", "splits", "ranks"):
            values = getattr(self, key) or []
            if len(set(values)) < len(values):
                raise ValueError(f"{key}: a value is given twice: {values}")
        try:
            self.resolved()
        except GranularityError as error:
            raise ValueError(f"measure: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            problem = str(first.get("ctx", {}).get("error", first["msg"]))
            raise ValueError(f"{'.'.join(['options', *map(str, first['loc'])])}: {problem}") from None
        if "embedding" in (self.of or ()) and not self.takes_embeddings:
            raise ValueError(f"of: {self.file} cannot measure the embedding; name networks, such as [backbones]")
        return self

    @property
    def file(self) -> str:
        """The name of the measure's file."""
        return self.measure or self.name

    def module(self) -> ModuleType:
        """Return the measure, see :mod:`granularity.stages.measure.measures`. Raises GranularityError: there is no
        measure of that name, or it is incomplete.
        """
        module = extensions.find("measure", self.file)
        for needed in ("Options", "measure"):
            if not hasattr(module, needed):
                raise GranularityError(f"{module.__file__}: a measure needs {needed}")
        return module

    @property
    def takes_embeddings(self) -> bool:
        return getattr(self.module(), "TAKES_EMBEDDINGS", True)

    def resolved(self) -> Section:
        """The measure's own options."""
        return self.module().Options.model_validate(self.options)

    def files(self) -> list[str]:
        """Return the user's files that the measure reads."""
        module = self.module()
        return list(module.files(self.resolved())) if hasattr(module, "files") else []


class Measuring(Measure):
    """One measure for the networks of some runs."""

    architecture: str = Field("", description="Architecture of the networks; if it is your own file, its code counts.")
    runs: RunNames = Field([], description="Names of the pretrainings; finetuned networks are those trained from them.")
