"""What papers claim about images, and what became of it here."""

from __future__ import annotations

import pandas as pd

from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "Claims about images"
LINK = "Claims"
NUMBERS = ("measured", "sd", "minimum", "maximum")


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
do not depend on the run; a claim whose preconditions are not met is not tested, and says why. A band is a paper's
kind of evidence, such as a sign over runs. The answer at the top asks for more, an interval over backbones that is
corrected for the number of comparisons: a claim may hold where the answer can’t be told.</p>
{% for study in loaded.studies %}
{{ judged(study) }}
{% endfor %}
{% if tables %}
<p class="note"><span class="file">tables/claims.csv</span></p>
{% endif %}
"""
