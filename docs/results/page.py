"""Every number of `PAGES` in docs/ that is not of an earlier run, from the tables here.

    python docs/results/page.py            # prints these tables and more
    python docs/results/page.py --write    # puts them into the pages, and draws docs/images/photographs.svg
    python docs/results/page.py --papers results/papers.csv    # keeps what was tested of it, for `snakemake papers`

studies/README.md says how each table was made. The unit of replication is the backbone; two arms are compared over
pairs of one pretraining seed, or of one base seed.
"""

import re
import sys
from pathlib import Path

import atlases
import emergence
import few_images
import halves
import matplotlib.pyplot as plt
import mixed
import pandas as pd
import skip
import stops
import undone
import weights
from atlases import added, relations, six_arms, tree
from neighbours import bordered, epochs, masked
from photographs import (
    by_hardness,
    by_steps,
    by_transfer,
    differences,
    hardness,
    learnt,
    predicted,
    steps,
    transfers,
)
from shifts import backgrounds, distilled
from tables import (
    BASELINE,
    arms,
    backbones,
    compared,
    inside,
    lines,
    predictions,
    predictions_of,
    ranged,
    read,
    shown,
    signed,
)

import claims
from granularity.look.papers.claims import COMMITTED, committed
from granularity.stages.gather import predictions as gathered

HERE = Path(__file__).parent
PAGES = (
    "../README.md",
    "results.md",
    "studies.md",
    "atlas.md",
    "findings/fixed.md",
    "findings/contamination_undone.md",
    "findings/skip_scale.md",
    "theory/feature_emergence.md",
    "findings/weights_of_levels.md",
)
EARLIER = 45  # comparisons with a baseline of the same budget in the reports of earlier runs


def means(errors: pd.DataFrame) -> str:
    rows = [[arm, f"{one.mean():.2f} ({one.std():.2f})", str(one.count())] for arm, one in errors.items()]
    return lines(["pretrained on", "error", "backbones"], rows)


def primary() -> pd.DataFrame:
    errors = arms("digits", "train-900")
    return compared({against: (errors["manual-digit"], errors[against]) for against in (BASELINE, "regrouped-3")})


def digits() -> str:
    errors, found = arms("digits", "train-900"), primary()
    rows = [[row["arm"], row["against"], shown(row), str(int(row["pairs"]))] for _, row in found.iterrows()]
    return means(errors) + "\n\n" + lines(["arm", "against", "difference", "backbones"], rows)


def stability() -> str:
    table = read("digits/stability")
    rows = []
    for (arm, against), one in table.groupby(["space", "other"], sort=False):
        difference = f"{signed(one['difference'].mean())} ({one['difference'].std():.2f})"
        span = f"{signed(one['difference'].min())} to {signed(one['difference'].max())}"
        lower = f"{(one['standing'] == 'better').sum()} of {len(one)}"
        rows.append([arm, against, difference, span, lower])
    return lines(["arm", "against", "mean over base seeds", "least to greatest", "significantly lower"], rows)


HEADS: dict[str, str | tuple[str, ...]] = {  # a study of draws with merged heads, or where else errors are
    "digits, ten draws": "digits_merged",
    "CIFAR-10, six draws": "cifar10_merged",
    "CIFAR-10, 96 epochs, five draws": "cifar10_once_long",
    "plain network, 24 epochs, three draws": "cifar10_plain_merged",
    "plain network, 96 epochs, three draws": ("cifar10_plain_long", "train-10000", "twice", "once"),
}
SHOWN = {  # in the README
    "digits, 8 px: count the loops; ten draws": "digits, ten draws",
    "CIFAR-10, 16 px: animal or vehicle; 24 epochs, six draws": "CIFAR-10, six draws",
    "the same, 96 epochs, five draws": "CIFAR-10, 96 epochs, five draws",
}
NOT_RUN = "not run"
ERRORS = ("class, head", "class, finetuned", "class, one stage", "target, twice", "target, one stage")


