"""A finished chain that the tests of the store may harm, if they undo it."""

import contextlib
from pathlib import Path

import pytest

from granularity.stages import STAGES
from support import tiny_chain
from support.damage import problems


@pytest.fixture(scope="module")
def chain(tiny_results):
    """The steps of a finished chain, in the working directory of these tests."""
    folder, made = tiny_results
    with tiny_chain.tiny_world(), contextlib.chdir(folder):
        assert problems(Path("results")) == []
        assert {step.kind for step in made} == {n for n, one in STAGES.items() if not one.of_study}
        yield made
        assert problems(Path("results")) == []
