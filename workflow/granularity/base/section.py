"""Base class of the configuration's sections, and types of their values."""

import difflib
import json
import re
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from granularity.base import extensions

LARGEST = 2**31 - 1  # labels are int32
Count = Annotated[int, Field(ge=1, le=LARGEST)]
Few = Annotated[int, Field(ge=1, le=1000)]
Natural = Annotated[int, Field(ge=0, le=LARGEST)]
Share = Annotated[float, Field(gt=0, lt=1)]
# Label spaces, and the ranks that some are named after, appear in names of folders and jobs and in commands.
WORD = r"^[\p{L}\p{N}][\p{L}\p{M}\p{N}_.-]*$"
Rank = Annotated[str, Field(pattern=WORD, max_length=60)]
# Names of folders below results/: networks, transfers, measures.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=60)]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "tf32", "bfloat16"]


def once(values: list[Any]) -> list[Any]:
    """Validate that a list contains nothing twice; return it."""
    if any(value in values[:i] for i, value in enumerate(values)):
        raise ValueError(f"a value is given twice: {values}")
    return values


ONCE = AfterValidator(once)


def name_in(room: str) -> Any:
    """Return the type of names in a room (:mod:`granularity.base.extensions`); the JSON schema lists them."""

    def check(name: str) -> str:
        if name in extensions.names(room):
            return name
        choices = ", ".join(map(repr, extensions.names(room)))
        message = "there is no such {room}; choose one of {known}, or a file of your own (extensions)"
        raise PydanticCustomError("unknown_name", message, {"room": room, "known": choices})

    def offer(schema: dict[str, Any]) -> None:
        schema["anyOf"] = [{"enum": extensions.names(room)}, {"type": schema.pop("type")}]

    return Annotated[str, AfterValidator(check), Field(json_schema_extra=offer)]


def split_key(message: str) -> tuple[str, str]:
    """Split the message of a section's own check into the key that it begins with ("" if none) and the rest."""
    key, colon, what = message.partition(": ")
    return (key, what) if colon and re.fullmatch(r"[\w.\[\]-]+", key) else ("", message)


class Section(BaseModel):
    """Base of every section: immutable, and closed to keys it does not know."""

    later: ClassVar[frozenset[str]] = frozenset()  # options newer than ids of runs; left out of ids at their defaults

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @property
    def identity(self) -> dict[str, Any]:
        """The values that enter ids of runs, as JSON."""
        found = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name not in self.later or value != field.default:
                section = isinstance(value, Section)
                found[name] = value.identity if section else self.model_dump(mode="json", include={name})[name]
        return found

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse booleans for other types: to Python true equals 1, and YAML reads yes and on as true."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            what = "must not be true or false (YAML reads yes, no, on and off as these; put such a word in quotes)"
            raise PydanticCustomError("truth_value", what)
        for one in value if isinstance(value, list) else ():
            cls._no_truth_value(one, info)
        return value


# ---------------------------------------------------------------- messages


def explained(error: ValidationError, model: type[BaseModel], values: Any) -> list[tuple[list[str | int], str, str]]:
    """Return the mistakes that a model refused (all branches of a union as one): place, ` = value`, and explanation."""
    mistakes: dict[str, tuple[list[str | int], str, list[str]]] = {}
    for item in error.errors():
        path, message = _path(item["loc"], values), item["msg"][0].lower() + item["msg"][1:]
        cause = item.get("ctx", {}).get("error")  # from our own checks, whose messages begin with the key
        if cause is not None:
            key, message = split_key(str(cause))
            path += place(key)
        elif item["type"] == "extra_forbidden":
            allowed = _keys_at(model, path[:-1])
            close = difflib.get_close_matches(str(path[-1]), allowed, n=1)
            hint = f"did you mean '{close[0]}'? " if close else ""
            message = f"unknown key; {hint}allowed here: {', '.join(allowed)}"
        elif item["type"] == "string_pattern_mismatch":
            message = "may contain only letters, digits, '_', '.' and '-', and must begin with a letter or a digit"
        elif item["type"] == "list_type":
            message = f"must be a list, such as [{json.dumps(item['input'], default=str, ensure_ascii=False):.40}]"
        elif item["type"] in ("model_type", "dict_type", "model_attributes_type"):
            message = "must be a mapping of keys to values, such as {key: value}"
        elif item["type"] == "missing":
            path.append(item["loc"][-1])
        value = json.dumps(item["input"], default=str, ensure_ascii=False)
        suffix = "" if cause is not None else f" = {value if len(value) <= 80 else value[:77] + '...'}"
        mistakes.setdefault(dotted(path) + suffix, (path, suffix, []))[2].append(message)
    return [(path, suffix, ", or ".join(dict.fromkeys(messages))) for path, suffix, messages in mistakes.values()]


def place(where: str) -> list[str | int]:
    """Split a place, written with dots or brackets, into keys and list indices."""
    return [int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", where) if part]


def dotted(path: list[str | int]) -> str:
    return ".".join(map(str, path))


def _path(location: tuple, values: Any) -> list[str | int]:
    """Return the keys and list indices of pydantic's location, without its names of union branches."""
    path = []
    for part in location:
        is_key = isinstance(values, dict) and part in values
        if is_key or (isinstance(values, list) and isinstance(part, int) and part < len(values)):
            path.append(part)
            values = values[part]
    return path


def _keys_at(model: Any, path: list[str | int]) -> list[str]:
    for part in path:
        if part in model.model_fields:  # not a list index, nor a key of a mapping
            kind = model.model_fields[part].annotation
            kinds = (one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, BaseModel))
            model = next(kinds, model)
    return list(model.model_fields)
