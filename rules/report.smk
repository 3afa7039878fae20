# What Snakemake's own report holds (`snakemake --report report.zip`): the page, and copies of its figures and tables.
# They are copies, because which there are is known only once the report is made, and Snakemake empties folders that a
# rule names as its output.
rule show_report:
    input:
        RULES.shown,
    output:
        page=report(
            "results/{cell}/shown/report.html",
            caption="../report/captions/page.rst",
            category="Page",
        ),
        figures=report(
            directory("results/{cell}/shown/figures"),
            patterns=["{figure}.svg"],
            caption="../report/captions/figures.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
        tables=report(
            directory("results/{cell}/shown/tables"),
            patterns=["{table}.csv"],
            caption="../report/captions/tables.rst",
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


# Pages to look through the results, on request: `snakemake explore`, and `--report` with it. It is `granularity explore`
# into a folder that is Snakemake's own; the command by itself writes to `explore/` and touches nothing of others.
rule explore:
    input:
        RULES.everything(),
    output:
        report(
            directory(f"{RULES.plan.root}/shown/explore"),
            htmlindex="index.html",
            caption="../report/captions/explore.rst",
            category="Page",
        ),
    log:
        f"{RULES.plan.root}/shown/explore.log",
    localrule: True
    conda:
        ENV
    message:
        "Pages to look through the results: {output}/index.html"
    shell:
        "granularity explore $(dirname $(dirname {output})) --to {output} 2>&1 | tee {log}"


# Every measure by label space: `granularity atlas` over one configuration. Results of other base seeds are no input of it.
rule atlas:
    input:
        RULES.everything(),
    output:
        directory(f"{RULES.plan.root}/shown/atlas"),
    log:
        f"{RULES.plan.root}/shown/atlas.log",
    localrule: True
    conda:
        ENV
    message:
        "All measures by label space: {output}/index.html"
    shell:
        "granularity atlas $(dirname $(dirname {output})) --to {output} 2>&1 | tee {log}"
