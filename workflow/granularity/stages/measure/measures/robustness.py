"""Errors on shifted test images of a linear probe that was fitted to unshifted training images.

`RANK/SHIFT`: the error in percent of the probe of a rank (as in :mod:`.probe`) on a split under a shift; `RANK/none`:
without one. Shifts: a border of an eighth of the side (`red`, brick red as in Zhang et al. 2024, Figs. 6 (c) and 13;
`inverted`, its complement; `mean`, the training images' mean colour); `grey`, the mean of channels; `noise`, normal
with a tenth of the brightness range, the same for every network; `blur`, the mean of 3 x 3 pixels.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from granularity.base.section import ONCE, Section
from granularity.base.seeds import seed_of
from granularity.stages.measure.measures.probe import Probe, linear_probes

TAKES_EMBEDDINGS = False
Shift = Literal["red", "inverted", "mean", "grey", "noise", "blur"]
RED = (150, 50, 50)  # brick red, out of 255
BORDER, NOISE = 8, 0.1


class Options(Section):
    shifts: Annotated[list[Shift], ONCE] = Field(
        ["red", "inverted", "mean", "grey", "noise", "blur"], min_length=1, description="Shifts of the test images."
    )
    l2: list[Annotated[float, Field(gt=0)]] = Field(
        Probe().l2, min_length=1, description="L2 penalties of the linear probe, as in `probe`."
    )


def measure(view, options: Options, seed: int) -> Iterator[tuple[str, str, float]]:
    import torch

    from granularity.learning.training.evaluation import percent_wrong

    mean, std = (torch.tensor(values, dtype=torch.float32)[:, None, None] for values in view.data.moments)

    def features(images: torch.Tensor) -> torch.Tensor:
        return view.network.forward_head(view.network.forward_features(images), pre_logits=True)

    def seen(split: str, shift: Shift) -> torch.Tensor:
        noise = torch.Generator().manual_seed(seed_of(seed, "robustness"))

        def forward(images: torch.Tensor) -> torch.Tensor:
            pixels = shifted(images.cpu() * std + mean, shift, mean, noise)
            return features(((pixels - mean) / std).to(images.device))

        return view.predict(split, forward)

    names = ["none", *options.shifts]
    tests = [view.features(split) if name == "none" else seen(split, name) for split in view.splits for name in names]
    labels = [torch.from_numpy(view.labels("train", rank)) for rank in view.ranks]
    classes = [len(view.classes(rank)) for rank in view.ranks]
    arguments = labels, tests, classes, options.l2, seed_of(seed, "probe"), view.data.device
    for rank, (predicted, _) in zip(view.ranks, linear_probes(view.features("train"), *arguments), strict=True):
        for i, split in enumerate(view.splits):
            truth = view.labels(split, rank)
            for name, values in zip(names, predicted[i * len(names) :], strict=False):
                yield split, f"{rank}/{name}", percent_wrong(values.numpy(), truth)


def shifted(images, shift: Shift, mean, noise):
    """Shift images with values from 0 to 1, float32 [B, C, H, W] on the CPU; `mean` is the mean colour, [C, 1, 1]."""
    import torch
    import torch.nn.functional as F

    if shift == "grey":
        return images.mean(1, keepdim=True).expand_as(images)
    if shift == "noise":
        return (images + NOISE * torch.randn(images.shape, generator=noise)).clamp(0, 1)
    if shift == "blur":
        return F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    red = (
        torch.tensor(RED).div(255)[:, None, None]
        if images.shape[1] == len(RED)
        else torch.full_like(mean, RED[0] / 255)
    )
    colour = {"red": red, "inverted": 1 - red, "mean": mean}[shift]
    width = max(1, images.shape[-1] // BORDER)
    inside = torch.zeros(images.shape[-2:], dtype=torch.bool)
    inside[width:-width, width:-width] = True
    return torch.where(inside, images, colour)
