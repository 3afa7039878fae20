"""What is compared with one baseline."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pandas as pd

from granularity.stages.report.conditions import BASELINE, ConditionResults, Space
from granularity.stages.report.series import series_of


@dataclass(frozen=True)
class Panel:
    """The arms that are compared with one baseline: networks of a condition, finetuned in one way.

    Attributes:
        network: the network whose runs on the target labels are the baseline; it is among `networks`.
        networks: all that are compared with it.
        runs: their finetunings.
    """

    condition: ConditionResults
    transfer: str
    network: str
    networks: list[str]
    runs: pd.DataFrame
    label: str

    @property
    def other_data(self) -> bool:
        """Whether finetuning is on other images than pretraining, whose error is then none of the target."""
        return bool(self.runs["other_data"].any())

    def errors(self) -> pd.DataFrame:
        """Validation errors in percent, each backbone's mean: a row per network and label space, a column per seed.

        Label spaces that part the images alike are one arm: each has the mean over them all, seed by seed.
        """
        table = self.runs.groupby(["network", "space", "pretrain_seed"], sort=False)["val_error"].mean().unstack()
        networks, spaces = zip(*table.index, strict=True)
        return table.groupby([list(networks), [*map(self.alike, spaces)]]).transform("mean")

    def one_pass(self) -> pd.Series | None:
        """Errors of the baseline's backbones before they are finetuned, by pretraining seed."""
        runs = self.condition.pretrain
        runs = runs[(runs["network"] == self.network) & (runs["space"] == BASELINE)]
        return None if self.other_data or runs.empty else runs.set_index("pretrain_seed")["val_error"]

    def granularity(self, space: str) -> int | None:
        size = self.runs.loc[self.runs["space"] == space, "granularity"].iloc[0]
        return None if pd.isna(size) else int(size)

    def series(self, space: str) -> str:
        return series_of(self.spaces[space])

    def refines_target(self, space: str) -> bool:
        return self.condition.properties[space]["refines_target"]

    def alike(self, space: str) -> str:
        """The first label space that parts the images alike; what has no labels is like nothing else."""
        return self.condition.alike.get(space, space)

    @functools.cached_property
    def spaces(self) -> dict[str, Space]:
        """The label spaces that its networks were pretrained on, or what stands in the place of one."""
        families = dict(zip(self.runs["space"], self.runs["family"], strict=True))
        known = {space.name: space for space in self.condition.spaces}
        return {name: known.get(name, Space(name, family)) for name, family in families.items()}


def panels(conditions: list[ConditionResults]) -> list[Panel]:
    """Every baseline with what is compared with it.

    A network that is not pretrained on the target labels, as with an objective that takes none, is compared with the
    first one of the same architecture that is, with the same recipe if there is one.
    """
    networks = list(dict.fromkeys(name for one in conditions for name in one.models))
    transfers = list(dict.fromkeys(name for one in conditions for name in one.finetune["transfer"]))
    found = []
    for condition in conditions:
        for transfer, runs in condition.finetune.groupby("transfer", sort=False):
            members: dict[str, list[str]] = {}
            for network in (name for name in condition.models if name in set(runs["network"])):
                members.setdefault(_lender(condition, network, runs), []).append(network)
            for network, held in members.items():
                more = [network] if len(networks) > 1 else []
                more += [transfer] if len(transfers) > 1 else []
                label = ", ".join([condition.label, *more])
                found.append(Panel(condition, transfer, network, held, runs[runs["network"].isin(held)], label))
    return found


def _lender(condition: ConditionResults, network: str, runs: pd.DataFrame) -> str:
    with_baseline = list(dict.fromkeys(runs.loc[runs["space"] == BASELINE, "network"]))
    if network in with_baseline:
        return network
    wanted = condition.models[network]
    same = [one for one in with_baseline if condition.models[one]["model"] == wanted["model"]]
    return next((one for one in same if condition.models[one] == wanted), same[0] if same else network)
