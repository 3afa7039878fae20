"""Tables, sentences and the figure of docs/findings/weights_of_levels.md: levels of labels mixed in one loss.

python docs/results/weights.py results/theory/verdicts/weights_of_levels    # keeps a row per network of its runs
"""

import functools
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from tables import (
    BASELINE,
    HERE,
    came_out,
    code_of,
    compared,
    inside,
    lines,
    predictions,
    ranged,
    read,
    shown,
    simulated,
    table_of,
    worded,
)

from granularity.stages.theory import figures as draw
from granularity.stages.theory.runs import at
from granularity.stages.theory.statements import Runs

NAME, PHOTOGRAPHS, TREE = "weights_of_levels", "cifar10_weights", "tiny_imagenet_weights"
COLUMNS = ["setting", "seed", "weight", "k", "eta", "loss", "hard_own", "normal_own", "hard_label"]
COLUMNS += ["hard_label_sibling", "normal_label", "rise_subclass_weight", "rise_common_weight"]
COLUMNS += ["rise_hard_label_sibling", "rise_hard_own", "error_sum", "error_pruned", "error_max"]
WEIGHTS = (0, 0.25, 0.5, 0.75, 0.9, 1)
# Hard errors of arms of the simulation that are compared; those of photographs are all that were predicted.
SIMULATED = {f"weight {w:g}": "weight 1" for w in WEIGHTS[:-1]}
SIMULATED |= {f"weight 0.5, {how}": f"weight 1, {how}" for how in ("step 1.6", "step 0.025", "16 images")}
SIMULATED |= {"weight 0.75, 16 images": "weight 1, 16 images"}
MIXTURES = {"class-25/levels": 0.25, "class-50/levels": 0.5, "class-75/levels": 0.75, "class-90/levels": 0.9}


def mean(arm: str, measure: str) -> float:
    values = at(simulated(NAME), arm, measure)
    return values.mean() if len(values) else np.nan


SINGLE = (BASELINE, "manual-type", "manual-synset", "kmeans-class-2")  # levels of the tree that are alone in a loss


@functools.cache
def errors(study: str) -> dict[str, pd.Series]:
    """Errors per draw of every arm of a study on photographs."""
    table = read(study).query("stage == 'finetune' or network.str.startswith('once')")
    name = table["space"].where(table["network"] == "resnet18", table["network"] + "/" + table["space"])
    return {arm: one.groupby("draw")["value"].mean().rename(arm) for arm, one in table.groupby(name)}


def best() -> str:
    """The level of the tree that leads to the lowest error if it is alone in the loss, finetuned."""
    return min(SINGLE, key=lambda arm: errors(TREE)[arm].mean())


def mixtures(study: str) -> dict[str, str]:
    """By prediction about a mixture of levels, its arm."""
    return {name: one["arm"] for name, one in predictions(study).items() if "/levels" in one["arm"]}


@functools.cache
def differences() -> pd.DataFrame:
    """Every comparison of the page: hard errors of the simulation, errors of photographs; corrected together.

    Finetuned mixtures on the tree are compared with its best level too.
    """
    table = simulated(NAME)
    pairs = {
        arm: [pd.Series(at(table, one, "error_sum"), name=one) for one in (arm, SIMULATED[arm])] for arm in SIMULATED
    }
    for study, place in ((PHOTOGRAPHS, ""), (TREE, "tree, ")):
        found = errors(study)
        pairs |= {
            f"{place}{name}": [found[one["arm"]], found[one.get("against", BASELINE)]]
            for name, one in predictions(study).items()
        }
    tuned = {name: arm for name, arm in mixtures(TREE).items() if not arm.startswith("once")}
    pairs |= {f"best, {name}": [errors(TREE)[arm], errors(TREE)[best()]] for name, arm in tuned.items()}
    return compared(pairs)


def within(study: str, name: str) -> pd.Series:
    """A prediction's comparison, corrected only for those of its study."""
    said, found = predictions(study), errors(study)
    pairs = {key: (found[one["arm"]], found[one.get("against", BASELINE)]) for key, one in said.items()}
    return compared(pairs).loc[name]


def tree() -> str:
    """Errors on the tree, by what was trained on; differences beside their predictions."""
    found, said, rows = differences(), predictions(TREE), []
    for name, one in {BASELINE: {"arm": BASELINE}, **said}.items():
        own = errors(TREE)[one["arm"]]
        more = [ranged(one), shown(found.loc[f"tree, {name}"])] if name in said else ["", ""]
        rows.append(["kind" if name == BASELINE else name, f"{own.mean():.2f} ({own.std():.2f})", *more])
    return lines(["levels in the loss", "error", "predicted", "from the kind, or the kind in one stage"], rows)


def laws() -> str:
    """Growth in phase I, responses to hard samples and hard errors at the end, by weight; the law's in brackets."""
    settings = {cfg.name: cfg for cfg in code_of(NAME).SIZES["quick"]}
    found = []
    for w in WEIGHTS:
        start, end = f"phase I, {w:g}", f"weight {w:g}"
        cfg = settings[end]
        grown = 1 + w * (1 - 1 / cfg.k), 1 - w * (1 - 1 / cfg.k)
        cells = [
            f"{mean(start, f'rise_{name}_weight'):.2f} ({law:.2f})"
            for name, law in zip(("subclass", "common"), grown, strict=True)
        ]
        cells.append(f"{mean(end, 'hard_label'):.2f} ({code_of(NAME).path(cfg)['own'][-1]:.2f})")
        cells.append(f"{mean(end, 'error_sum'):.2f} ({code_of(NAME).error_law(cfg, 4):.2f})")
        cells.append(f"{mean(end, 'error_max'):.2f} ({code_of(NAME).error_law(cfg, 4, 'max'):.2f})")
        found.append([f"{w:g}", *cells])
    heads = ["own subclass", "common feature", "own response", "hard error, sum", "hard error, maximum"]
    return lines(["weight", *heads], found)


