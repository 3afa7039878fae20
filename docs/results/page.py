"""Every number of the pages below that is not of an earlier run, from the tables here.

    python docs/results/page.py            # prints the page's tables
    python docs/results/page.py --write    # and puts them into the page, and draws docs/images/photographs.svg
    python docs/results/page.py --papers results/papers.csv    # keeps what was tested of it, for `snakemake papers`

`NAME.csv` is `tables/backbones.csv` of the report of `config/experiments/NAME.yaml` (`digits`: the default run):
validation error in percent, one row per backbone; `NAME/SEED.csv` the same for base seeds with one backbone per arm (of
`cifar10_steps`: `IMAGES-STEPS/SEED.csv`).
`cifar10_collapse.csv` has the claims (`checks.csv` of the study), `cifar10_collapse_measures.csv` all that was
measured. `cifar10_meaning_loss.csv` has `train_loss` of its pretraining's `runs.parquet`; `digits_stability.csv` is of
`benchmarks/stability.py`. The unit of replication is the backbone; two arms are compared over pairs of one pretraining
seed, or of one base seed.
"""

import re
import sys
from pathlib import Path

import halves
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import yaml

from granularity.claims.statistics import holm, interval, p_value, paired
from granularity.look import atlas as look

HERE = Path(__file__).parent
PAGES = ("results.md", "neighbours.md", "atlas.md", "label_spaces.md")
PREDICTIONS = HERE.parents[1] / "config" / "preregistrations"
BASELINE, ONCE = "target", "once"
EARLIER = 45  # comparisons with a baseline of the same budget in the reports of earlier runs


def backbones(name: str) -> pd.DataFrame:
    seeds = {file.stem: pd.read_csv(file) for file in sorted((HERE / name).glob("*.csv"))}
    if seeds:
        return pd.concat([one.assign(pretrain_seed=int(seed)) for seed, one in seeds.items()], ignore_index=True)
    return pd.read_csv(HERE / f"{name}.csv")


def arms(name: str, condition: str) -> pd.DataFrame:
    """Errors after finetuning, a row per pair and a column per arm; `once`: the target in one pass."""
    table = backbones(name).query("condition == @condition")
    once = (table["space"] == BASELINE) & table["transfer"].isna()
    if table["network"].str.startswith(ONCE).any():  # a network of its own, with the budget of both stages
        once &= table["network"].str.startswith(ONCE)
    kept = table[once | table["transfer"].notna()]
    return kept.assign(space=kept["space"].mask(once, ONCE)).pivot(
        index="pretrain_seed", columns="space", values="error"
    )


def compared(pairs: dict[str, tuple[pd.Series, pd.Series]]) -> pd.DataFrame:
    """Each pair's difference in points, its interval at 95 % corrected for their number (Bonferroni), and its p."""
    found = {}
    for name, (arm, against) in pairs.items():
        difference = paired(arm, against)
        low, high = interval(*difference, len(pairs))
        found[name] = {"arm": arm.name, "against": against.name, "difference": difference.difference}
        found[name] |= {"low": low, "high": high, "pairs": difference.pairs, "p": p_value(*difference)}
    return pd.DataFrame.from_dict(found, orient="index")


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def shown(row: pd.Series) -> str:
    mark = "**" if row["low"] > 0 or row["high"] < 0 else ""
    return f"{mark}{signed(row['difference'])}{mark} [{signed(row['low'])}, {signed(row['high'])}]"


def lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def means(errors: pd.DataFrame) -> str:
    rows = [[arm, f"{one.mean():.2f} ({one.std():.2f})", str(one.count())] for arm, one in errors.items()]
    return lines(["pretrained on", "error", "backbones"], rows)


def learnt() -> str:
    """Loss on the pretraining labels at the end of pretraining, and the error after finetuning, per arm."""
    loss = pd.read_csv(HERE / "cifar10_meaning_loss.csv").groupby("space", sort=False)["train_loss"]
    errors = arms("cifar10_meaning", "train-10000")
    rows = [
        [arm, f"{one.mean():.2f} ({one.std():.2f})", f"{errors[arm].mean():.2f} ({errors[arm].std():.2f})"]
        for arm, one in loss
    ]
    return lines(["pretrained on", "training loss of pretraining (nats)", "error"], rows)


