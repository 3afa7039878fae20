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
include: "rules/theory.smk"
include: "rules/report.smk"


rule report:
    default_target: True
    input:
        plan.page(CONFIG),
    localrule: True
    message:
        f"The report: {plan.page(CONFIG)}"


rule samples:
    input:
        every("samples"),
    localrule: True
    message:
        "All sample tables are made"


rule pixels:
    input:
        every("pixels"),
    localrule: True
    message:
        "All images are decoded"


rule encoder:
    input:
        every("encoder"),
    localrule: True
    message:
        "All encoders are trained"


rule embed:
    input:
        every("embedding"),
    localrule: True
    message:
        "All embeddings are made"


rule cluster:
    input:
        every("clusters"),
    localrule: True
    message:
        "All clusterings are made"


rule hierarchies:
    input:
        every("label_space"),
    localrule: True
    message:
        "All label spaces are made"


rule pretrain:
    input:
        every("pretrain"),
    localrule: True
    message:
        "All networks are pretrained"


rule finetune:
    input:
        every("finetune"),
    localrule: True
    message:
        "All networks are finetuned"


rule probe:
    input:
        every("probe"),
    localrule: True
    message:
        "All backbones are probed"
