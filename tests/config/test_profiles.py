"""What the page on profiles says of GPUs: the options that it gives to sbatch, by the plugin's own code."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from snakemake.resources import Resource
from snakemake_executor_plugin_slurm.partitions import parse_gpu_requirements
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra
from snakemake_interface_common.exceptions import WorkflowError

PAGE = (Path(__file__).parents[2] / "profiles/README.md").read_text()


class Asked(dict):
    __getattr__ = dict.get


def job(**asked: object) -> SimpleNamespace:
    """A job with resources as Snakemake reads them from a profile."""
    around = {"wildcards": {}, "input": [], "attempt": 1, "threads": 1, "rulename": "x", "async_run": None}
    made = {
        name: Resource.from_cli_expression(name, str(value)).evaluate(**around).value for name, value in asked.items()
    }
    return SimpleNamespace(resources=Asked(made))


@pytest.mark.parametrize(
    ("recipe", "options", "gpus"),
    [("gres", " --gres=gpu:1 ", 1), ("hyphen", " --signal=USR1@120 --gpus-per-node=a100-80gb:1", 0)],
)
def test_gpus_are_asked_for_as_the_page_says(recipe, options, gpus):
    text = re.search(rf"```yaml\n# {recipe}\n(.*?)```", PAGE, re.DOTALL)[1]
    for asked in yaml.safe_load(text)["set-resources"].values():
        made = job(**asked)
        validate_slurm_extra(made)
        assert f"{set_gres_string(made)} {made.resources.get('slurm_extra', '')}" == options
        assert parse_gpu_requirements(made)[0] == gpus  # of none the partition has to be named
        assert gpus or made.resources["slurm_partition"] == "gpu"


def test_the_plugin_refuses_what_the_page_says_that_it_refuses():
    for asked in ({"gpu": 1, "gpu_model": "a100-80gb"}, {"gres": "gpu:a100-80gb:1"}):
        with pytest.raises(WorkflowError, match="Invalid"):
            set_gres_string(job(**asked))