def primary() -> pd.DataFrame:
    errors = arms("digits", "train-900")
    return compared({against: (errors["manual-digit"], errors[against]) for against in (BASELINE, "regrouped-3")})


def digits() -> str:
    errors, found = arms("digits", "train-900"), primary()
    rows = [[row["arm"], row["against"], shown(row), str(int(row["pairs"]))] for _, row in found.iterrows()]
    return means(errors) + "\n\n" + lines(["arm", "against", "difference", "backbones"], rows)


def stability() -> str:
    table = pd.read_csv(HERE / "digits_stability.csv")
    rows = []
    for (arm, against), one in table.groupby(["space", "other"], sort=False):
        difference = f"{signed(one['difference'].mean())} ({one['difference'].std():.2f})"
        span = f"{signed(one['difference'].min())} to {signed(one['difference'].max())}"
        lower = f"{(one['standing'] == 'better').sum()} of {len(one)}"
        rows.append([arm, against, difference, span, lower])
    return lines(["arm", "against", "mean over base seeds", "least to greatest", "significantly lower"], rows)


def predictions(name: str) -> dict[str, dict]:
    return yaml.safe_load((PREDICTIONS / f"{name}.yaml").read_text(encoding="utf-8"))["predictions"]


def scored(row: pd.Series, said: dict) -> list[str]:
    """A prediction, the difference that came out, and whether it lies inside, below or above the predicted range."""
    p = "< 0.001" if row["holm"] < 0.001 else f"{row['holm']:.3f}"
    return [f"{signed(said['low'])} to {signed(said['high'])}", shown(row), p, inside(row["difference"], said)]


def inside(value: float, said: dict) -> str:
    return "below" if value < said["low"] else "above" if value > said["high"] else "inside"


SCORED = ["predicted", "came out", "Holm's p", "it lies"]
IMAGES = {"cifar10_tree": "train-5000"}


def differences(name: str) -> pd.DataFrame:
    """The comparisons that were predicted of an experiment on CIFAR-10, with Holm's p."""
    said, errors = predictions(name), arms(name, IMAGES.get(name, "train-10000"))
    found = compared({key: (errors[one["arm"]], errors[one["against"]]) for key, one in said.items()})
    return found.assign(holm=holm(found["p"]))


def predicted(name: str) -> str:
    said, found = predictions(name), differences(name)
    rows = [[row["arm"], row["against"], *scored(row, said[key])] for key, row in found.iterrows()]
    return lines(["arm", "against", *SCORED], rows)


def gains(images: int, steps: int) -> tuple[pd.Series, pd.Series]:
    """Errors of the class and of the target at so many images and steps per stage, over base seeds."""
    known = (images, steps) == (10000, 1200)  # with the same seeds
    errors = arms("cifar10_meaning" if known else f"cifar10_steps/{images}-{steps}", f"train-{images}")
    return errors["manual-class"], errors[BASELINE]


def by_steps() -> pd.DataFrame:
    """The class's gain per cell of images and steps, and the differences of gains that were predicted."""
    pairs = {}
    for key, said in predictions("cifar10_steps").items():
        if "cell" in said:
            cells = (gains(*said[cell]) for cell in ("cell", "than"))
            pairs[key] = tuple((arm - target).rename(BASELINE) for arm, target in cells)
        else:
            pairs[key] = gains(said["images"], said["steps"])
    found = compared(pairs)
    targets = [
        float("nan") if "cell" in said else pairs[key][1].mean() for key, said in predictions("cifar10_steps").items()
    ]
    return found.assign(holm=holm(found["p"]), target=targets)


def steps() -> str:
    said, found = predictions("cifar10_steps"), by_steps()
    rows = [
        [key, "" if np.isnan(row["target"]) else f"{row['target']:.2f}", *scored(row, said[key])]
        for key, row in found.iterrows()
    ]
    return lines(["class against target", "error, target", *SCORED], rows)


TRANSFERS = {  # key of the predictions: the experiment, and the folder of its networks that see the other data alone
    "cifar10-to-tiny": ("cifar10_to_tiny", "transfer_scratch/tiny-imagenet"),
    "tiny-to-cifar10": ("tiny_to_cifar10", "transfer_scratch/cifar10"),
}


