# What one may ask for by name, beside the report: every stage, the theory and each of its worlds.
for target, results in RULES.targets().items():

    rule:
        name:
            target
        input:
            results,
        localrule: True

    getattr(rules, target).rule.docstring = RULES.about(target)


# Five papers, claim by claim, over all results that lie there, whatever configuration they are of. It trains nothing,
# and is made anew each time: the results of other configurations are no input of this one.
rule papers:
    """Write results/papers.html: five papers, claim by claim, over all results here."""
    log:
        "results/papers.log",
    localrule: True
    conda:
        ENV
    message:
        "The papers, claim by claim: results/papers.html"
    shell:
        "granularity papers $(dirname {log}) 2>&1 | tee {log}"
