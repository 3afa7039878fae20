"""A few random kills of the whole workflow; `python tests/kills.py` does a hundred."""

import pytest

from kills import test_under_fire as under_fire


@pytest.mark.workflow
def test_results_do_not_depend_on_who_was_killed_when(tmp_path):
    assert under_fire(tmp_path, kills=4, patience=5).total() == 4
