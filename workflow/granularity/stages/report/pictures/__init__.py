"""Pictures of measures, found by the measure's name: its arrays, drawn for the report.

`NAME.py` here draws the measure `NAME`; a measure of the user's own may draw itself. Either holds
`draw(trainings, name)`, which returns a figure of that name as SVG. `trainings`: for each label space, its measured
networks over their training (:mod:`granularity.stages.report.snapshots`). The file's docstring is the caption.
"""