def transferred(name: str, scratch: str) -> pd.DataFrame:
    """Errors on the other data set, a row per base seed: of each arm, of it with a new head alone, and from scratch."""
    found = {}
    for transfer, part in backbones(name).dropna(subset="transfer").groupby("transfer"):
        for space, one in part.groupby("space"):
            arm = {"manual": "finer", "random": "random"}.get(space.partition("-")[0], space)
            found[f"{arm}{' head' * (transfer == 'head')}"] = one.set_index("pretrain_seed")["error"]
    alone = backbones(scratch)
    found |= dict(list(alone[alone["transfer"].isna()].set_index("pretrain_seed").groupby("network")["error"]))
    return pd.DataFrame(found)


def by_transfer() -> pd.DataFrame:
    """All comparisons after transfers that were predicted, in points and, as `odds`, in logarithms of odds."""
    pairs, odds, said = {}, {}, predictions("transfers")
    for direction, places in TRANSFERS.items():
        errors = transferred(*places)
        logits = np.log(errors / (100 - errors))
        for key, one in said[direction].items():
            pairs[direction, key] = errors[one["arm"]], errors[one["against"]]
            odds[direction, key] = (logits[one["arm"]] - logits[one["against"]]).mean()
    found = compared(pairs)
    return found.assign(holm=holm(found["p"]), odds=odds, error=[pairs[key][1].mean() for key in pairs])


def transfers() -> str:
    said, found = predictions("transfers"), by_transfer()
    rows = [
        [key, row["against"], f"{row['error']:.2f}", *scored(row, said[direction][key]), signed(row["odds"])]
        for (direction, key), row in found.iterrows()
    ]
    places = [
        {"cifar10-to-tiny": "Tiny ImageNet", "tiny-to-cifar10": "CIFAR-10"}[direction] for direction, _ in found.index
    ]
    rows = [[place, *row] for place, row in zip(places, rows, strict=True)]
    return lines(["on", "arm", "against", "its error", *SCORED, "log-odds"], rows)


def by_hardness() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Images and errors in number per backbone; errors of the class minus the target's, per hardness of the image."""
    table = pd.read_csv(HERE / "cifar10_hardness.csv").set_index(["hardness", "space", "pretrain_seed"])
    errors, bins = 100 * table["wrong"] / table["images"], list(predictions("cifar10_hardness"))
    pairs = {key: tuple(errors[key][one].rename(one) for one in ("manual-class", BASELINE)) for key in bins}
    found = compared(pairs)
    return table, found.assign(target=[pairs[key][1].mean() for key in bins], holm=holm(found["p"]))


def hardness() -> str:
    table, found = by_hardness()
    said = predictions("cifar10_hardness")
    total = table["wrong"].unstack("space").groupby("hardness").sum()
    gained = total[BASELINE] - total["manual-class"]
    images = table["images"].groupby("hardness").first()
    rows = []
    for key, row in found.iterrows():
        shares = [
            f"{images[key]:,}",
            f"{row['target']:.1f}",
            f"{100 * gained[key] / gained.sum():.0f} %".replace("-", "−"),
        ]
        rows.append([key, *shares, *scored(row, said[key])])
    return lines(["wrong", "images", "error, target", "share of the gain", *SCORED], rows)


def together() -> str:
    """How many of each table's comparisons remain significant when corrected for all, earlier runs included."""
    asked = {"digits": primary(), "equal budgets": differences("cifar10_budget")}
    asked |= {"meaning": differences("cifar10_meaning"), "hardness": by_hardness()[1]}
    asked |= {"images and steps": by_steps(), "four times as long": differences("cifar10_long")}
    asked |= {"plain network": differences("cifar10_plain")}
    asked |= {"finer than the class": differences("cifar10_tree"), "transfers": by_transfer()}
    number = EARLIER + sum(len(found) for found in asked.values())
    rows = []
    for name, found in asked.items():
        kept = found[found["p"] * number < 0.05]
        rest = found[(found["p"] * number >= 0.05) & ((found["low"] > 0) | (found["high"] < 0))]
        rows.append(
            [
                name,
                f"{len(kept)} of {len(found)}",
                ", ".join(f"{key} (p {row['p'] * number:.2f})" for key, row in rest.iterrows()),
            ]
        )
    return lines([f"corrected for all {number}", "significant", "significant only within its table"], rows)


