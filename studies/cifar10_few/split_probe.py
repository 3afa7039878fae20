"""A linear probe that is fitted on one half of a split and tested on the other: images that no network was trained on.

Keys: `RANK/linear`, the error in percent. Halves are the same for all networks.
"""

from collections.abc import Iterator

from granularity.stages.measure.measures import probe

EXTENDS = "measure"
Options = probe.Probe


def measure(view, options: Options, seed: int) -> Iterator[tuple[str, str, float]]:
    import torch

    for split in view.splits:
        features = view.features(split)
        order = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))
        fitted, tested = order.tensor_split(2)
        labels = [torch.from_numpy(view.labels(split, rank)) for rank in view.ranks]
        classes = [len(view.classes(rank)) for rank in view.ranks]
        given = features[fitted], [one[fitted] for one in labels], [features[tested]]
        found = probe.linear_probes(*given, classes, options.l2, seed, view.data.device)
        for rank, truth, ((said,), _) in zip(view.ranks, labels, found, strict=True):
            yield split, f"{rank}/linear", 100 * float((said != truth[tested]).double().mean())
