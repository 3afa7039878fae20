rule make_clusters:
    input:
        samples=manifest("samples"),
        embedding=manifest("embedding"),
    output:
        manifest=manifest("clusters"),
        files=files("clusters"),
    log:
        record("logs", "clusters"),
    benchmark:
        record("benchmarks", "clusters")
    conda:
        ENV
    threads: threads_of("clusters")
    resources:
        mem_mb=memory_of("clusters"),
        runtime=minutes_of("clusters"),
        gpu=gpus_of("clusters"),
    params:
        code=code("clusters"),
        options=options(CONFIG.cluster),
        seed=SEED,
        device=CONFIG.device,
    message:
        "k-means {wildcards.clustering} of {wildcards.condition}"
    shell:
        "granularity cluster --samples {input.samples} --embedding {input.embedding}"
        " --clustering {wildcards.clustering} --params {params.options:q} --seed {params.seed}"
        " --device {params.device} --threads {threads} --output {output.manifest} > {log} 2>&1"
