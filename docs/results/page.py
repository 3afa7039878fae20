"""Every number of docs/results.md that is not of an earlier run, from the tables beside this script.

    python docs/results/page.py            # prints the page's tables
    python docs/results/page.py --write    # and puts them into the page
    python docs/results/page.py --papers results/papers.csv    # keeps what was tested of it, for `snakemake papers`

`NAME.csv` is `tables/backbones.csv` of the report of `config/experiments/NAME.yaml` (`digits`: the default run): validation
error in percent, one row per backbone; `NAME/SEED.csv` the same for base seeds with one backbone per arm.
`digits_stability.csv` is of `benchmarks/stability.py`. The unit of replication is the backbone; two arms are compared over
pairs of one pretraining seed, or of one base seed.
"""

import re
import sys
from pathlib import Path

import pandas as pd
import yaml

from granularity.claims.statistics import holm, interval, p_value, paired

HERE = Path(__file__).parent
PAGE, PREDICTIONS = HERE.parent / "results.md", HERE.parents[1] / "config" / "preregistrations"
BASELINE, ONCE = "target", "once"


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


def digits() -> str:
    errors = arms("digits", "train-900")
    found = compared({against: (errors["manual-digit"], errors[against]) for against in (BASELINE, "regrouped-3")})
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
    low, high = said["low"], said["high"]
    came = "below" if row["difference"] < low else "above" if row["difference"] > high else "inside"
    p = "< 0.001" if row["holm"] < 0.001 else f"{row['holm']:.3f}"
    return [f"{signed(low)} to {signed(high)}", shown(row), p, came]


SCORED = ["predicted", "came out", "Holm's p", "it lies"]


def predicted(name: str) -> str:
    said, errors = predictions(name), arms(name, "train-10000")
    found = compared({key: (errors[one["arm"]], errors[one["against"]]) for key, one in said.items()})
    found["holm"] = holm(found["p"])
    rows = [[row["arm"], row["against"], *scored(row, said[key])] for key, row in found.iterrows()]
    return lines(["arm", "against", *SCORED], rows)


def hardness() -> str:
    """Errors of the class and of the target by hardness of the image, and where the gain lies."""
    table = pd.read_csv(HERE / "cifar10_hardness.csv").set_index(["hardness", "space", "pretrain_seed"])
    errors, said = 100 * table["wrong"] / table["images"], predictions("cifar10_hardness")
    arms = {key: [errors[key][one].rename(one) for one in ("manual-class", BASELINE)] for key in said}
    found = compared({key: tuple(pair) for key, pair in arms.items()})
    found["holm"] = holm(found["p"])
    total = table["wrong"].unstack("space").groupby("hardness").sum()
    gained = total[BASELINE] - total["manual-class"]
    images = table["images"].groupby("hardness").first()
    rows = []
    for key, row in found.iterrows():
        shares = [f"{images[key]:,}", f"{arms[key][1].mean():.1f}", f"{100 * gained[key] / gained.sum():.0f} %"]
        rows.append([key, *shares, *scored(row, said[key])])
    return lines(["wrong", "images", "error, target", "share of the gain", *SCORED], rows)


def tuning() -> str:
    """Errors on held-out training images by rate, a row per arm; the least is bold."""
    table = pd.read_csv(HERE / "cifar10_budget_tuning.csv")
    once = table["network"].str.startswith(ONCE)
    table = table[once | table["transfer"].notna()]
    table = table.assign(arm=table["space"].mask(once, ONCE), rate=table["network"].str.extract(r"lr-(.*)", expand=False))
    grid = table.pivot_table(index="arm", columns="rate", values="error", sort=False)
    rows = [
        [arm, *(f"**{error:.2f}**" if error == row.min() else f"{error:.2f}" for error in row)]
        for arm, row in grid.iterrows()
    ]
    return lines(["pretrained on", *(f"rate {rate}" for rate in grid)], rows)


BLOCKS = {
    "digits": digits,
    "stability": stability,
    "tuning": tuning,
    "budget means": lambda: means(arms("cifar10_budget", "train-10000")),
    "budget": lambda: predicted("cifar10_budget"),
    "meaning": lambda: predicted("cifar10_meaning"),
    "hardness": hardness,
}


def page() -> str:
    """docs/results.md with every block between `<!-- NAME -->` and `<!-- end -->` made again."""

    def made(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{BLOCKS[found[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- ([a-z ]+) -->\n.*?<!-- end -->", made, PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    elif sys.argv[1:2] == ["--papers"]:
        rows = pd.read_csv(sys.argv[2], keep_default_na=False, dtype=str)
        tested = rows["measured"].ne("").groupby([rows["results"], rows["study"]]).transform("any")
        rows[tested].to_csv(HERE / "papers.csv", index=False, lineterminator="\n")
    else:
        for name, block in BLOCKS.items():
            print(f"{name}\n{block()}\n")
