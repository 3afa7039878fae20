# One rule per stage, made from the table of stages: `make_cluster` runs `granularity cluster`, which is
# workflow/granularity/stages/cluster/stage.py.
for stage in STAGES:

    rule:
        name:
            f"make_{stage}"
        input:
            unpack(RULES.inputs(stage)),
        output:
            **RULES.output(stage),
        log:
            RULES.log(stage),
        benchmark:
            RULES.benchmark(stage)
        priority: STAGES[stage].priority
        conda:
            ENV
        threads: RULES.threads(stage)
        resources:
            mem_mb=RULES.memory_mb(stage),
            runtime=RULES.minutes(stage),
            gpu=RULES.gpus(stage),
        params:
            command=RULES.command(stage),
        message:
            RULES.message(stage)
        shell:
            "{params.command} --threads {threads} > {log:q} 2>&1"

    getattr(rules, f"make_{stage}").rule.docstring = f"One job of target {stage}."