def before(place: str | tuple[str, ...]) -> dict[str, pd.Series]:
    """Errors per draw, or per backbone of one draw, by `ERRORS`; one stage is as long as two."""
    if isinstance(place, str):
        table = read(place).query("stage in ('pretrain', 'finetune')")
        table["space"] = table["space"].mask(table["space"] != BASELINE, "class")
        found = table.groupby(["stage", "network", "space", "draw"])["value"].mean()
        two, one = ("twice", "once") if "once" in set(table["network"]) else ("resnet18", "resnet18_merged")
        places = [("pretrain", two, "class"), ("finetune", two, "class"), ("pretrain", one, "class")]
        places += [("finetune", two, BASELINE), ("pretrain", one, BASELINE)]
        there = {label: place for label, place in zip(ERRORS, places, strict=True) if place in found.index}
        return {label: found[place].rename(label) for label, place in there.items()}
    name, condition, transfer, once = place
    table = backbones(name).set_index("pretrain_seed")
    table = table[table["condition"] == condition]
    head, tuned = table[table["transfer"].isna()], table[table["transfer"] == transfer]
    errors = [one[one["space"] == "manual-class"] for one in (head, tuned)]
    errors += [tuned[tuned["space"] == BASELINE], head[(head["space"] == BASELINE) & (head["network"] == once)]]
    labels = [label for label in ERRORS if label != "class, one stage"]
    return {label: one["error"].rename(label) for label, one in zip(labels, errors, strict=True)}


def gap(errors: dict[str, pd.Series], one: str, other: str) -> str:
    """A difference with its uncorrected interval."""
    return shown(compared({"": (errors[one], errors[other])}).iloc[0]) if one in errors else NOT_RUN


def merged() -> str:
    """The class's head, read as the target, beside the finetuned network and the target."""
    rows = []
    for name, place in HEADS.items():
        errors = before(place)
        means = [f"{errors[label].mean():.2f}" if label in errors else NOT_RUN for label in ERRORS]
        head, tuned, one, twice, _ = ERRORS
        rows.append([name, *means, gap(errors, tuned, head), gap(errors, one, tuned), gap(errors, head, twice)])
    gaps = ["finetuned minus head", "one stage minus finetuned", "head minus twice"]
    return lines(["", *ERRORS, *gaps], rows)


def one_result() -> str:
    """The README's table."""
    rows = []
    for name, key in SHOWN.items():
        errors = before(HEADS[key])
        means = [f"{errors[label].mean():.2f}" if label in errors else NOT_RUN for label in ERRORS]
        _, tuned, _, twice, _ = ERRORS
        rows.append([name, *means, gap(errors, tuned, twice)])
    names = ["class head", "class, finetuned", "class, one stage", "task only, twice", "task only, one stage"]
    names += ["finetuned minus twice"]
    return lines(["data, task", *names], rows)


def studied(name: str) -> pd.DataFrame:
    """The predicted comparisons of a study of draws: means over draws, with intervals corrected for all of them."""
    found = gathered.judged(gathered.read(predictions_of(name)), read(name), ["resnet18"])
    return found.drop(columns=["low", "high"]).rename(columns={"lower": "low", "upper": "high"}).set_index("id")


def of_draws(name: str, by: str = "") -> str:
    """The predictions of a study of draws, beside what came out. `by`: heads their names, in place of arms."""
    said, rows = predictions(name), []
    for key, row in studied(name).iterrows():
        cells = [key] if by else [row["arm"], row["against"]]
        rows.append([*cells, ranged(said[key]), shown(row), inside(row["difference"], said[key])])
    return lines([*([by] if by else ["arm", "against"]), "predicted", "came out", "it lies"], rows)


RESULTS = {"digits": "digits", "cifar10-budget": "CIFAR-10", "tiny-imagenet-tree": "Tiny ImageNet"}
RESULTS |= {"tiny-imagenet-weights": "more arms"}


