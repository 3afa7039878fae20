"""What a release says of itself in several places, and the locks and recipes that install it."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_TORCH = {"torch", "torchvision"}  # which the CPU build brings
LOCKS = {"cpu": ("cpu", "slurm", "crate"), "gpu": ("gpu", "slurm", "crate")}
LOCKS |= {"dev": ("cpu", "slurm", "crate", "dev", "docs")}


def pins(file: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_one_version_everywhere():
    version, citation = PROJECT["version"], yaml.safe_load((ROOT / "CITATION.cff").read_text())
    first = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first[1] == citation["version"] == version and first[2] == str(citation["date-released"])
    assert f"Version {version}" in (ROOT / "README.md").read_text()
    assert json.loads((ROOT / ".zenodo.json").read_text())["title"] == citation["title"]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_the_pins_with_hashes_of_all_that_its_extras_need(name):
    locked, known = pins(f"envs/locks/{name}.txt"), pins("envs/constraints.txt")
    assert {one: known.get(one) for one in locked} == locked
    asked = PROJECT["dependencies"] + [one for extra in LOCKS[name] for one in PROJECT["optional-dependencies"][extra]]
    needed = {canonicalize_name(Requirement(one).name) for one in asked}
    assert needed - locked.keys() == (set() if name == "gpu" else OF_TORCH)
    blocks = re.split(r"^(?=[\w.-]+==)", (ROOT / f"envs/locks/{name}.txt").read_text(), flags=re.MULTILINE)[1:]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    assert (name == "gpu") == any(one.startswith("nvidia-") for one in locked)


def test_both_recipes_of_an_image_hold_what_the_package_and_its_workflow_are():
    needed = {"pyproject.toml", "README.md", "LICENSE", "Snakefile", "config", "envs", "profiles", "rules"}
    needed |= {"workflow"}
    docker = re.findall(r"^COPY (.+) \S+$", (ROOT / "envs/Dockerfile").read_text(), re.MULTILINE)
    assert {one for line in docker for one in line.split()} == needed
    apptainer = re.findall(
        r"^ +(\S+) /opt/granularity/(\S+)$", (ROOT / "envs/granularity.def").read_text(), re.MULTILINE
    )
    assert {source for source, _ in apptainer} == needed and all(source == to for source, to in apptainer)
    assert all((ROOT / one).exists() for one in needed)
