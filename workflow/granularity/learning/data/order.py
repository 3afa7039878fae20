"""The order in which a training visits its images."""

import numpy as np
import torch

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of


class Batches:
    """Indices of the images of each step: a new seeded permutation per epoch, without its incomplete last batch."""

    def __init__(self, images: int, batch_size: int, seed: int):
        if batch_size > images:
            raise GranularityError(f"batch_size = {batch_size}: there are only {images} training images")
        self.images, self.batch_size, self.seed = images, batch_size, seed
        self.per_epoch = images // batch_size
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __call__(self, step: int) -> torch.Tensor:
        """Return the indices of a step, int64 [batch_size]."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            rng = np.random.default_rng(seed_of(self.seed, "order", epoch))
            self._epoch, self._order = epoch, rng.permutation(self.images)
        return torch.from_numpy(self._order[place * self.batch_size : (place + 1) * self.batch_size])