def verdicts() -> str:
    """The committed verdicts on claims of Hong et al. about images; a dash where not tested."""
    groups = [group for group in committed() if group.paper == "granularity" and group.results in RESULTS]
    found = {
        (claim.id, group.results): f"{claim.verdict}, in part" if claim.in_part else claim.verdict
        for group in groups
        for claim in group.claims
        if claim.verdict != "not tested"
    }
    ids = sorted({id for id, _ in found}, key=lambda id: int(id.removeprefix("V")))
    rows = [[id, *(found.get((id, name), "–") for name in RESULTS)] for id in ids]
    return lines(["claim", *RESULTS.values()], rows)


LABELS = {"manual-half": 2, BASELINE: 2, "manual-quarter": 4, "manual-class": 10}
LABELS |= {"kmeans-class-50": 500, "random-superclass-250": 500}


def featured(name: str, said: str) -> str:
    """Means over draws of what a study of four arms measured, and how closely the probe orders their errors."""
    table, rows = read(name), []
    which = {"error": table["stage"] == "finetune", "linear probe of the kind": table["key"] == "kind/linear"}
    which |= {"effective rank": table["key"] == "effective_rank"}
    found = {name: table[one].groupby(["draw", "space"])["value"].mean().unstack() for name, one in which.items()}
    for space in (space for space in LABELS if space in found["error"]):
        means = [f"{one[space].mean():.2f} ({one[space].std():.2f})" for one in found.values()]
        rows.append([space, str(LABELS[space]), *means])
    error, probe, _ = found.values()
    ranks = error.corrwith(probe, axis=1, method="spearman").mean()
    words = f"The probe orders the errors of the four with a rank correlation of {ranks:.2f} (predicted: {said})."
    return lines(["pretrained on", "labels", *found], rows) + f"\n\n{words}"


def together() -> str:
    """How many of each table's comparisons remain significant when corrected for all, earlier runs included."""
    asked = {"digits": primary()} | {f"one stage, {name}": studied(HEADS[name]) for name in list(HEADS)[:2]}
    asked |= {"one stage, CIFAR-10, 96 epochs, five draws": studied("cifar10_merged_long")}
    asked |= {"the same, target in one stage": studied("cifar10_once_long")}
    asked |= {"equal budgets": differences("cifar10_budget")}
    asked |= {"meaning": differences("cifar10_meaning"), "hardness": by_hardness()[1]}
    asked |= {"images and steps": by_steps(), "96 epochs": differences("cifar10_long")}
    asked |= {
        "plain network": differences("cifar10_plain"),
        "plain network, 96 epochs": differences("cifar10_plain_long"),
        "plain network, one stage": studied("cifar10_plain_merged"),
    }
    asked |= {
        "finer than the class": differences("cifar10_tree"),
        "finer than the class, four times as long": studied("cifar10_tree_long"),
        "transfers": by_transfer(),
        "tree": studied("tiny_imagenet_tree"),
        "tree, 80 epochs": studied("tiny_imagenet_tree_long"),
        "tree, twice the images": studied("tiny_imagenet_levels"),
        "tree, 32 px": studied("tiny_imagenet_32px"),
        "tree, arms left out": studied("tiny_imagenet_tree_rest"),
        "tree, images or steps": stops.by_images(),
        "tree, claims": studied("tiny_imagenet_claims"),
        "labels across the task": studied("cifar10_pairings"),
        "steps of each stage": studied("cifar10_steps_between"),
        "hardness, judges of both kinds": mixed.errors()[1],
    }
    number = EARLIER + sum(len(found) for found in asked.values())
    rows = []
    for name, found in asked.items():
        kept = found[found["p"] * number < 0.05]
        rest = found[(found["p"] * number >= 0.05) & ((found["low"] > 0) | (found["high"] < 0))]
        rows.append([name, f"{len(kept)} of {len(found)}", "; ".join(rest.index)])
    return lines([f"corrected for all {number}", "significant", "significant only within its table"], rows)


def picked() -> str:
    """Gains of label spaces over halves of the classes, and the regret of rules that pick one, beside what was said."""
    said, rows = predictions("cifar10_halves"), []
    for kind, table in (("gain", halves.gains()), ("regret", halves.regrets())):
        for name, values in table.items():
            low, high = halves.bootstrap(values)
            told = said[kind].get(name)
            ahead, came = (ranged(told), inside(values.mean(), told)) if told else ("", "")
            rows.append([f"{kind}, {name}", ahead, f"{signed(values.mean())} [{signed(low)}, {signed(high)}]", came])
    return lines(["", "predicted", "came out", "it lies"], rows)


