rule make_samples:
    output:
        manifest=manifest("samples"),
        files=files("samples"),
    log:
        record("logs", "samples"),
    benchmark:
        record("benchmarks", "samples")
    conda:
        ENV
    threads: threads_of("samples")
    resources:
        mem_mb=memory_of("samples"),
        runtime=minutes_of("samples"),
        gpu=gpus_of("samples"),
    params:
        code=code_digest(f"{plan.MODULES['samples']} {ADAPTERS[CONFIG.samples.source]}"),
        options=options(CONFIG.samples),
        train_size=train_size,
        seed=SEED,
    message:
        "Sample table of {wildcards.condition}"
    shell:
        "granularity samples --train-size {params.train_size} --params {params.options:q} --seed {params.seed}"
        " --threads {threads} --output {output.manifest} > {log} 2>&1"


rule make_pixels:
    input:
        samples=manifest("samples"),
    output:
        manifest=manifest("pixels"),
        files=files("pixels"),
    log:
        record("logs", "pixels"),
    benchmark:
        record("benchmarks", "pixels")
    conda:
        ENV
    threads: threads_of("pixels")
    resources:
        mem_mb=memory_of("pixels"),
        runtime=minutes_of("pixels"),
        gpu=gpus_of("pixels"),
    params:
        code=code("pixels"),
        options=options(CONFIG.pixels),
    message:
        "Decoding the images of {wildcards.condition}"
    shell:
        "granularity pixels --samples {input.samples} --params {params.options:q}"
        " --threads {threads} --output {output.manifest} > {log} 2>&1"
