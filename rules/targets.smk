# What one may ask for by name, beside the report: every stage, the theory and each of its worlds.
for target, results in RULES.targets().items():

    rule:
        name:
            target
        input:
            results,
        localrule: True
