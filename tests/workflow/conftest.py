"""What the tests of whole commands share."""

import contextlib

import pytest


@pytest.fixture(scope="module")
def chain(tiny_results):
    folder, made = tiny_results
    with contextlib.chdir(folder):
        yield made