def collapse() -> str:
    """The claims about collapse: what was predicted of each, what came out, and its verdict by its own band."""
    found, rows = pd.read_csv(HERE / "cifar10_collapse.csv").set_index("id"), []
    for id, said in predictions("cifar10_collapse").items():
        row = found.loc[id]
        quantity = row["quantity"].partition(": ")[2]
        came = inside(row["measured"], said)
        measured = f"{row['measured']:.2f} ({row['minimum']:.2f} to {row['maximum']:.2f})"
        rows.append([id, quantity, f"{said['low']} to {said['high']}", measured, came, row["band"], row["verdict"]])
    return lines(["claim", "quantity", "predicted", "mean (range over backbones)", "it lies", "band", "verdict"], rows)


def epochs() -> str:
    """Measures of the training images by epoch, mean over backbones, of networks on the pairs and on the classes."""
    table = pd.read_csv(HERE / "cifar10_collapse_measures.csv").query("split == 'train' and measure == 'collapse'")
    shown = {"pair/nc1": "NC1 of pairs", "pair/class/r1": "R1 of classes in pairs", "pair/class/r2": "R2"}
    shown |= {"class/nearest_mean": "error of the nearest class mean (%)"}
    grid = table.pivot_table(index=["space", "key"], columns="epoch", values="value", sort=False)
    rows = [
        [{"target": "pairs"}.get(space, "classes"), name, *(f"{value:.2f}" for value in grid.loc[space, key])]
        for space in grid.index.unique("space")
        for key, name in shown.items()
    ]
    return lines(["trained on", "measure", *(f"epoch {epoch}" for epoch in grid)], rows)


ATLAS = {  # rows, and what they are
    "class/linear": "linear probe of the class, error (%)",
    "group/linear": "of the group",
    "kind/linear": "of the kind, the target",
    "class/knn": "kNN probe of the class, error (%)",
    "class/nearest_mean": "nearest mean of the class, error (%)",
    "class/cdnv": "variance over distance (CDNV) of classes",
    "kind/cdnv": "CDNV of kinds",
    "kind/class/r1": "R1, classes within kinds",
    "class/nc1": "NC1 of classes",
    "kind/nc1": "NC1 of kinds",
    "effective_rank": "effective rank",
}
COLUMNS = ["target", "random-superclass-5", "regrouped-5", "kmeans-superclass-5", "manual-class", ONCE]


def measured() -> dict[str, pd.DataFrame]:
    """Of each measure of the atlas a row per backbone and a column per label space."""
    table = pd.read_csv(HERE / "cifar10_atlas.csv").query("split == 'val'")
    space = table["space"].mask(table["network"] == ONCE, ONCE).mask(table["epoch"] == 0, "untrained")
    table = table.assign(space=space).dropna(subset="epoch")  # of the encoder
    table = table.drop_duplicates(["key", "space", "pretrain_seed"])  # untrained ones are the same whatever the labels
    return {
        key: part.pivot(index="pretrain_seed", columns="space", values="value") for key, part in table.groupby("key")
    }


def from_target(table: pd.DataFrame, key: str, arm: str) -> tuple[pd.Series, pd.Series]:
    """An arm and the target on the scale on which they are compared: errors as they are, else logarithms."""
    errors = key.endswith(("linear", "knn", "nearest_mean"))
    values = table if errors else np.log(table)
    return values[arm], values[BASELINE]


def atlas() -> str:
    tables = measured()
    pairs = {(key, arm): from_target(tables[key], key, arm) for key in ATLAS for arm in COLUMNS[1:]}
    finetuned = arms("cifar10_budget", "train-10000")
    pairs |= {("error", arm): (finetuned[arm], finetuned[BASELINE]) for arm in COLUMNS[1:]}
    found, rows = compared(pairs), []
    for key, name in (ATLAS | {"error": "error after finetuning (%)"}).items():
        table = finetuned if key == "error" else tables[key]
        row = [name]
        for arm in ["untrained", *COLUMNS]:
            differs = (key, arm) in pairs and found.loc[(key, arm), "low"] * found.loc[(key, arm), "high"] > 0
            text = f"{table[arm].mean():.2f}" if arm in table else ""
            row.append(f"**{text}**" if differs else text)
        rows.append(row)
    return lines(["measure", "untrained", *COLUMNS], rows)


