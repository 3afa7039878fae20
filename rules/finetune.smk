rule make_finetuning:
    input:
        samples=manifest("samples"),
        pixels=manifest("pixels"),
        pretrained=pretrained_for_finetune,
    output:
        manifest=manifest("finetune"),
        files=files("finetune"),
    log:
        record("logs", "finetune"),
    benchmark:
        record("benchmarks", "finetune")
    conda:
        ENV
    threads: PROCESSES
    resources:
        mem_mb=memory_of("finetune"),
        runtime=minutes_of("finetune"),
        gpu=gpus_of("finetune") * PROCESSES,
    params:
        code=code("finetune"),
        pretrained=flags("--pretrain", "pretrained"),
        runs=finetune_run_names,
        recipe=options(CONFIG.finetune),
        seed=SEED,
        device=CONFIG.device,
        granularity=GRANULARITY,
    message:
        "Finetuning {wildcards.unit} of {wildcards.condition}"
    shell:
        "{params.granularity} finetune --samples {input.samples} --pixels {input.pixels} {params.pretrained}"
        " --runs {params.runs} --recipe {params.recipe:q} --seed {params.seed}"
        " --device {params.device} --threads {threads} --output {output.manifest} > {log} 2>&1"
