"""What made this page: command, configuration, packages, hardware, digests."""

from __future__ import annotations

import yaml

from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Reproduce"
LINK = "Reproduce"


def applies(loaded: Loaded) -> bool:
    return True


def build(loaded: Loaded) -> Part:
    values = {
        "yaml": yaml.safe_dump(loaded.configuration, sort_keys=False, allow_unicode=True),
        "packages": _values(loaded, "packages"),
        "hardware": _values(loaded, "hardware"),
    }
    return Part(values=values)


def _values(loaded: Loaded, key: str) -> dict[str, str]:
    """Packages or hardware by the manifests; several values where stages ran on different ones."""
    found: dict[str, dict[str, None]] = {}
    for artifact in loaded.artifacts.values():
        for name, value in artifact.manifest[key].items():
            found.setdefault(name, {})[str(value)] = None
    return {name: "; ".join(values) for name, values in found.items()}


TEMPLATE = """
<pre><code>{{ loaded.command }}</code></pre>
<details>
<summary>The full configuration</summary>
<pre><code>{{ yaml }}</code></pre>
</details>
<details>
<summary>Packages and hardware</summary>
<dl>
{% for name, value in (packages | items | list) + (hardware | items | list) %}
<dt>{{ name }}</dt><dd>{{ value }}</dd>
{% endfor %}
</dl>
</details>
<details>
<summary>Digests of the {{ loaded.artifacts | length }} artifacts read</summary>
{% call table() %}
{{ columns(["Artifact", "SHA-256 of its contents"], ["SHA-256 of its contents"]) }}
<tbody>
{% for role, artifact in loaded.artifacts.items() %}
<tr><th scope="row">{{ role }}</th><td class="text"><code>{{ artifact.digest }}</code></td></tr>
{% endfor %}
</tbody>
{% endcall %}
</details>
"""
