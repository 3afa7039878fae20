"""What papers claim about images, and what became of it here."""

from __future__ import annotations

import pandas as pd

from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Claims about images"
LINK = "Claims"
NUMBERS = ("measured", "sd", "minimum", "maximum", "interval_low", "interval_high", "comparisons", "p")


def applies(loaded: Loaded) -> bool:
    return bool(loaded.studies)


def build(loaded: Loaded) -> Part:
    claims = [{"study": study.name, **row} for study in loaded.studies for row in study.checks]
    table = pd.DataFrame(claims)
    for name in NUMBERS if claims else ():  # empty cells are texts, and what was not tested has such
        table[name] = pd.to_numeric(table[name], errors="coerce")
    return Part({"claims": table} if claims else {})


TEMPLATE = """
<p>Each claim of a paper stands beside the published numbers and those measured here. Its band and its preconditions
do not depend on the run; a claim whose preconditions are not met is not tested, and says why. Comparisons of errors
are judged as in the rest of this report: by a {{ level }} % interval over backbones, corrected for the number of
comparisons. The claim holds where the interval lies in the band, fails where it lies outside, and is not significant
where it does neither.</p>
{% for study in loaded.studies %}
{{ judged(study) }}
{% endfor %}
{% if tables %}
<p class="note"><span class="file">tables/claims.csv</span></p>
{% endif %}
"""
