"""Eigen-CAM: which part of an image the last feature map responds to, and how large that part is.

Source: Muhammad and Yeasin 2020. For an image's activations A [positions, D] with first right singular vector v, the
map is A v, with the sign of v chosen so that the mean activation is not negative. Over `images` of a split, evenly
spaced, with each map's positive part divided by its sum:

- `spread`: the mean exponential of the map's entropy over the number of positions; 1 for an even map;
- `regions`: the mean number of connected parts at half of the map's largest value or more;
- `maps`, an array float32 [images, H, W], the raw maps; `rows`, their images' rows in the sample table; `side` [1], of
  the images that the network sees, in pixels.

A map without a positive part counts as even, with one region.
"""

import numpy as np
from pydantic import Field

from granularity.base.errors import GranularityError
from granularity.base.section import Count, Section

TAKES_EMBEDDINGS = False


class Options(Section):
    images: Count = Field(200, description="Number of images per split, evenly spaced; all, if a split has fewer.")
    centred: bool = Field(
        False,
        description="Whether to subtract from A its mean over positions first, as the package pytorch-grad-cam does.",
    )


def measure(view, options: Options, seed: int):
    from scipy.ndimage import label

    from granularity.learning.training.evaluation import predict

    needs = f"eigen_cam needs a feature map of 2 x 2 positions or more; {view.about['run']} has"
    for split in view.splits:
        rows = view.rows(split)
        rows = rows[np.linspace(0, len(rows) - 1, min(options.images, len(rows))).astype(int)]
        activations = predict(view.network.forward_features, view.data, rows, view.augment, view.precision).numpy()
        if activations.ndim != 4 or activations.shape[1] != view.network.num_features or activations[0, 0].size < 4:
            raise GranularityError(f"{needs} activations of the shape {activations.shape[1:]}")
        if not np.isfinite(activations).all():
            raise GranularityError(f"{view.about['run']}: its activations are not finite; did its training diverge?")
        maps = eigen_cam(activations, options.centred)
        parts = shares(maps.reshape(len(maps), -1))
        regions = [label(part >= part.max() / 2)[1] for part in parts.reshape(maps.shape)]
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.nansum(parts * np.log(parts), axis=1)
        yield split, "spread", np.mean(np.exp(entropy)) / parts.shape[1]
        yield split, "regions", np.mean(regions)
        yield split, "maps", maps.astype(np.float32)
        yield split, "rows", rows
        yield split, "side", np.array([min(view.augment.crop or view.data.side, view.data.side)])


def eigen_cam(activations: np.ndarray, centred: bool) -> np.ndarray:
    """Return the maps [N, H, W] of activations [N, D, H, W]."""
    whole = activations.reshape(*activations.shape[:2], -1).transpose(0, 2, 1).astype(np.float64)
    mean = whole.mean(1, keepdims=True)
    about = whole - mean if centred else whole
    sizes, vectors = np.linalg.eigh(about @ about.transpose(0, 2, 1))  # over positions, which are fewer than features
    component = vectors[:, :, -1:].transpose(0, 2, 1) @ about  # v, scaled by the first singular value
    sign = np.where((component @ mean.transpose(0, 2, 1))[:, 0] < 0, -1, 1)
    maps = sign * vectors[:, :, -1] * np.sqrt(np.maximum(sizes[:, -1:], 0))
    return maps.reshape(len(maps), *activations.shape[2:])


def shares(maps: np.ndarray) -> np.ndarray:
    """Return the positive part of each map [N, positions] divided by its sum."""
    positive = np.maximum(maps, 0)
    total = positive.sum(1, keepdims=True)
    return np.divide(positive, total, out=np.full_like(maps, 1 / maps.shape[1]), where=total > 0)
