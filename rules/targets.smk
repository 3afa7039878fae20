# What one may ask for by name: the report, every stage, the theory and each of its worlds.
rule report:
    default_target: True
    input:
        RULES.results("report"),
    localrule: True
    message:
        f"The report: {RULES.plan.page}"


for target, results in RULES.targets().items():

    rule:
        name:
            target
        input:
            results,
        localrule: True
