# What Snakemake's own report holds (`snakemake --report report.zip`): the page, and copies of its figures and tables.
# They are copies, because which there are is known only once the report is made, and Snakemake empties folders that a
# rule names as its output.
rule show_report:
    """Copy the report for `snakemake --report`."""
    input:
        RULES.shown,
    output:
        page=report(
            "results/{cell}/shown/report.html",
            caption="../workflow/report/captions/page.rst",
            category="Page",
        ),
        figures=report(
            directory("results/{cell}/shown/figures"),
            patterns=["{figure}.svg"],
            caption="../workflow/report/captions/figures.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
        tables=report(
            directory("results/{cell}/shown/tables"),
            patterns=["{table}.csv"],
            caption="../workflow/report/captions/tables.rst",
            category="Tables",
            labels={"table": "{table}"},
        ),
    log:
        "results/{cell}/shown/copying.log",
    localrule: True
    conda:
        ENV
    params:
        page=lambda wildcards, input: f"{input[0].removesuffix('.stamp')}/report.html",
    message:
        "Figures and tables for Snakemake's report"
    shell:
        "(made=$(dirname {params.page})/ && mkdir -p {output.figures} {output.tables} && cp {params.page} {output.page}"
        " && find $made -name '*.svg' -exec cp {{}} {output.figures} ';'"
        " && find $made -name '*.csv' -exec cp {{}} {output.tables} ';') > {log} 2>&1"


# Pages for browsing the results, on request: `snakemake explore`, and `--report` with it. It is `granularity explore`
# into a folder that is Snakemake's own; the command by itself writes to `explore/` and touches nothing of others.
rule show_explored:
    """Write pages for browsing the results of one configuration."""
    input:
        RULES.made,
    output:
        report(
            directory("results/{cell}/shown/explore"),
            htmlindex="index.html",
            caption="../workflow/report/captions/explore.rst",
            category="Page",
        ),
    log:
        "results/{cell}/shown/explore.log",
    localrule: True
    conda:
        ENV
    message:
        "Pages for browsing the results: {output}/index.html"
    shell:
        "granularity explore $(dirname $(dirname {output})) --to {output} 2>&1 | tee {log}"


rule explore:
    """Write pages for browsing the results; of a study, for each of its cells."""
    input:
        expand(rules.show_explored.output, cell=RULES.reports),
    localrule: True


# Every measure by label space: `granularity atlas` over one configuration, or all draws of a study. Results of other base
# seeds are no input of it.
rule atlas:
    """Write a page of all measures by label space."""
    input:
        RULES.repeated,
    output:
        directory(f"{RULES.plan.root}/shown/atlas"),
    log:
        f"{RULES.plan.root}/shown/atlas.log",
    localrule: True
    conda:
        ENV
    params:
        folders=expand("results/{cell}", cell=RULES.reports),
    message:
        "All measures by label space: {output}/index.html"
    shell:
        "granularity atlas {params.folders} --to {output} 2>&1 | tee {log}"
