"""What the store promises to those who use Snakemake: nothing is lost, and going back costs nothing.

Most tests begin with a copy of one finished run of the smallest chain.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from safetensors import SafetensorError, safe_open

from granularity.look import inspection
from granularity.store import place
from granularity.store.artifact import Artifact
from support import tiny_chain
from support.checkout import COLD, Checkout, until, wait
from support.stores import copied, leftovers, made_in, stamps_in
from support.tiny_chain import snakemake

pytestmark = pytest.mark.workflow

CHAIN = "results/tiny/train-60"
RECIPE = tiny_chain.TINY["pretrain"]
NOTHING = "Nothing to be done"
NOBODY = 65534


def start(checkout, *words, **environment):
    return checkout.start("snakemake", *words, "--configfile", "tiny.yaml", **environment)


def state(checkout):
    """Results of jobs with their digests and the times of their folders; names with what they lead to, and stamps."""
    results = checkout.path("results")
    made = {key: (digest, (results / ".store" / key).stat().st_ctime_ns) for key, digest in made_in(results).items()}
    return made, stamps_in(results), {str(name): os.readlink(name) for name in place.find(results)}


def finish(driver, code=0):
    output, ended = wait(driver, 1200)
    assert ended and driver.returncode == code, output[-3000:]
    return output


# ---------------------------------------------------------------- several at work


@pytest.mark.parametrize("saved", [True, False])
def test_work_that_a_published_result_left_behind_is_tidied_up(chain, saved):
    """A job died just after it had published, or noted what its work is for just after another one had tidied up."""
    step = next(step for step in chain if step.kind == "samples")
    key = Artifact.open(step.folder).manifest["key"]
    work = place.work_folder(Path("results/.store"), "samples", key)
    place.open_work(work, step.folder)
    if saved:
        (work / "state").touch()
    else:
        work.rmdir()
    assert leftovers(Path("results"))
    step.run()
    assert leftovers(Path("results")) == []


def side_by_side(folder: Path, expected: dict[str, str], offset: float, *words: str) -> None:
    """Two drivers of the smallest chain, one some seconds after the other, from two checkouts with one `results`.

    Both succeed, every result has the digest of a run alone, and no generation vanishes once it is there.
    """
    results, seen = folder / "shared", {}
    results.mkdir(parents=True)
    drivers, began = [], time.monotonic()
    for name in ("first", "second"):
        (folder / name).mkdir()
        checkout = Checkout(folder / name)
        tiny_chain.configure(checkout)
        checkout.path("results").symlink_to(results)
        while drivers and time.monotonic() < began + offset:
            time.sleep(0.05)
        with checkout.path("driver.log").open("w") as log:
            where = {"cwd": checkout.folder, "env": checkout.environment, "start_new_session": True}
            drivers.append(
                (checkout, subprocess.Popen(["snakemake", "--nolock", *words], stdout=log, stderr=log, **where))
            )
    while any(driver.poll() is None for _, driver in drivers):
        there = {path: path.stat().st_ino for path in results.glob(".store/[!.]*/*")}
        assert seen.items() <= there.items(), f"vanished or replaced: {sorted(seen.items() - there.items())}"
        seen = there
        time.sleep(0.05)
    for checkout, driver in drivers:
        assert driver.returncode == 0, checkout.path("driver.log").read_text()[-3000:]
        assert stamps_in(checkout.path("results"))
        assert "Nothing to be done" in checkout.snakemake("-n", "--nolock", *words)
    assert made_in(results) == expected and leftovers(results) == [], leftovers(results)


def test_two_drivers_on_one_folder_both_succeed(tiny, tmp_path):
    before = ("samples", "encoder", "embed", "cluster", "hierarchy")  # of which the last follows from the others
    made = made_in(tiny.path("results")).items()
    expected = {key: digest for key, digest in made if key.split("/")[0] in before}
    for offset in (0.8, 4.2):
        side_by_side(tmp_path / f"{offset}", expected, offset, "hierarchy", "--configfile", "tiny.yaml")


# ---------------------------------------------------------------- failing, and going back


def test_a_rerun_that_fails_leaves_everything_as_it_was(checkout):
    before = state(checkout)
    tiny_chain.configure(checkout, pretrain=RECIPE | {"lr": 1e30})
    output = snakemake(checkout, code=1)
    assert output.count("error: ") == 2 and "Error in rule make_pretrain" in output  # in its log, and at the end
    assert "error: " in output.rstrip().splitlines()[-1]
    made, _, links = state(checkout)
    assert (made, links) == (before[0], before[2]) and leftovers(checkout.path("results")) == []
    assert "make_pretrain" in snakemake(checkout, "-n")  # still to be done
    tiny_chain.configure(checkout)
    snakemake(checkout)
    assert state(checkout) == before and NOTHING in snakemake(checkout, "-n")


def first_step(work, since=0):
    """The step of the first training's checkpoint, if it was written after some time (nanoseconds)."""
    with contextlib.suppress(OSError, SafetensorError, ValueError):
        (file,) = work.glob("target-*.running")
        if file.stat().st_mtime_ns > since:
            with safe_open(file, "numpy") as saved:
                return json.loads(saved.metadata()["notes"])["step"]
    return 0


