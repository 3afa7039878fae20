# What runs: configuration in, stages in the order the data flows, named targets out.
from snakemake.utils import min_version

min_version("9.0")


configfile: "config/config.yaml"


report: "report/workflow.rst"


include: "rules/common.smk"
include: "rules/stages.smk"
include: "rules/report.smk"
include: "rules/targets.smk"


rule report:
    default_target: True
    input:
        RULES.everything(),
        rules.show_report.output,
    localrule: True
    message:
        f"The report: {RULES.plan.page}"
