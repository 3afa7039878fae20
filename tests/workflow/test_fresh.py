"""What is made again follows from what lies there, and not from what Snakemake remembers; one name, one configuration.

Each test begins with a copy of one finished run of the smallest chain.
"""

import json
import os
import shutil
import signal

import pytest

from support import tiny_chain
from support.checkout import Checkout, until, wait
from support.stores import made_in, stamps_in
from support.tiny_chain import snakemake

pytestmark = pytest.mark.workflow

NOTHING = "Nothing to be done"
RECIPE = tiny_chain.TINY["pretrain"]
AFTER = ("pretrain", "finetune", "measure", "report")  # what a training decides
WITHOUT_A_PROFILE = ("--workflow-profile", "none", "--cores", "1")


def results(checkout):
    """Stamps by their names, and what is in the store."""
    return stamps_in(checkout.path("results")), made_in(checkout.path("results"))


def planned(output):
    """The rules of this workflow that a dry run names with numbers of jobs."""
    lines = (line.split() for line in output.splitlines())
    return {words[0] for words in lines if len(words) == 2 and words[0].startswith("make_") and words[1].isdigit()}


def another(folder, results):
    """Another checkout, which knows nothing of earlier runs; its files are as new as those of a clone."""
    folder.mkdir()
    made = Checkout(folder)
    results(made.path("results"))
    tiny_chain.configure(made)
    for path in made.path("config").rglob("*"):
        os.utime(path)
    return made


def test_times_that_lie_ahead_and_a_torn_manifest_stop_nothing(checkout):
    """As after a clock that was ahead: what follows from such a stamp is made, and counts as made."""
    before = results(checkout)
    chain = checkout.path("results/tiny/train-60")
    for stamp in (chain / "samples.stamp", chain / "embed.stamp"):
        os.utime(stamp, (2**32, 2**32))
    (manifest,) = (chain / "hierarchy").glob("kmeans-*/manifest.json")
    manifest.chmod(0o644)
    manifest.write_text(manifest.read_text()[:-9])
    assert "make_hierarchy" in planned(snakemake(checkout, "-n"))
    snakemake(checkout)
    assert results(checkout) == before and NOTHING in snakemake(checkout, "-n")


def edit(checkout):
    """Change code, and no bytes of results."""
    file = checkout.path("workflow/granularity/stages/samples/stage.py")
    file.write_text(file.read_text() + "\n\nEDITED = True\n")


def test_a_copy_of_results_is_held_against_what_is_asked_for_there(checkout, tmp_path):
    stamps, made = results(checkout)
    there = another(tmp_path / "there", lambda to: shutil.copytree(checkout.path("results"), to, symlinks=True))
    for one in (checkout, there):
        assert NOTHING in snakemake(one, "-n") and NOTHING in snakemake(one)
    tiny_chain.configure(there, pretrain=RECIPE | {"lr": 0.123})
    for words in ((), WITHOUT_A_PROFILE):
        assert planned(snakemake(there, "-n", *words)) == {f"make_{name}" for name in AFTER}
    snakemake(there, "pretrain", *WITHOUT_A_PROFILE)
    _, more = results(there)
    assert "pretrain" in {key.split("/")[0] for key in more.keys() - made.keys()}
    assert NOTHING in snakemake(there, "-n", "pretrain")
    tiny_chain.configure(there)
    snakemake(there)
    assert results(there)[1] == more and NOTHING in snakemake(there, "-n")
    assert {**results(there)[0], "tiny/report": ""} == {**stamps, "tiny/report": ""}
    assert NOTHING in snakemake(checkout, "-n")


def test_two_checkouts_on_one_folder_each_see_what_the_other_has_made(checkout, tmp_path):
    there = another(tmp_path / "there", lambda to: to.symlink_to(checkout.path("results")))
    tiny_chain.configure(there, pretrain=RECIPE | {"lr": 0.123})
    snakemake(there, "pretrain")
    assert NOTHING in snakemake(there, "-n", "pretrain")
    assert planned(snakemake(checkout, "-n")) == {f"make_{name}" for name in AFTER}
    snakemake(checkout)
    assert NOTHING in snakemake(checkout, "-n")
    assert planned(snakemake(there, "-n", "pretrain")) == {"make_pretrain"}


def test_what_is_made_again_alike_reruns_nothing_after_it(checkout):
    """After an edit of code that changes no bytes."""
    stamps, _ = results(checkout)
    edit(checkout)
    assert "make_samples" in planned(snakemake(checkout, "-n"))
    snakemake(checkout, "samples")
    assert results(checkout)[0] == stamps
    assert NOTHING in snakemake(checkout, "-n")


# ---------------------------------------------------------------- one name, one configuration


def test_a_second_configuration_of_a_name_or_other_code_waits_outside(checkout, tmp_path):
    there = another(tmp_path / "there", lambda to: to.symlink_to(checkout.path("results")))
    tiny_chain.configure(checkout, pretrain=RECIPE | {"epochs": 400})
    tiny_chain.configure(there, pretrain=RECIPE | {"epochs": 2})
    driver = checkout.start("snakemake", "pretrain", "--configfile", "tiny.yaml", GRANULARITY_CHECKPOINT_SECONDS="0")
    try:
        locks = checkout.path("results/.store/.locks")
        (lock,) = until(lambda: list(locks.glob("pretrain-*.json")), driver)
        job = json.loads(until(lock.read_text, driver))["pid"]
        said = snakemake(there, "pretrain", code=1)
        (line,) = [line for line in said.splitlines() if "another configuration of this name" in line]
        assert f"in {checkout.folder}" in line and "give this run another name" in line and "Traceback" not in said
        assert planned(snakemake(there, "-n", "pretrain")) == {"make_pretrain"}  # a dry run only looks
        shutil.copy(checkout.path("tiny.yaml"), there.path("tiny.yaml"))
        edit(there)
        assert "this name with other code is being made by process" in snakemake(there, "pretrain", code=1)
    finally:
        for process in (job, driver.pid):  # as Ctrl-C
            os.kill(process, signal.SIGINT)
        wait(driver, 300)
    tiny_chain.configure(there, pretrain=RECIPE | {"epochs": 2})
    snakemake(there, "pretrain")
    assert NOTHING in snakemake(there, "-n", "pretrain")


def test_jobs_of_another_package_than_the_drivers_stop(checkout, tmp_path):
    """As where the environment of another checkout is active: Snakemake itself takes the code beside the Snakefile."""
    there = another(tmp_path / "there", lambda to: shutil.copytree(checkout.path("results"), to, symlinks=True))
    there.environment["PYTHONPATH"] = str(checkout.path("workflow"))
    assert NOTHING in snakemake(there)  # the same code, elsewhere
    edit(there)
    before = results(there)
    said = snakemake(there, "samples", code=1)
    assert f"runs the code in {checkout.path('workflow/granularity')}, but snakemake planned with the code" in said
    assert results(there)[1] == before[1]
