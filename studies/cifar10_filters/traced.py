"""Filters of the networks of studies/cifar10_filters/study.yaml over their training, for docs/neighbours.md:

    python studies/cifar10_filters/traced.py results/cifar10-filters/draw-* > studies/cifar10_filters/results.csv

For each network and layer, at each kept EPOCH: `to_plus`, `to_minus`, `between` of the two clusters of the last epoch,
traced back (measure `filters`); `moved`, the median over filters of their way since the kept epoch before, and
`moved_in_all`, since the first, over their first length. Under epoch 0, the six cosines of measure `early_gradients` of
the filter that is nearest to the centre of the cluster `plus` at the end.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from granularity.look.api import of_kinds
from granularity.stages.measure.measures.filters import centre, cosines, nearest

LAYERS = ("hidden", *(f"layer{stage}.0.conv2" for stage in (1, 2, 3, 4)))
PAIRS = ("v1, v", "v2, v", "v3, v", "v1, v2", "v1, v3", "v2, v3")


def traced(folder: Path):
    """Rows (network, layer, epoch, key, value) of one folder of results."""
    measured = [one for _, one in of_kinds(folder, "measure")]
    for _, made in of_kinds(folder, "pretrain"):
        runs, kept = made.table("runs.parquet"), made.table("checkpoints.parquet").sort_values("epoch")
        for row in runs.itertuples():
            files = kept[kept["run_id"] == row.run_id].set_index("epoch")["file"]
            weights = {epoch: made.tensors(file) for epoch, file in files.items()}
            for layer in LAYERS:
                if f"{layer}.weight" in weights[files.index[-1]]:
                    found = {
                        epoch: one[f"{layer}.weight"].double().flatten(1).numpy() for epoch, one in weights.items()
                    }
                    array = f"arrays/{Path(row.backbone).stem}@0/val/{layer}/cosines.npy"
                    early = next((one.array(array) for one in measured if array in one.manifest["files"]), None)
                    yield from ((row.network, layer, *one) for one in followed(found, early))


def followed(filters: dict[int, np.ndarray], early: np.ndarray | None):
    """Rows (epoch, key, value) of one layer, from its filters [m, d] by epoch and the cosines [m, 6] of each."""
    epochs = sorted(filters)
    lengths = {epoch: np.linalg.norm(filters[epoch], axis=1) for epoch in epochs}
    units = {epoch: filters[epoch] / lengths[epoch][:, None] for epoch in epochs}
    sides = nearest(units[epochs[-1]])
    for epoch, before in zip(epochs, [epochs[0], *epochs], strict=False):
        yield from ((epoch, key, value) for key, value in cosines(units[epoch], sides).items())
        for key, since in (("moved", before), ("moved_in_all", epochs[0])):
            way = np.linalg.norm(filters[epoch] - filters[since], axis=1)
            yield epoch, key, np.median(way / lengths[epochs[0]])
    if early is not None:
        green = (units[epochs[-1]] @ centre(units[epochs[-1]][sides[0]])).argmax()
        yield from zip([0] * len(PAIRS), PAIRS, early[green], strict=True)


if __name__ == "__main__":
    rows = [(folder[-1], *row) for folder in sorted(sys.argv[1:]) for row in traced(Path(folder))]
    table = pd.DataFrame(rows, columns=["draw", "network", "layer", "epoch", "key", "value"])
    table.to_csv(sys.stdout, index=False, float_format="%.6g", lineterminator="\n")
