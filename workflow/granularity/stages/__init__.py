"""The science: one folder per stage, in the order the data flows; this is the table of them (docs/development.md)."""

from granularity.base.stage import Stage
from granularity.stages import (
    cluster,
    embed,
    encoder,
    finetune,
    gather,
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
        gather.STAGE,
    )
}