BLOCKS = {
    "digits": digits,
    "stability": stability,
    "one result": one_result,
    "heads": merged,
    "merged digits": lambda: of_draws("digits_merged"),
    "merged photographs": lambda: of_draws("cifar10_merged"),
    "merged long": lambda: of_draws("cifar10_merged_long"),
    "merged plain": lambda: of_draws("cifar10_plain_merged", by="plain network"),
    "once long": lambda: of_draws("cifar10_once_long"),
    "budget": lambda: predicted("cifar10_budget"),
    "meaning means": learnt,
    "meaning": lambda: predicted("cifar10_meaning"),
    "crossed means": lambda: featured("cifar10_pairings", "0.2 to 0.9"),
    "crossed": lambda: of_draws("cifar10_pairings"),
    "hardness": hardness,
    "hardness mixed": mixed.hardness,
    "steps": steps,
    "steps between": lambda: of_draws("cifar10_steps_between", by="steps of pretraining and finetuning"),
    "long": lambda: predicted("cifar10_long"),
    "plain": lambda: predicted("cifar10_plain"),
    "plain long": lambda: predicted("cifar10_plain_long"),
    "finer": lambda: predicted("cifar10_tree"),
    "finer long": lambda: of_draws("cifar10_tree_long"),
    "finer long means": lambda: featured("cifar10_tree_long", "0.2 to 0.95"),
    "tree levels": stops.levels,
    "tree predicted": lambda: of_draws("tiny_imagenet_tree", by="labels"),
    "tree shapes": stops.shapes,
    "tree claims": lambda: of_draws("tiny_imagenet_claims", by="labels"),
    "tree more": stops.more,
    "verdicts": verdicts,
    "tree doubled": lambda: stops.means("tiny_imagenet_levels"),
    "tree images": lambda: of_draws("tiny_imagenet_levels", by="labels"),
    "tree pixels": lambda: stops.means("tiny_imagenet_32px"),
    "tree pixels predicted": lambda: of_draws("tiny_imagenet_32px", by="labels"),
    "tree steps": stops.images,
    "tree rest": lambda: of_draws("tiny_imagenet_tree_rest", by="arms"),
    "tree long": lambda: of_draws("tiny_imagenet_tree_long"),
    "transfers": transfers,
    "together": together,
    "collapse epochs": epochs,
    "students by width": emergence.widths,
    "masked": masked,
    "bordered": bordered,
    "distilled": distilled,
    "backgrounds": backgrounds,
    "tree atlas": tree,
    "relations": relations,
    "added arms": added,
    "six arms": six_arms,
    "halves": picked,
    "few": few_images.few,
    "best": few_images.best,
    "best slopes": few_images.slopes,
    "skip answer": skip.answer,
    "skip measured": skip.measured,
    "skip predicted": skip.predicted,
    "weights answer": weights.answer,
    "weights laws": weights.laws,
    "weights tree": weights.tree,
    "undone answer": undone.answer,
    "undone risks": undone.risks,
    "undone photographs answer": undone.photographs_answer,
    "undone photographs": undone.photographs,
    "undone photographs predicted": undone.photographs_predicted,
    "undone trained answer": undone.trained_answer,
    "undone trained": undone.trained,
    "undone trained predicted": undone.trained_predicted,
}


