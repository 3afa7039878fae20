"""A few random kills of the whole workflow; `python tests/kills.py` does a hundred."""

import pytest

from kills import under_fire
from support.tallies import tallies


@pytest.mark.workflow
def test_results_do_not_depend_on_who_was_killed_when(tmp_path):
    kills = under_fire(tmp_path, kills=4, patience=5, experiment="smoke")
    tallies["processes killed"].update(kills)
    assert kills.total() == 4
