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
    threads: threads_of("report")
    resources:
        mem_mb=memory_of("report"),
        runtime=minutes_of("report"),
        gpu=gpus_of("report"),
    params:
        code=code("report"),
        config=options(CONFIG),
        theory=theory_results(),
    message:
        "Writing {output.page}"
    shell:
        "granularity report --params {params.config:q} {params.theory} --page {output.page} --output {output.manifest} > {log} 2>&1"
