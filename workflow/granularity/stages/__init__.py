"""The science: one folder per stage, in the order the data flows; this is the table of them.

A stage's folder declares its record, :class:`granularity.base.stage.Stage`, in ``__init__.py``, its options in
``options.py``, and computes in ``stage.py``: ``run(task)``. Paths, commands, rules, resources and status loop over
:data:`STAGES`. To add a stage: one folder, and its line here.
"""

from granularity.base.stage import Stage
from granularity.stages import (
    cluster,
    embed,
    encoder,
    finetune,
    hierarchy,
    measure,
    pixels,
    pretrain,
    report,
    samples,
    theory,
    verdicts,
)

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        samples.STAGE,
        pixels.STAGE,
        encoder.STAGE,
        embed.STAGE,
        cluster.STAGE,
        hierarchy.STAGE,
        pretrain.STAGE,
        finetune.STAGE,
        measure.STAGE,
        theory.STAGE,
        verdicts.STAGE,
        report.STAGE,
    )
}