def atlas_predicted() -> str:
    said, tables = predictions("cifar10_atlas"), measured()
    pairs = {(key, arm): from_target(tables[key], key, arm) for key, of in said.items() for arm in of}
    found = compared(pairs)
    found["holm"] = holm(found["p"])
    rows = [[key, arm, *scored(found.loc[(key, arm)], said[key][arm])] for key, arm in pairs]
    return lines(["measure", "arm", *SCORED], rows)


TREE = [  # rows of the atlas of nine label spaces, in its order
    *(f"probe/{rank}/{probe}" for rank in ("class", "kind") for probe in ("linear", "knn")),
    *(f"collapse/{rank}/{what}" for rank in ("class", "kind") for what in ("cdnv", "nc1")),
    "collapse/effective_rank",
    *(f"transferability/kind/{score}" for score in ("logme", "h_score", "leep", "nce")),
    *(f"selectivity/{rank}/mean" for rank in ("class", "kind")),
]


def tree() -> str:
    """Means of measures by label space, bold where the difference from the target is significant."""
    made = look.differences(pd.read_csv(HERE / "cifar10_tree_atlas.csv"), [*TREE, look.ENDS])
    shown, stands = look.gridded(made["mean"]), look.gridded((made["low"] > 0) | (made["high"] < 0))
    arms = [look.UNTRAINED, *(arm for arm in shown if arm != look.UNTRAINED)]
    rows = [
        [
            key,
            *("" if np.isnan(one := shown.loc[key, arm]) else bold(f"{one:.2f}", stands.loc[key, arm]) for arm in arms),
        ]
        for key in shown.index
    ]
    return lines(["", *arms], rows)


def bold(text: str, whether: bool) -> str:
    return f"**{text}**" if whether == True else text  # noqa: E712 (it may be NaN)


def tree_relations() -> str:
    """Rank correlations over label spaces that were predicted; corrected for all rows of the atlas."""
    found = look.relations(pd.read_csv(HERE / "cifar10_tree_atlas.csv"), TREE).rename(columns={"p": "holm"})
    rows = [
        [key, other, *scored(found.loc[(key, other)], told)]
        for other, of in predictions("cifar10_tree_atlas").items()
        for key, told in of.items()
    ]
    return lines(["measure", "with", *SCORED], rows)


def of_seeds(name: str, **which: str | int) -> pd.Series:
    """One number of each base seed of an experiment, from the table that measured.py made of it."""
    table = pd.read_csv(HERE / f"{name}.csv")
    base = table["results"].str.rpartition("-")[2].astype(int)
    kept = np.logical_and.reduce(
        [table[column].isna() if one == "" else table[column] == one for column, one in which.items()]
    )
    return table[kept].groupby(base[kept])["value"].mean()


def masked() -> str:
    """Networks that were pretrained by masked images, beside others: errors, probes and maps."""

    def number(arm: str, measure: str) -> pd.Series:
        scratch = arm if arm.startswith("once") else "masked"
        if measure == "val_error":
            transfer = "" if arm.startswith("once") else "classes"
            return of_seeds("cifar10_mask", network=scratch, transfer=transfer, measure=measure)
        last = {"untrained": 0, "masked": 48, "once-16": 16}
        if measure == "probe":
            own = {"network": scratch, "measure": measure, "key": "class/linear", "epoch": last[arm]}
            return of_seeds("cifar10_mask", **own)
        own = {"network": scratch, "measure": "eigen_cam-centred", "key": measure}
        own |= {"transfer": "classes"} if arm == "finetuned" else {"transfer": "", "epoch": last[arm]}
        return of_seeds("cifar10_mask", **own)

    said, pairs = predictions("cifar10_mask"), {}
    for key, one in said.items():
        arms_ = [one[which].removeprefix("probe of ") for which in ("arm", "against")]
        measure = one.get("measure") or ("probe" if one["arm"].startswith("probe") else "val_error")
        pairs[key] = tuple(number(arm, measure).rename(arm) for arm in arms_)
    found = compared(pairs)
    found["holm"] = holm(found["p"])
    rows = [
        [key, said[key]["arm"], f"{pairs[key][0].mean():.2f}", f"{pairs[key][1].mean():.2f}", *scored(row, said[key])]
        for key, row in found.iterrows()
    ]
    return lines(["", "arm", "it has", "the other", *SCORED], rows)


