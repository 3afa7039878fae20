rule make_encoder:
    input:
        samples=manifest("samples"),
        files=plan.encoder_files(CONFIG),
    output:
        manifest=manifest("encoder"),
        files=files("encoder"),
    log:
        record("logs", "encoder"),
    benchmark:
        record("benchmarks", "encoder")
    conda:
        ENV
    threads: threads_of("encoder")
    resources:
        mem_mb=memory_of("encoder"),
        runtime=minutes_of("encoder"),
        gpu=gpus_of("encoder"),
    params:
        code=code("encoder"),
        options=options(CONFIG.encoder),
        seed=SEED,
        device=CONFIG.device,
    message:
        "Training the CLIP encoder of {wildcards.condition} on captions"
    shell:
        "granularity encoder --samples {input.samples} --params {params.options:q} --seed {params.seed}"
        " --device {params.device} --threads {threads} --output {output.manifest} > {log} 2>&1"


rule make_embedding:
    input:
        samples=manifest("samples"),
        encoder=trained_encoder,
        files=plan.encoder_files(CONFIG),
    output:
        manifest=manifest("embedding"),
        files=files("embedding"),
    log:
        record("logs", "embedding"),
    benchmark:
        record("benchmarks", "embedding")
    conda:
        ENV
    threads: threads_of("embedding")
    resources:
        mem_mb=memory_of("embedding"),
        runtime=minutes_of("embedding"),
        gpu=gpus_of("embedding"),
    params:
        code=code("embedding"),
        options=options(CONFIG.encoder),
        encoder=flags("--encoder", "encoder"),
        device=CONFIG.device,
    message:
        "Embedding the images of {wildcards.condition}"
    shell:
        "granularity embed --samples {input.samples} {params.encoder} --params {params.options:q}"
        " --device {params.device} --threads {threads} --output {output.manifest} > {log} 2>&1"
