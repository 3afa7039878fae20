# what starts a training, here and in finetune.smk
PROCESSES = CONFIG.jobs.processes
GRANULARITY = (
    f"python -m granularity.machine.launch {PROCESSES}" if PROCESSES > 1 else "granularity"
)


rule make_pretraining:
    input:
        samples=manifest("samples"),
        pixels=manifest("pixels"),
        label_spaces=spaces_of_unit,
    output:
        manifest=manifest("pretrain"),
        files=files("pretrain"),
    log:
        record("logs", "pretrain"),
    benchmark:
        record("benchmarks", "pretrain")
    conda:
        ENV
    threads: PROCESSES
    resources:
        mem_mb=memory_of("pretrain"),
        runtime=minutes_of("pretrain"),
        gpu=gpus_of("pretrain") * PROCESSES,
    params:
        code=code("pretrain"),
        label_spaces=flags("--label-space", "label_spaces"),
        runs=pretrain_run_names,
        recipe=options(CONFIG.pretrain),
        model=options(CONFIG.model),
        seed=SEED,
        device=CONFIG.device,
        granularity=GRANULARITY,
    message:
        "Pretraining {wildcards.unit} of {wildcards.condition}"
    shell:
        "{params.granularity} pretrain --samples {input.samples} --pixels {input.pixels} {params.label_spaces}"
        " --runs {params.runs} --recipe {params.recipe:q} --model {params.model:q} --seed {params.seed}"
        " --device {params.device} --threads {threads} --output {output.manifest} > {log} 2>&1"
