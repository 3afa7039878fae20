"""A few random kills of the whole workflow while results are replaced; `python tests/kills.py` does a hundred."""

import pytest

from kills import replacing_under_fire
from support.stores import copied

pytestmark = pytest.mark.workflow


def test_kills_while_results_are_replaced_lose_none(tiny, tmp_path):
    fire = replacing_under_fire(copied(tiny, tmp_path), kills=4, patience=4)
    assert fire.kills.total() >= 3
