"""scikit-learn's bundled handwritten digits: 1,797 real 8x8 scans, at hand without a download.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998
(its test part). Ranks: `loops` (number of closed loops in the usual shape of the digit) and `digit`.
"""

from __future__ import annotations

import io

import numpy as np
import pandas as pd

from granularity.config.options import Samples
from granularity.stages.samples.source import Source

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LOOPS = ("no closed loop", "one closed loop", "two closed loops")
LOOPS_OF_DIGIT = (1, 0, 0, 0, 1, 0, 1, 0, 2, 1)


def read(params: Samples, threads: int = 1) -> Source:
    """All 1,797 images, without a split."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    pngs = []
    for image in digits.images:  # float64 in 0..16
        stream = io.BytesIO()
        Image.fromarray((image * (255 / 16)).round().astype("uint8")).save(stream, "PNG")
        pngs.append(stream.getvalue())
    frame = pd.DataFrame(
        {
            "sample_id": [f"digits/{i:04d}" for i in range(len(pngs))],
            "loops": pd.Categorical.from_codes(np.take(LOOPS_OF_DIGIT, digits.target), LOOPS),
            "digit": pd.Categorical.from_codes(digits.target, DIGITS),
        }
    )
    return Source(frame, pngs)
