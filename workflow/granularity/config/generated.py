"""The two files that are generated from the options: `config/config.yaml` and `config/schema.json`."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import yaml

from granularity.base.section import Section
from granularity.config.options import Config


def schema_json() -> str:
    """The JSON schema of the configuration, as written to `config/schema.json`."""
    return json.dumps(Config.model_json_schema(), indent=2) + "\n"


def default_yaml() -> str:
    """The commented default configuration, as written to `config/config.yaml`."""
    head = (
        "# The default run: real images, minutes on a laptop CPU, no downloads.\n"
        "# Every option, with its default. Generated from the options in workflow/granularity by `granularity config\n"
        "# default`; to change a run, write only what differs into a file of your own and add it:\n"
        "#   snakemake --configfile config/experiments/mine.yaml\n"
    )
    return head + "\n".join(_document(Config(), ""))


def _document(section: Section, indent: str) -> list[str]:
    lines = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        text = field.description or ""
        if isinstance(value, Section):
            text = text or (type(value).__doc__ if type(value).__doc__ != Section.__doc__ else "") or ""
        if not indent:
            lines.append("")
        width = 110 - len(indent) - 2
        lines += [f"{indent}# {line}" for line in textwrap.wrap(" ".join(text.split()), width)]
        if isinstance(value, Section):
            lines.append(f"{indent}{name}:")
            lines += _document(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Section):
            lines.append(f"{indent}{name}:")
            lines += [f"{indent}  - {_flow(item.model_dump(exclude_unset=True))}" for item in value]
        else:
            lines.append(f"{indent}{name}: {_flow(value)}")
    return [*lines, ""] if not indent else lines


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).strip()
    return text.removesuffix("\n...").removesuffix("...").strip()
