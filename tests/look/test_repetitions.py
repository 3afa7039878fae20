"""How alike features of two networks are, against known answers and a second implementation."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from granularity.look.repetitions import IMAGES, alike, unbiased_hsic

RNG = np.random.default_rng(0)


def test_a_rotation_is_alike_and_random_features_are_not():
    features = RNG.normal(size=(300, 20)) * np.linspace(0.1, 1, 20)
    turned = 3 * features @ ortho_group.rvs(20, random_state=0) + 5
    for key, value in alike(features, turned).items():
        assert value == pytest.approx(1) if key != "knn" else 0.1 < value < 1  # cosines see the shift
    found = alike(features, RNG.normal(size=(300, 200)))
    assert abs(found["cka"]) < 0.05 and found["knn"] < 0.1


def test_hsic_is_its_definition_over_quadruples_and_has_no_bias():
    """Of five images: the mean of h(i, j, q, r) over all distinct quadruples (Song et al. 2012, section 3)."""
    from itertools import permutations

    first, second = (part @ part.T for part in (RNG.normal(size=(5, 3)), RNG.normal(size=(5, 4))))
    kernel = [
        first[i, j] * (second[i, j] + second[q, r] - 2 * second[i, q]) for i, j, q, r in permutations(range(5), 4)
    ]
    assert unbiased_hsic(first, second) == pytest.approx(np.mean(kernel))
    assert IMAGES > 1000  # the estimate needs many more images than dimensions to be narrow
