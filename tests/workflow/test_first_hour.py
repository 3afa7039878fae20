"""What a new user meets in the first hour: checks before the first job, costs, and an interrupt from the keyboard."""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from support import photographs, tiny_chain
from support.checkout import until

pytestmark = pytest.mark.workflow

PHOTOS = {"source": "folder", "root": "photos", "ranks": ["kind"], "target": "kind", "validation": 0.25}
SPACES = {"manual": [], "random": [5]}


def check(checkout, **values) -> str:
    """What `granularity config check` prints for the smallest chain with other values."""
    file = Path(tiny_chain.configure(checkout, **values)[1])
    return checkout.run("granularity", "config", "check", "-f", file, code=None)


def test_commands_work_outside_a_checkout(checkout, tmp_path):
    there = ("env", "-C", tmp_path, "granularity", "config")
    assert yaml.safe_load(checkout.run(*there, "default"))["name"] == "digits"
    (tmp_path / "outer.yaml").write_text(json.dumps({"mine": 1, "granularity": tiny_chain.TINY | {"name": "inner"}}))
    assert "inner: results/inner\n" in checkout.run(*there, "check", "-f", "outer.yaml")


def test_an_empty_file_is_refused_and_a_home_is_found(checkout, monkeypatch):
    checkout.path("empty.yaml").write_text("# nothing\n")
    said = checkout.run("granularity", "config", "check", "-f", "empty.yaml", code=1)
    assert said == "error: empty.yaml: is empty; write what differs from the default, at least a name\n"
    checkout.snakemake("-n", "--configfile", "empty.yaml", code=1)
    monkeypatch.setitem(checkout.environment, "HOME", str(checkout.folder))
    photographs.folder_of(checkout.path("photos"), 8)
    assert "train-60: " in check(checkout, samples=PHOTOS | {"root": "~/photos"}, label_spaces=SPACES)


def test_an_empty_folder_stops_the_plan(checkout):
    checkout.path("photos").mkdir()
    line = "samples.root: the folder 'photos' is empty"
    assert line in check(checkout, samples=PHOTOS, label_spaces=SPACES)
    assert line in tiny_chain.snakemake(checkout, "-n", code=1)


def test_a_papers_configuration_says_what_it_would_make_before_its_images_are_there(checkout):
    said = checkout.run("granularity", "config", "check", "-f", "config/examples/inat2021_resnet34.yaml", code=1)
    places = [said.index(part) for part in (": 34 label spaces", " trainings ", "there is no folder")]
    assert places == sorted(places)


def test_operations_are_known_once_images_are_counted(checkout):
    photographs.folder_of(checkout.path("photos"), 80)
    rest = {"samples": PHOTOS, "conditions": [{"train_size": "all"}], "name": "counted", "label_spaces": SPACES}
    row = next(line for line in check(checkout, **rest).splitlines() if line.startswith("train-all  resnet"))
    assert row.split()[-2:] == ["-", "-"]
    said = tiny_chain.snakemake(checkout, "samples", "-n")
    assert said.rstrip().endswith("What this costs on this machine, by stage: granularity config check -f tiny.yaml")
    tiny_chain.snakemake(checkout, "samples")
    row = next(line for line in check(checkout, **rest).splitlines() if line.startswith("train-all  resnet"))
    assert 1e6 < float(row.split()[-4]) < 1e12 and row.split()[-3] == "about"


def test_a_broken_image_is_named_with_all_others_and_what_to_set(checkout):
    root = photographs.folder_of(checkout.path("photos"), 80)
    broken = sorted(root.rglob("*.png"))[::30]
    for file in broken:
        file.write_bytes(file.read_bytes()[:60])
    tiny_chain.configure(checkout, samples=PHOTOS, name="broken", label_spaces=SPACES)
    said = tiny_chain.snakemake(checkout, "pixels", code=1)
    log = checkout.path("results/broken/logs/train-60/pixels.log").read_text()
    for file in broken:
        assert str(file.relative_to(checkout.folder)) in log and file.name in said
    assert log.count("samples.check_images to skip") == len(broken) == 3
    assert said.rstrip().splitlines()[-1].startswith("results/broken/train-60/pixels: ")  # what is wrong stands last


def test_an_interrupt_ends_in_one_plain_line_and_the_same_command_goes_on(checkout):
    tiny_chain.configure(checkout, name="stopped", seeds={"base": 7, "pretrain": 1, "finetune": 1})  # all is to be made
    driver = checkout.start("snakemake", "--configfile", "tiny.yaml")
    until(checkout.path("results/stopped/logs").exists, driver)
    os.killpg(driver.pid, signal.SIGINT)
    said = driver.communicate(timeout=120)[0]
    assert driver.returncode and "granularity status --watch -f tiny.yaml" in said
    last = "Stopped on request; the errors above say only that. The same command continues from here."
    assert said.strip().splitlines()[-1] == last
    tiny_chain.snakemake(checkout, "samples")
