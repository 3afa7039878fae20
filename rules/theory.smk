wildcard_constraints:
    world="|".join(WORLDS),
    part="[0-9]*",


rule make_theory_runs:
    output:
        manifest=manifest("theory_runs"),
        files=files("theory_runs"),
    log:
        record("logs", "theory_runs"),
    benchmark:
        record("benchmarks", "theory_runs")
    conda:
        ENV
    threads: threads_of("theory_runs")
    resources:
        mem_mb=memory_of("theory_runs"),
        runtime=minutes_of("theory_runs"),
        gpu=gpus_of("theory_runs"),
    params:
        code=code_of_world,
        size=CONFIG.theory.size,
        parts=CONFIG.theory.parts,
        device=CONFIG.device,
    message:
        "Theory: training {wildcards.world}, part {wildcards.part} of {params.parts}"
    shell:
        "granularity theory-runs {wildcards.world} --size {params.size} --part {wildcards.part}"
        " --parts {params.parts} --device {params.device} --threads {threads}"
        " --output {output.manifest} > {log} 2>&1"


rule make_theory:
    input:
        runs=parts_of_world,
    output:
        manifest=manifest("theory"),
        files=files("theory"),
    log:
        record("logs", "theory"),
    benchmark:
        record("benchmarks", "theory")
    conda:
        ENV
    threads: threads_of("theory")
    resources:
        mem_mb=memory_of("theory"),
        runtime=minutes_of("theory"),
        gpu=gpus_of("theory"),
    params:
        code=code_of_world,
        size=CONFIG.theory.size,
        runs=flags("--runs", "runs"),
    message:
        "Theory: the claims about {wildcards.world}"
    shell:
        "granularity theory {wildcards.world} --size {params.size} {params.runs}"
        " --output {output.manifest} > {log} 2>&1"


for world in WORLDS:

    rule:
        name:
            f"theory_{world}"
        input:
            manifest("theory", world=world),
        localrule: True
        message:
            f"Theory: results/theory/{world}"


rule theory:
    input:
        [manifest("theory", world=world) for world in WORLDS],
    localrule: True
    message:
        "Theory: results/theory"
