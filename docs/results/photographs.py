"""Tables of docs/results.md about photographs."""

import numpy as np
import pandas as pd
from tables import BASELINE, HERE, SCORED, arms, backbones, compared, lines, predictions, scored, signed

from granularity.claims.statistics import holm

IMAGES = {"cifar10_tree": "train-5000"}


def learnt() -> str:
    """Loss on the pretraining labels at the end of pretraining, and the error after finetuning, per arm."""
    loss = pd.read_csv(HERE / "cifar10_meaning_loss.csv").groupby("space", sort=False)["train_loss"]
    errors = arms("cifar10_meaning", "train-10000")
    rows = [
        [arm, f"{one.mean():.2f} ({one.std():.2f})", f"{errors[arm].mean():.2f} ({errors[arm].std():.2f})"]
        for arm, one in loss
    ]
    return lines(["pretrained on", "training loss of pretraining (nats)", "error"], rows)


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
