"""Table 1 of Pan, Zhou and Yan 2022 on images (docs/studies.md): finetuned from mask reconstruction, or from scratch.

Networks of the objective `mask` are compared, by pretraining seed, with networks of their architecture that were
pretrained only on the target's labels; if there are several, with the one with the lowest mean error.
"""

from collections.abc import Iterator

from granularity.claims import preregistered, published
from granularity.claims.claim import Claim, unmet
from granularity.stages.verdicts.arms import BASELINE, Frame, Tables, corrected

READS = ("pretrain/runs.parquet", "pretrain/history.parquet", "finetune/runs.parquet", "finetune/history.parquet")
COLUMNS = ("condition", "run_id", "parent", "network", "architecture", "family", "transfer", "head_alone")
COLUMNS += ("from_epoch", "epoch", "val_error")
PUBLISHED = ("mask_reconstruction",)
WORDS = preregistered.words("mask_reconstruction_images")
SINGLE = -1.0  # points, in place of the spread in a table that gives no number of runs


def judge(tables: Tables) -> list[Claim]:
    return corrected(_judged(tables))


def _judged(tables: Tables) -> Iterator[Claim]:
    pretrained, tuned = (_with_epochs(tables, stage) for stage in ("pretrain", "finetune"))
    columns = ["condition", "run_id", "epochs", "architecture"]
    parents = pretrained[columns].add_prefix("parent_").drop_duplicates("parent_run_id")
    tuned = tuned[(tuned["family"] == "mask") & ~tuned["head_alone"].astype(bool) & tuned["from_epoch"].isna()]
    tuned = tuned.merge(parents, left_on="parent", right_on="parent_run_id")
    tuned = tuned[tuned["condition"] == tuned["parent_condition"]]
    for id in WORDS if tuned.empty else ():
        yield _claim(id, "no such networks", [], "no network of the objective mask was finetuned")
    for (condition, network, transfer), part in tuned.groupby(["condition", "network", "transfer"], sort=False):
        run, errors = part.iloc[0], part.groupby("pretrain_seed")["val_error"].mean()
        scratch = pretrained[(pretrained["condition"] == condition) & (pretrained["space"] == BASELINE)]
        scratch = scratch[scratch["architecture"] == run["parent_architecture"]]
        for id, epochs in (("M1", run["epochs"]), ("M2", run["epochs"] + run["parent_epochs"])):
            baselines = scratch[scratch["epochs"] == epochs].groupby(["network", "pretrain_seed"])["val_error"].mean()
            means = baselines.groupby("network").mean()
            none = unmet((len(means) > 0, f"no network from scratch for {epochs} epochs"))
            values = [] if none else (errors - baselines[means.idxmin()].astype(float)).dropna().tolist()
            yield _claim(id, f"{condition}, {network}, {transfer}", values, none)


def printed() -> Claim:
    """Return M1 for the paper's table."""
    mask, labels = (published.number(*PUBLISHED, table="T1", arm=arm) for arm in ("mask reconstruction", "supervised"))
    single = {"judged": "mean", "high": SINGLE, "reason": "no number of runs given: a margin stands for the spread"}
    return _claim("M1", "T1", [labels - mask], "", **single)


def _claim(id: str, where: str, values: list[float], untested: str, **more: object) -> Claim:
    words = WORDS[id] | {"quantity": f"{where}: {WORDS[id]['quantity']}"} | more
    return Claim(id, values=values, untested=untested, **words)


def _with_epochs(tables: Tables, stage: str) -> Frame:
    """Return the runs of a stage, with their numbers of epochs."""
    epochs = tables[f"{stage}/history.parquet"].groupby("run_id")["epoch"].max()
    runs = tables[f"{stage}/runs.parquet"]
    return runs.assign(epochs=runs["run_id"].map(epochs), val_error=runs["val_error"].astype("Float64"))