def answer() -> str:
    """What came out, with numbers of the tables."""
    found, came = differences(), came_out(NAME)
    most, least = (shown(found.loc[f"weight {w}"]) for w in (0.25, 0.9))
    copies = code_of(NAME).SIZES["quick"][0].k
    missed = {name: f"{value:.2f}, lies {where}" for name, (value, where) in came.items() if where != "inside"}
    said = predictions(PHOTOGRAPHS)
    ranges = sum(inside(found.loc[name, "difference"], one) == "inside" for name, one in said.items())
    tuned = found[found.index.str.startswith("best, ")]
    best_tuned, decides = tuned["difference"].idxmin(), "kind and type in one stage"
    of_tree = predictions(TREE)
    held = sum(inside(found.loc[f"tree, {name}", "difference"], one) == "inside" for name, one in of_tree.items())
    simulated = (
        f"- **The fine label alone is best: the kill criterion is met.** With the summed head, hard errors are "
        f"{mean('weight 0', 'error_sum'):.2f} at w = 0 and {mean('weight 1', 'error_sum'):.2f} at w = 1. Every mixture "
        f"is worse, from {most} at w = 0.25 to {least} at w = 0.9. So is w = 0.5 with steps of 0.025 and 1.6, and "
        "with 16 images in all.",
        "- **The law holds:** growth of the own subclass and the common feature in phase I agrees within 3 %; "
        f"{len(came) - len(missed)} of {len(came)} predictions lie in their ranges "
        f"({'; '.join(f'*{name}*, {came}' for name, came in missed.items())}).",
        f"- **What a mixture costs depends on the head.** The summed head counts {copies} copies "
        "of the common feature in favour of distractors. If only the largest fine output counts, w = 0.25 is enough "
        f"for a hard error of {mean('weight 0.25', 'error_max'):.3f}. With those copies pruned, w = 0 has "
        f"{mean('weight 0', 'error_pruned'):.2f}, but {mean('weight 0, step 1.6', 'error_pruned'):.2f} with a step of "
        f"1.6 and {mean('weight 0, 16 images', 'error_pruned'):.2f} with 16 images (w = 1: at most "
        f"{mean('weight 1, step 0.025', 'error_pruned'):.3f}).",
        "- **No mixture helps on CIFAR-10.** With half the weight on the class, errors differ from the class's by "
        f"{shown(found.loc['half'])} points, in one stage by {shown(found.loc['half in one stage'])}. Gains above "
        f"{-found.loc[list(mixtures(PHOTOGRAPHS)), 'low'].min():.1f} points are excluded. {ranges} of "
        f"{len(said)} ranges hold.",
        "- **On a tree of 12, 76 and 200 labels one mixture may help, in one stage** (*exploratory*): *kind and type* "
        f"has {shown(within(TREE, decides))} points against the kind, corrected for the study's {len(of_tree)}, so the "
        f"kill criterion is not met. Corrected for this page: {shown(found.loc[f'tree, {decides}'])}. Finetuned, no "
        f"mixture is significantly better than the best level (*{worded(best()).partition(' ')[0]}*): "
        f"*{best_tuned.partition(', ')[2]}* has {shown(found.loc[best_tuned])}. "
        f"{held} of {len(of_tree)} ranges hold.",
    )
    return "\n".join(textwrap.fill(one, 120, subsequent_indent="  ", break_on_hyphens=False) for one in simulated)


def _photographs(axes: Axes) -> None:
    """Draw errors on photographs less the class's, by the class's weight, with corrected intervals."""
    found = differences()
    by = {one["arm"]: found.loc[name] for name, one in predictions(PHOTOGRAPHS).items()}
    some = {w: by[arm] for arm, w in MIXTURES.items()}
    middle = [row["difference"] for row in some.values()]
    bars = [
        [row["difference"] - row["low"] for row in some.values()],
        [row["high"] - row["difference"] for row in some.values()],
    ]
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.errorbar(list(some), middle, yerr=bars, fmt="o", capsize=2, color=draw.COLOURS[0])
    kind = by["manual-class"]
    axes.errorbar(
        [0],
        [-kind["difference"]],
        yerr=[[kind["high"] - kind["difference"]], [kind["difference"] - kind["low"]]],
        fmt="s",
        capsize=2,
        color=draw.COLOURS[1],
    )
    axes.set(
        xlabel="weight of the class", ylabel="error minus the class's (points)", xticks=(0, 0.5, 1), xlim=(-0.08, 1.08)
    )


def drawing() -> None:
    """docs/images/weights_of_levels.svg: growth and hard errors of the simulation; errors on photographs."""
    panels = code_of(NAME).panels(Runs(simulated(NAME)))
    note = f"{draw.SPREAD}; photographs: corrected intervals"
    draw.draw(HERE.parent / "images", NAME, *panels, _photographs, height=2.8, width=9.9, note=note)


if __name__ == "__main__":
    table = pd.concat([pd.read_parquet(Path(folder) / "runs.parquet") for folder in sys.argv[1:]])
    table = table[table["event"].str.contains("end")].sort_values(["setting", "seed"])
    table[COLUMNS].to_csv(table_of(NAME), index=False, float_format="%.6g", lineterminator="\n")
