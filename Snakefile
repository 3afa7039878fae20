# What runs: configuration in, stages in the order the data flows, named targets out.
from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


report: "report/workflow.rst"


include: "rules/common.smk"
include: "rules/samples.smk"
include: "rules/embed.smk"
include: "rules/cluster.smk"
include: "rules/hierarchy.smk"
include: "rules/pretrain.smk"
include: "rules/finetune.smk"
include: "rules/probe.smk"
include: "rules/report.smk"


rule report:
    default_target: True
    input:
        plan.page(CONFIG),
    localrule: True


rule samples:
    input:
        every("samples"),
    localrule: True


rule embed:
    input:
        every("embedding"),
    localrule: True


rule cluster:
    input:
        every("clusters"),
    localrule: True


rule hierarchies:
    input:
        every("label_space"),
    localrule: True


rule pretrain:
    input:
        every("pretrain"),
    localrule: True


rule finetune:
    input:
        every("finetune"),
    localrule: True


rule probe:
    input:
        every("probe"),
    localrule: True