def drawing() -> None:
    """docs/images/atlas.svg; and photographs.svg: each arm's difference from the target, the class's by hardness."""
    panels = {
        "24 epochs in all, 8 backbones": differences("cifar10_budget"),
        "labels redrawn, 6 draws": differences("cifar10_meaning"),
        "the class, by hardness of image": by_hardness()[1],
    }
    plt.rcParams.update({"svg.hashsalt": "photographs", "font.size": 9})
    figure, axes = plt.subplots(1, len(panels) + 1, figsize=(13, 2.6), layout="constrained")
    tree = differences("cifar10_tree").query("against == @BASELINE")
    axes[-1].axhline(0, color="grey", linewidth=0.8)
    for color, name in enumerate(("the class, and its clusters", "random labels")):
        own = tree[tree["arm"].str.startswith("random") == bool(color)]
        around = [own["difference"] - own["low"], own["high"] - own["difference"]]
        axes[-1].errorbar(
            [10, 50, 100, 500], own["difference"], around, fmt="o-", color=f"C{color}", capsize=3, label=name
        )
    axes[-1].set(title="5,000 images, 5 draws", xlabel="labels", xscale="log", ylabel="minus the target's (points)")
    axes[-1].legend(frameon=False, fontsize=8, loc="lower center")
    axes[-1].set_ylim(-2.2, 1.3)
    for axis, (title, found) in zip(axes[:-1], panels.items(), strict=True):
        found = found[found["against"] == BASELINE].iloc[::-1]
        names = found["arm"] if found["arm"].nunique() > 1 else found.index.to_series()
        around = [found["difference"] - found["low"], found["high"] - found["difference"]]
        axis.axvline(0, color="grey", linewidth=0.8)
        axis.errorbar(found["difference"], names, xerr=around, fmt="o", color="C0", capsize=3)
        axis.set(title=title, xlabel="error minus the target's (points)")
    figure.savefig(HERE.parent / "images/photographs.svg", metadata={"Date": None, "Creator": None})
    (HERE.parent / "images/atlas.svg").write_text(atlases.picture(), encoding="utf-8")


def headline() -> None:
    """docs/images/headline.svg: the class in one stage and in two, minus the target trained twice."""
    plt.rcParams.update({"svg.hashsalt": "headline", "font.size": 9})
    panels = {name: before(place) for name, place in list(HEADS.items())[:3]}
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained", sharex=True, sharey=True)
    labels = [label for label in ERRORS[::-1] if label != "target, twice"]
    for axis, (name, errors) in zip(axes, panels.items(), strict=True):
        twice = errors.pop("target, twice").rename(BASELINE)
        found = compared({arm: (one.rename(arm), twice) for arm, one in errors.items()})
        around = [found["difference"] - found["low"], found["high"] - found["difference"]]
        axis.axvline(0, color="grey", linewidth=0.8)
        places = [labels.index(arm) for arm in found.index]
        axis.errorbar(found["difference"], places, xerr=around, fmt="o", color="C0", capsize=3)
        axis.set(title=f"{name}\nbaseline {twice.mean():.1f} %", yticks=range(len(labels)), yticklabels=labels)
    figure.suptitle("Training on classes lowers the error of the coarse task; one stage beats finetuning")
    figure.supxlabel("error minus the baseline: the target, trained twice (points)", fontsize=9)
    figure.savefig(HERE.parent / "images/headline.svg", metadata={"Date": None, "Creator": None})


def page(name: str = PAGES[1]) -> str:
    """A page of docs/ with every block between `<!-- NAME -->` and `<!-- end -->` made again."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{BLOCKS[found[1]]()}\n<!-- end -->"

    return re.sub(
        r"<!-- ([a-z ]+) -->\n.*?<!-- end -->", made, (HERE.parent / name).read_text(encoding="utf-8"), flags=re.DOTALL
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        for name in PAGES:
            (HERE.parent / name).write_text(page(name), encoding="utf-8")
        drawing()
        headline()
        few_images.drawing()
        undone.drawing()
        emergence.drawing()
        skip.drawing()
        weights.drawing()
        stops.drawing()
    elif sys.argv[1:2] == ["--papers"]:
        rows = pd.read_csv(sys.argv[2], keep_default_na=False, dtype=str)
        tested = rows["measured"].ne("").groupby([rows["results"], rows["study"]]).transform("any")
        judged = claims.rows()[rows.columns]
        kept = rows[tested & ~rows["study"].isin(judged["study"])]
        pd.concat([kept, judged]).to_csv(COMMITTED, index=False, lineterminator="\n")
    else:
        for name, block in BLOCKS.items():
            print(f"{name}\n{block()}\n")
