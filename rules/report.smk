rule make_report:
    input:
        every("samples"),
        every("pixels"),
        every("encoder"),
        every("embedding"),
        every("clusters"),
        every("label_space"),
        every("pretrain"),
        every("finetune"),
        every("probe"),
        published="config/published/granularity_t5.csv",
    output:
        manifest=manifest("report"),
        files=files("report"),
        page=report(
            plan.page(CONFIG), caption="../report/captions/page.rst", category="Report"
        ),
    log:
        record("logs", "report"),
    benchmark:
        record("benchmarks", "report")
    conda:
        ENV
    threads: 1
    resources:
        mem_mb=1500,
        runtime=60,
        gpu=0,
    params:
        code=code("report"),
        config=options(CONFIG),
        theory=theory_results(),
    message:
        "Writing {output.page}"
    shell:
        "granularity report --params {params.config:q} {params.theory} --page {output.page} --output {output.manifest} > {log} 2>&1"
