"""Label spaces as families name and define them; the options of stage `hierarchy`, and the section `label_spaces`."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, create_model, field_validator

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.base.section import WORD, Section, once
from granularity.store.place import folder_of

TARGET = "target"  # the retraining baseline: the same two stages, both on the target labels
NEEDS = ("pixels",)  # what a family may need
LONGEST = 200  # bytes; file systems allow 255, and runs and their files add up to 55 to a name
ALLOWED = (
    "a name has letters, digits, '_', '.' and '-', begins with a letter or a digit, is not manifest.json, does not "
    f"end in .stamp, and is no longer than {LONGEST} bytes"
)
NAME = TypeAdapter(Annotated[str, Field(pattern=WORD, strict=True)])


@dataclass(frozen=True)
class Space:
    """A label space to make: `name` is unique within a condition; `params` defines it within its family."""

    name: str
    family: str
    params: dict[str, Any] = field(default_factory=dict)


def spaces(wanted: Any, samples: Any) -> list[Space]:
    """Return the label spaces of the sections `label_spaces` and `samples`: the target, then each family's in order.

    Raises GranularityError: two share a name; a family yields another family's space, or an unknown series.
    """
    by_name = {TARGET: Space(TARGET, "manual", {"rank": samples.target})}
    for family in extensions.names("family"):
        module = extensions.find("family", family)
        for space in module.spaces(getattr(wanted, family), samples):
            if space.family != family:
                raise GranularityError(f"label_spaces.{family}: gives {space.name} the wrong family '{space.family}'")
            if space.name in by_name:
                owner = by_name[space.name].family
                raise GranularityError(
                    f"label_spaces.{family}: '{space.name}' is already the name of a label space of {owner}"
                )
            if hasattr(module, "series") and (series := module.series(space.params)) not in module.WORDS:
                raise GranularityError(
                    f"label_spaces.{family}: {space.name} has a series '{series}' that WORDS does not name"
                )
            by_name[space.name] = space
    return [_resolved(space, by_name) for space in by_name.values()]


def _resolved(space: Space, found: Mapping[str, Space]) -> Space:
    """Return a label space with the definition, instead of the name, of the space that it is made from."""
    if not isinstance(name := space.params.get("of"), str):
        return space
    bases = [base.name for base in found.values() if "of" not in base.params]
    if name not in bases:
        problem = f"of '{name}': must be a label space that this one can be made from; there are {', '.join(bases)}"
        raise GranularityError(f"label_spaces.{space.family}: {space.name}: {problem}")
    params = found[name].params
    more = {key: params[key] for key in ("clusterings",) if key in params}
    return replace(space, params={**space.params, "of": {"family": found[name].family, "params": params}, **more})


def makers(space: Any) -> list[str]:
    """Return the families whose code makes a label space: its own, and the family of the space that it is made from."""
    base = space.params.get("of")
    return [space.family, *([base["family"]] if isinstance(base, dict) else [])]


def needs(space: Any) -> list[str]:
    """Return the stages that its families need besides the sample table and clusters."""
    asked = [getattr(extensions.find("family", name), "NEEDS", ()) for name in makers(space)]
    return list(dict.fromkeys(itertools.chain(*asked)))


def clusterings(spaces: Iterable[Space]) -> list[str]:
    """Return the clusterings that label spaces are read from, such as `whole-30` or `superclass-3`."""
    return list(dict.fromkeys(name for space in spaces for name in space.params.get("clusterings", ())))


class LabelSpace(Section):
    """One :class:`Space`."""

    space: str = Field(description="Name of the label space, unique within a condition.")
    family: str = Field(description="Name of its family: a file in stages/hierarchy/families/, or one of your own.")
    params: dict[str, Any] = Field({}, description="What its family computes it from.")


def fewer_than_images(key: str, values: Sequence[int], config: Any) -> Iterator[str]:
    """Yield a complaint for every number that exceeds the training images of a condition."""
    for i, condition in enumerate(config.conditions):
        size = condition.train_size
        for value in values:
            if size != "all" and value > size:
                yield f"label_spaces.{key}: {value} is more than the {size} training images of conditions[{i}]"


def misnamed(spaces: Iterable[Space]) -> Iterator[str]:
    """Yield a complaint for every label space whose name cannot name a folder, a job and a command-line word."""
    for space in spaces:
        if not _is_name(space.name):
            yield f"label_spaces.{space.family}: {space.name!r:.80} cannot name a label space: {ALLOWED}"


def _is_name(value: Any) -> bool:
    try:
        NAME.validate_python(value)
    except ValidationError:
        return False
    return len(value.encode()) <= LONGEST and folder_of(value).name == value  # otherwise it would name another folder


class _Families(Section):
    @field_validator("*")
    @classmethod
    def _each_once(cls, values: Any) -> Any:
        return once(values) if isinstance(values, list) else values


def label_spaces_section() -> type[Section]:
    """Return the section `label_spaces` with a key per family; GranularityError: a family is incomplete."""
    families = {name: extensions.find("family", name) for name in extensions.names("family")}
    for name, family in families.items():
        file = extensions.code("family", name)
        if not _is_name(name):
            raise GranularityError(f"{file}: {name!r} cannot name a family: {ALLOWED}; rename the file")
        labels = "elsewhere" if hasattr(family, "elsewhere") else "labels"
        if lacking := [needed for needed in ("OPTION", "spaces", labels) if not hasattr(family, needed)]:
            raise GranularityError(f"{file}: a family of label spaces needs {', '.join(lacking)}")
        if getattr(family, "NEEDS", NEEDS) != NEEDS:
            raise GranularityError(f"{file}: NEEDS = {family.NEEDS}: a family may need only {NEEDS}")
    return create_model("LabelSpaces", __base__=_Families, **{name: module.OPTION for name, module in families.items()})
