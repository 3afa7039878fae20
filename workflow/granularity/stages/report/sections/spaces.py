"""The label spaces: sizes of their classes, and what they say about the human ranks."""

from __future__ import annotations

from granularity.stages.report import figures
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.part import Part

HEADING = "The label spaces"
LINK = "Label spaces"


def applies(loaded: Loaded) -> bool:
    return len(loaded.properties) > 0


def build(loaded: Loaded) -> Part:
    conditions = [condition for condition in loaded.conditions if condition.spaces]
    drawn = {"agreement": figures.agreement(loaded.properties, conditions[0].shown_ranks)}
    if any(space.params.get("clusterings") for condition in conditions for space in condition.spaces):
        drawn["class_sizes"] = figures.class_sizes(conditions)
    ranks = list(dict.fromkeys(rank for condition in conditions for rank in condition.shown_ranks))
    return Part({"properties": loaded.properties}, drawn, {"measures": _measures(ranks)})


def _measures(ranks: list[str]) -> list[tuple[str, str, str]]:
    """Columns of the table: key, heading, filter; of the target rank and the finest, no more."""
    columns = [(f"purity_{rank}", f"purity, {rank}", "share") for rank in ranks]
    columns += [(f"mutual_information_bits_{rank}", f"mutual information, {rank} (bits)", "num") for rank in ranks]
    return columns + [(f"nmi_{rank}", f"NMI, {rank}", "num") for rank in ranks]


TEMPLATE = """
{% call table() %}
{{ columns(["Label space", "G", "Images", "Smallest class", "Median", "Largest", "Classes below 5 images",
            "Images straddling"] + measures | map(attribute=1) | list) }}
<tbody>
{% for row in tables.properties %}
{{ group(tables.properties, loop.index0, 8 + measures | length) }}
<tr><th scope="row">{{ row.space }}</th><td>{{ row.granularity | num(0) }}</td><td>{{ row.images | num(0) }}</td>
<td>{{ row.class_size_min | num(0) }}</td><td>{{ row.class_size_median | num(1) }}</td>
<td>{{ row.class_size_max | num(0) }}</td><td>{{ row.starved_share | share }}</td>
<td>{{ row.straddling_share | share }}</td>
{% for key, _, filter in measures %}
<td>{{ row[key] | share if filter == "share" else row[key] | num }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
{% endcall %}
<p class="note">Straddling: images whose label is given to images of more than one target class. Purity: share of
images in the majority human class of their label. NMI: mutual information over the mean entropy; one label per image
is trivially pure. <span class="file">tables/properties.csv</span></p>
{{ drawing("agreement", "How much each label space says about the human ranks: normalised mutual information, 0 for
none, 1
for the rank itself. Random labels gain some with G alone, as small classes are pure by chance.") }}
{% if "class_sizes" in figures %}
{{ drawing("class_sizes", "Images in each class of the clustered label spaces, from the largest class to the
smallest.") }}
{% endif %}
"""
