# `snakemake` without further words finds this file; what runs is workflow/Snakefile, where others look for a workflow.
include: "workflow/Snakefile"
