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
    localrule: True
    input:
        plan.page(CONFIG),


rule samples:
    localrule: True
    input:
        every("samples"),


rule embed:
    localrule: True
    input:
        every("embedding"),


rule cluster:
    localrule: True
    input:
        every("clusters"),


rule hierarchies:
    localrule: True
    input:
        every("label_space"),


rule pretrain:
    localrule: True
    input:
        every("pretrain"),


rule finetune:
    localrule: True
    input:
        every("finetune"),


rule probe:
    localrule: True
    input:
        every("probe"),
