"""Tables of docs/results.md about photographs."""

import numpy as np
import pandas as pd
from scipy import optimize, stats
from tables import BASELINE, SCORED, arms, backbones, compared, lines, outcomes, predictions, read, scored, signed

IMAGES = {"cifar10_tree": "train-5000"}
ALIKE = (1, 0.98)  # correlations of the difficulties, where all images gain alike


def learnt() -> str:
    """Loss on the pretraining labels at the end of pretraining, and the error after finetuning, per arm."""
    loss = read("cifar10_meaning/loss").groupby("space", sort=False)["train_loss"]
    errors = arms("cifar10_meaning", "train-10000")
    rows = [
        [arm, f"{one.mean():.2f} ({one.std():.2f})", f"{errors[arm].mean():.2f} ({errors[arm].std():.2f})"]
        for arm, one in loss
    ]
    return lines(["pretrained on", "training loss of pretraining (nats)", "error"], rows)


def differences(name: str) -> pd.DataFrame:
    """The comparisons that were predicted of an experiment on CIFAR-10."""
    said, errors = predictions(name), arms(name, IMAGES.get(name, "train-10000"))
    return compared({key: (errors[one["arm"]], errors[one["against"]]) for key, one in said.items()})


def predicted(name: str) -> str:
    return outcomes(
        ["arm", "against"], differences(name), predictions(name), lambda key, row: [*row[["arm", "against"]]]
    )


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
    targets = [
        float("nan") if "cell" in said else pairs[key][1].mean() for key, said in predictions("cifar10_steps").items()
    ]
    return compared(pairs).assign(target=targets)


def steps() -> str:
    said, heads = predictions("cifar10_steps"), ["class against target", "error, target"]
    return outcomes(heads, by_steps(), said, lambda key, row: [key, f"{row['target']:.2f}".replace("nan", "")])


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
    return compared(pairs).assign(odds=odds, error=[pairs[key][1].mean() for key in pairs])


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
    table = read("cifar10_hardness").set_index(["hardness", "space", "pretrain_seed"])
    errors, bins = 100 * table["wrong"] / table["images"], list(predictions("cifar10_hardness"))
    pairs = {key: tuple(errors[key][one].rename(one) for one in ("manual-class", BASELINE)) for key in bins}
    return table, compared(pairs).assign(target=[pairs[key][1].mean() for key in bins])


def alike(images: list[int], saved: float, correlation: float) -> list[float]:
    """Differences in points per bin of hardness, if the class made all images easier by one amount.

    A network is wrong with probability Phi(a + b z), z a normal difficulty; a and b are fitted to the bins of the
    twelve judges. The baseline has the judges' difficulties, the class's correlate with them; its a saves `saved`.
    """
    z, judges = np.linspace(-8, 8, 4001), 12
    density = stats.norm.pdf(z) / stats.norm.pdf(z).sum()

    def bins(a: float, b: float) -> np.ndarray:
        chance = stats.binom.cdf(
            np.array([[0], [4], [8], [12]]), judges, stats.norm.cdf(a + b * z).clip(1e-12, 1 - 1e-12)
        )
        return np.diff(chance, axis=0, prepend=0)

    found = optimize.minimize(lambda at: -images @ np.log(bins(*at) @ density), [-5, 4], method="Nelder-Mead")
    a, b = found.x
    wide = np.sqrt(1 + b**2 * (1 - correlation**2))
    before = stats.norm.cdf(a + b * z)
    level = optimize.brentq(
        lambda at: (before - stats.norm.cdf((at + b * correlation * z) / wide)) @ density - saved, -15, 0
    )
    change = stats.norm.cdf((level + b * correlation * z) / wide) - before
    return [100 * change @ (one * density) / (one @ density) for one in bins(a, b)]


def hardness() -> str:
    said, (table, found) = predictions("cifar10_hardness"), by_hardness()
    total = table["wrong"].unstack("space").groupby("hardness").sum()
    gained = total[BASELINE] - total["manual-class"]
    images = table["images"].groupby("hardness").first()
    counted, saved = images[list(found.index)].to_numpy(), gained.sum() / table["images"].groupby("space").sum().iloc[0]
    null = [alike(counted, saved, correlation) for correlation in ALIKE]
    rows = []
    for number, (key, row) in enumerate(found.iterrows()):
        shares = [
            f"{images[key]:,}",
            f"{row['target']:.1f}",
            f"{100 * gained[key] / gained.sum():.0f} %".replace("-", "−"),
        ]
        rows.append([key, *shares, *scored(row, said[key]), *(signed(one[number]) for one in null)])
    words = [f"alike, r = {correlation:g}" for correlation in ALIKE]
    return lines(["wrong", "images", "error, target", "share of the gain", *SCORED, *words], rows)
