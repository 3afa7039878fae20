"""One CPU thread: the problems are small, and results are the same bytes for one number of threads."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    import torch

    torch.set_num_threads(1)
