"""The table of results, and the difference of each arm from its baseline."""

from granularity.stages.report import drawing, words
from granularity.stages.report.comparisons import AVERAGED, HOLDS, SAME
from granularity.stages.report.loaded import Loaded
from granularity.stages.report.sections import Part

HEADING = "Results"


def build(loaded: Loaded) -> Part | None:
    table = loaded.results
    if table.empty:
        return None
    lent = table[(table["network"] != table["baseline"]) & table["baseline"].notna()]
    unlike = [holds for holds in HOLDS if holds not in AVERAGED]
    more = {"network": False, "transfer": loaded.other_data}  # shown always, or only if there are several
    values = {
        "more": [key for key, always in more.items() if always or table[key].nunique() > 1],
        "lenders": sorted(set(zip(lent["network"], lent["baseline"], strict=True))),
        "same": round(100 * SAME),
        "unlike": unlike,
        "starred": bool(table["control_holds"].isin(unlike).any()),
        "repeated": bool(table["repeats"].notna().any()),
        "asked": table.index.isin(words.finer(table).index).tolist(),
    }
    tables = {"results": table, "comparisons": loaded.comparisons, "backbones": loaded.backbones}
    compared = table[(table["role"] != "baseline") & table["difference"].notna()]
    drawn = {}
    if len(compared):
        drawn["differences"] = drawing.differences(compared, "differences", "the baseline", sharex=False)
    return Part(tables, drawn, values)
