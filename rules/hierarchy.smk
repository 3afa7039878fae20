rule make_label_space:
    input:
        samples=manifest("samples"),
        clusters=clusterings_of_space,
    output:
        manifest=manifest("label_space"),
        files=files("label_space"),
    log:
        record("logs", "label_space"),
    benchmark:
        record("benchmarks", "label_space")
    conda:
        ENV
    threads: threads_of("label_space")
    resources:
        mem_mb=memory_of("label_space"),
        runtime=minutes_of("label_space"),
        gpu=gpus_of("label_space"),
    params:
        code=code("label_space"),
        clusters=flags("--clusters", "clusters"),
        family=space_family,
        options=space_params,
        seed=SEED,
    message:
        "Label space {wildcards.space} of {wildcards.condition}"
    shell:
        "granularity hierarchy --samples {input.samples} {params.clusters} --space {wildcards.space}"
        " --family {params.family} --params {params.options:q} --seed {params.seed} --output {output.manifest} > {log} 2>&1"
