"""A few random kills of the whole workflow; `python tests/kills.py` does a hundred."""

import pytest

from kills import replacing_under_fire, under_fire
from support import tiny_chain
from support.stores import copied

pytestmark = pytest.mark.workflow


def test_results_do_not_depend_on_who_was_killed_when(tiny, tmp_path):
    checkout = copied(tiny, tmp_path)
    fire = under_fire(checkout, kills=4, patience=5, what=tiny_chain.configure(checkout))
    assert fire.kills.total() == 4


def test_kills_while_results_are_replaced_lose_none(tiny, tmp_path):
    fire = replacing_under_fire(copied(tiny, tmp_path), kills=6, patience=4)
    assert fire.kills.total() >= 4
