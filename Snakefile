# `snakemake` finds this file first; the workflow is workflow/Snakefile, where Snakemake's catalog and modules look for it.
include: "workflow/Snakefile"


workflow.default_target = "report"
