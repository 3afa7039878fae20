"""One Slurm for the session, on this machine; without one these tests are skipped, and say why."""

import importlib.util

import pytest
from slurm_cluster import Cluster, why_not


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    reason = why_not()
    if reason is None and importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
        reason = "no snakemake-executor-plugin-slurm (pip install -e '.[slurm]')"
    if reason is not None:
        pytest.skip(reason)
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
