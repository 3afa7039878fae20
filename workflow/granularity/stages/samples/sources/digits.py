"""scikit-learn's bundled handwritten digits: 1,797 real 8x8 scans, available without a download.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998
(its test part). Ranks: `loops` (number of closed loops in the usual shape of the digit) and `digit`.
"""

from collections.abc import Iterator, Sequence

from granularity.stages.samples.options import Condition, Samples
from granularity.stages.samples.source import Source, pngs

EXPECTED_IMAGES = 1797
NEEDS_ROOT = False
RANKS = ["loops", "digit"]
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LOOPS = ("no closed loop", "one closed loop", "two closed loops")
LOOPS_OF_DIGIT = (1, 0, 0, 0, 1, 0, 1, 0, 2, 1)


def check(samples: Samples, conditions: Sequence[Condition]) -> Iterator[str]:
    """Complain about other ranks than the digits', and about sizes that exceed the number of images."""
    if samples.ranks != RANKS:
        yield f"ranks: the digits have exactly the ranks [{', '.join(RANKS)}]"
    held_out = samples.validation
    held_out = round(EXPECTED_IMAGES * held_out) if held_out < 1 else held_out
    for size in (condition.train_size for condition in conditions):
        if size != "all" and size + held_out > EXPECTED_IMAGES:
            limit = f"more than the {EXPECTED_IMAGES} digits"
            yield f"conditions: train_size {size} and {held_out} validation images are {limit}"


def read(params: Samples, threads: int = 1) -> Source:
    """Return all 1,797 images, without a split."""
    import numpy as np
    import pandas as pd
    from sklearn.datasets import load_digits

    digits = load_digits()  # images are float64 in 0..16
    frame = pd.DataFrame({"sample_id": [f"digits/{i:04d}" for i in range(len(digits.target))]})
    frame["loops"] = pd.Categorical.from_codes(np.take(LOOPS_OF_DIGIT, digits.target), LOOPS)
    frame["digit"] = pd.Categorical.from_codes(digits.target, DIGITS)
    return Source(frame, pngs((digits.images * (255 / 16)).round().astype("uint8")))
