rule make_probes:
    input:
        samples=manifest("samples"),
        pixels=manifest("pixels"),
        embedding=manifest("embedding"),
        pretrained=pretrained_for_probe,
    output:
        manifest=manifest("probe"),
        files=files("probe"),
    log:
        record("logs", "probe"),
    benchmark:
        record("benchmarks", "probe")
    conda:
        ENV
    threads: threads_of("probe")
    resources:
        mem_mb=memory_of("probe"),
        runtime=minutes_of("probe"),
        gpu=gpus_of("probe"),
    params:
        code=code("probe"),
        pretrained=flags("--pretrain", "pretrained"),
        runs=probe_run_names,
        options=options(CONFIG.probe),
        augment=options(CONFIG.pretrain.augment),
        seed=SEED,
        device=CONFIG.device,
    message:
        "Probing {wildcards.unit} of {wildcards.condition}"
    shell:
        "granularity probe --samples {input.samples} --pixels {input.pixels} --embedding {input.embedding}"
        " {params.pretrained} --runs {params.runs} --params {params.options:q} --augment {params.augment:q}"
        " --seed {params.seed} --device {params.device} --threads {threads} --output {output.manifest} > {log} 2>&1"
