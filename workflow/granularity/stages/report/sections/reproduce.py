"""What it cost, and what made this page: command, configuration, packages, hardware, digests."""

import yaml

from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part

HEADING = "Cost, and how to reproduce"


def build(loaded: Loaded) -> Part:
    environment: dict[str, dict[str, None]] = {}  # several values if stages ran with different ones
    for artifact in loaded.artifacts.values():
        for name, value in (artifact.manifest["packages"] | artifact.manifest["hardware"]).items():
            environment.setdefault(name, {})[str(value)] = None
    text = yaml.safe_dump(loaded.configuration, sort_keys=False, allow_unicode=True)
    tables = {"cost": loaded.cost} if len(loaded.cost) else {}
    return Part(tables, values={"yaml": text, "made": environment, "gpu": "gpu_seconds" in loaded.cost})
