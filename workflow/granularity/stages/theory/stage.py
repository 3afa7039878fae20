"""Stage `theory`: train a world, or one part of it."""

import hashlib

import torch

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.stages.theory import engine
from granularity.store.artifact import canonical_json
from granularity.store.task import Task


def run(task: Task) -> None:
    """Train one part of a world; finished groups of runs survive a kill. Raises GranularityError: there is no such
    world, size or device.
    """
    options = task.options
    world = extensions.find("world", options.world)
    if options.size not in world.SIZES:
        raise GranularityError(f"theory: there is no size '{options.size}'; there are {', '.join(world.SIZES)}")
    settings = world.SIZES[options.size]
    torch.set_num_threads(1)
    where = engine.pick_device(task.device).type
    resolved = [item.model_dump(mode="json") for item in settings]
    # settings.json has them in full; this is their digest.
    written = hashlib.sha256(canonical_json(resolved).encode()).hexdigest()[:16]
    params = options.model_dump(mode="json") | {"settings": written}
    params["device"] = where
    facts = ("world", "size", "settings", "part", "parts")
    with task.create({}, params, facts=facts, resumable=True) as writer:
        kept = writer.work / "groups"
        kept.mkdir(exist_ok=True)
        table = engine.run_table(world, settings, task.device, options.part, options.parts, kept)
        writer.table("runs.parquet", table)
        writer.json("settings.json", resolved)
        writer.summary["diverged"] = int((table["event"] == "diverged").sum())
