"""The science: one folder per stage, listed here in the order in which data flow (docs/development.md)."""

from granularity.base.stage import Stage
from granularity.stages import (
    cluster,
    duplicates,
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
        duplicates.STAGE,
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
