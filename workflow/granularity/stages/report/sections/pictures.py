"""Pictures of what was measured: the arrays of measures, drawn by the file of the measure's name in `pictures/`."""

import inspect

from granularity.base import extensions
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part
from granularity.stages.report.snapshots import trainings

HEADING = "Pictures of measures"


def build(loaded: Loaded) -> Part | None:
    figures, captions = {}, {}
    for condition in loaded.conditions:
        entries = condition.values.drop_duplicates("measure").set_index("measure")["file"]
        for entry, measure in entries[entries.isin(list(loaded.pictures))].items():
            picture = extensions.find(loaded.pictures[measure], measure)
            name = f"picture_{entry}" + (f"_{condition.name}" if len(loaded.conditions) > 1 else "")
            if shown := trainings(condition, entry, loaded.options.pictures):
                figures[name] = picture.draw(shown, name)
                captions[name] = f"{entry}, {condition.label}. {' '.join((inspect.getdoc(picture) or '').split())}"
    return Part(figures=figures, values={"captions": captions}) if figures else None