LAYERS = {"FIRST": "layer1.0.act2", "LAST": "layer3.0.act2"}


def bordered() -> str:
    """What units prefer, and what a probe loses under other borders than those of training."""
    table = pd.read_csv(HERE / "cifar10_border.csv").dropna(subset="key")
    run = table["results"].str.extract(r"cifar10-border-?(.*?)-?(\d+)$")
    table = table.assign(under=run[0], seed=run[1].astype(int))

    def number(arm: str, key: str, split: str = "val", under: str = "") -> pd.Series:
        space, epoch = (BASELINE, 0) if arm == "untrained" else (arm, 8)
        which = {"under": under, "space": space, "epoch": epoch, "split": split, "key": key}
        own = table[np.logical_and.reduce([table[column] == one for column, one in which.items()])]
        return own.set_index("seed")["value"].rename(arm)

    def lost(arm: str, under: str, one: dict) -> pd.Series:
        after, before = (number(arm, "kind/linear", f"test-{one[which]}", under) for which in ("to", "from"))
        return (after - before).rename(arm)

    said, pairs = predictions("cifar10_border"), {}
    for name, one in said["units"].items():
        key, _, more = one["of"].partition(", ")
        for short, layer in LAYERS.items():
            key = key.replace(short, layer)
        against = number(one["arm"], key) if more else number(one["against"], key)
        pairs[name] = number(one["arm"], key, "test-inverted" if more else "val"), against
    for name, one in said["borders"].items():
        other = {"arm": one["arm"], "under": one["under"]} | one.get("minus", {})
        zero = lost(one["arm"], one["under"], one)
        pairs[name] = zero, lost(**other, one=one) if "minus" in one else 0 * zero
    found, told = compared(pairs), said["units"] | said["borders"]
    found["holm"] = holm(found["p"])
    return lines(["", "arm", *SCORED], [[key, row["arm"], *scored(row, told[key])] for key, row in found.iterrows()])


def picked() -> str:
    """Gains of label spaces over halves of the classes, and the regret of rules that pick one, beside what was said."""
    said, rows = predictions("cifar10_halves"), []
    for kind, table in (("gain", halves.gains()), ("regret", halves.regrets())):
        for name, values in table.items():
            low, high = halves.bootstrap(values)
            told = said[kind].get(name)
            ahead, came = "", ""
            if told:
                ahead = f"{signed(told['low'])} to {signed(told['high'])}"
                came = inside(values.mean(), told)
            rows.append([f"{kind}, {name}", ahead, f"{signed(values.mean())} [{signed(low)}, {signed(high)}]", came])
    return lines(["", "predicted", "came out", "it lies"], rows)


BLOCKS = {
    "digits": digits,
    "stability": stability,
    "budget": lambda: predicted("cifar10_budget"),
    "meaning means": learnt,
    "meaning": lambda: predicted("cifar10_meaning"),
    "hardness": hardness,
    "steps": steps,
    "long": lambda: predicted("cifar10_long"),
    "plain": lambda: predicted("cifar10_plain"),
    "finer": lambda: predicted("cifar10_tree"),
    "transfers": transfers,
    "together": together,
    "collapse": collapse,
    "collapse epochs": epochs,
    "atlas": atlas,
    "atlas predicted": atlas_predicted,
    "masked": masked,
    "bordered": bordered,
    "tree atlas": tree,
    "tree relations": tree_relations,
    "halves": picked,
}


def drawing() -> None:
    """docs/images/photographs.svg: each arm's difference from the target, and the class's by hardness of the image."""
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


def page(name: str = PAGES[0]) -> str:
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
    elif sys.argv[1:2] == ["--papers"]:
        rows = pd.read_csv(sys.argv[2], keep_default_na=False, dtype=str)
        tested = rows["measured"].ne("").groupby([rows["results"], rows["study"]]).transform("any")
        rows[tested].to_csv(HERE / "papers.csv", index=False, lineterminator="\n")
    else:
        for name, block in BLOCKS.items():
            print(f"{name}\n{block()}\n")