def test_going_back_computes_nothing_and_a_trial_leaves_half_trained_networks_alone(checkout):
    before = state(checkout)
    long = RECIPE | {"epochs": 100}  # 300 steps
    tiny_chain.configure(checkout, pretrain=long)
    driver = start(checkout, "pretrain", GRANULARITY_CHECKPOINT_SECONDS="0", PATH=COLD)  # its jobs are of its group
    works = checkout.path("results/.store/.work")
    work = until(lambda: next((one for one in works.glob("pretrain-*") if first_step(one) > 100), None), driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    kept = {file.name: file.read_bytes() for file in work.glob("[!.]*")}
    step = first_step(work)
    assert step > 100
    snakemake(checkout, "--unlock")
    assert state(checkout)[::2] == before[::2]

    tiny_chain.configure(checkout, pretrain=RECIPE | {"epochs": 3})  # the trial
    snakemake(checkout, "pretrain")
    tried, stamps, _ = state(checkout)
    assert before[0].items() < tried.items() and stamps != before[1]
    assert {file.name: file.read_bytes() for file in work.glob("[!.]*")} == kept

    tiny_chain.configure(checkout)  # back
    snakemake(checkout, "pretrain")
    assert state(checkout) == (tried, *before[1:])
    assert NOTHING in snakemake(checkout, "-n")

    tiny_chain.configure(checkout, pretrain=long)
    since = time.time_ns()
    driver = start(checkout, "pretrain", GRANULARITY_CHECKPOINT_SECONDS="0")
    assert until(lambda: first_step(work, since), driver) > step
    finish(driver)
    assert not work.exists() and NOTHING in snakemake(checkout, "-n", "pretrain")


# ---------------------------------------------------------------- what hands and accidents do


def test_touch_and_deleting_all_output(checkout):
    before = state(checkout)
    tiny_chain.configure(checkout, finetune=RECIPE | {"epochs": 2})
    assert "make_finetune" in snakemake(checkout, "-n")
    snakemake(checkout, "--touch")  # which accepts nothing: manifests decide
    assert "make_finetune" in snakemake(checkout, "-n") and state(checkout) == before
    outdated = [job for job in status(checkout)["jobs"] if job["state"] == "outdated"]
    assert {job["stage"] for job in outdated} == {"finetune", "report"}  # which has the configuration in it
    tiny_chain.configure(checkout)
    snakemake(checkout, "--touch")

    snakemake(checkout, "--delete-all-output")
    assert not list(checkout.path("results").rglob("*.stamp"))
    assert state(checkout)[0] == before[0]
    snakemake(checkout)
    assert state(checkout) == before
    assert NOTHING in snakemake(checkout, "-n")


def status(checkout):
    files = ["-f", "tiny.yaml"]
    return json.loads(checkout.run("granularity", "status", "--json", *files, code=None))


HARMS = {
    "no stamp": lambda name, stamp, other: stamp.unlink(),
    "an empty stamp": lambda name, stamp, other: stamp.write_text(""),
    "half a stamp": lambda name, stamp, other: stamp.write_text(stamp.read_text()[:20]),
    "a stamp of nothing": lambda name, stamp, other: stamp.write_text(stamp.read_text()[:-9] + "12345678\n"),
    "a stamp of something else": lambda name, stamp, other: shutil.copy(place.stamp_of(other), stamp),
    "no name": lambda name, stamp, other: name.unlink(),
    "a name that leads nowhere": lambda name, stamp, other: (name.unlink(), name.symlink_to("gone")),
    "a name of something else": lambda name, stamp, other: (name.unlink(), name.symlink_to(other.resolve())),
    "nothing": lambda name, stamp, other: (name.unlink(), stamp.unlink()),
    "no generation": lambda name, stamp, other: shutil.rmtree(name.resolve()),
}


def test_names_and_stamps_that_are_gone_or_wrong_are_mended(checkout):
    """Every result of the chain, each in another way; `granularity verify` names what is wrong."""
    before, computed = state(checkout), set()
    names = [checkout.path("results") / name for name in before[1] if not name.endswith(("/report", "/duplicates"))]
    assert len(names) == len(HARMS)
    for harm, name, other in zip(HARMS.values(), names, [*names[1:], names[0]], strict=True):
        computed |= {str(name.resolve().relative_to(checkout.path("results/.store").resolve()))}
        harm(name, place.stamp_of(name), other)
    (gone,) = computed - set(made_in(checkout.path("results")))
    named = {line.partition(": ")[0] for line in inspection.verify(checkout.path("results"))["problems"]}
    for harm, name in zip(HARMS, names, strict=True):
        wrong = {"no name": name, "a name that leads nowhere": name}.get(harm, place.stamp_of(name))
        assert str(wrong) in named or harm in ("no stamp", "nothing", "no generation"), (harm, named)
    assert NOTHING not in snakemake(checkout, "-n")
    snakemake(checkout)
    made, stamps, links = state(checkout)
    assert (stamps, links) == before[1:] and made.pop(gone)[0] == before[0].pop(gone)[0]
    assert made == before[0] and NOTHING in snakemake(checkout, "-n")


# ---------------------------------------------------------------- neighbours


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_neighbour_can_read_and_write_nothing(tiny):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folders are closed to others
    folder.chmod(0o755)

    def neighbour(command):
        return subprocess.run(["sh", "-c", command], cwd=folder, user=NOBODY, group=NOBODY, capture_output=True)

    try:
        made = copied(tiny, folder / "checkout")
        before = state(made)
        name = made.path(f"{CHAIN}/embed")
        store = made.path("results/.store")
        generation = name.resolve()
        assert neighbour(f"cat {name}/manifest.json {name}.stamp").returncode == 0
        for command in (
            f"echo x >> {generation}/embedding.npy",
            f"echo x > {generation}/more",
            f"rm -f {generation}/embedding.npy",
            f"chmod 666 {generation}/manifest.json",
            f"mv {generation} {generation}-gone",
            f"mkdir {store}/embed/0123",
            f"mkdir {store}/more",
            f"echo x > {name}.stamp",
            f"rm -f {name}.stamp",
            f"ln -sfn /tmp {name}",
            *(f"echo x > {store}/{part}/x" for part in (".locks", ".work", ".new")),
        ):
            assert neighbour(command).returncode != 0, command
        assert state(made) == before
    finally:
        shutil.rmtree(folder)
