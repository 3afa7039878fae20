"""Processes that train together keep to themselves: where they listen, and who can enter the place where they meet."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from granularity.base.errors import GranularityError
from granularity.machine import launch
from support.checkout import Checkout
from support.sockets import listeners, processes_with

NOBODY = 65534
EXPERIMENT = {
    "name": "strangers",
    "device": "cpu",
    "conditions": [{"train_size": 60}],
    "seeds": {"pretrain": 1, "finetune": 1},
    "label_spaces": {
        "manual": [],
        "random": [5],
        "random_instance": False,
        "random_superclass": [],
        "kmeans": [],
        "kmeans_superclass": [],
        "rebalanced": {"thresholds": []},
    },
    "model": {"args": {"channels": [4, 4, 8, 8], "stem_width": 2}},
    "pretrain": {"batch_size": 20, "epochs": 10, "warmup_epochs": 0.5},
    "finetune": {"batch_size": 20, "epochs": 1, "warmup_epochs": 0.5},
    "jobs": {"pretrain": "condition", "processes": 2},
}


# ---------------------------------------------------------------- where they listen


def test_listeners_are_found():
    mark = str(uuid.uuid4())
    code = """
import socket, sys
sockets = []
for family, kind, address in [(2, 1, "127.0.0.1"), (2, 1, "0.0.0.0"), (10, 1, "::"), (10, 1, "::1"), (2, 2, "0.0.0.0")]:
    one = socket.socket(family, kind)
    sockets.append(one)
    if family == 10:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    one.bind((address, 0))
    if kind == 1:
        one.listen()
print(flush=True)
sys.stdin.read()
"""
    environment = os.environ | {"STRANGERS": mark}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=-1, stdout=-1) as process:
        process.stdout.readline()
        assert processes_with("STRANGERS", mark) == [process.pid]
        found = {(one.protocol, one.address, one.on_loopback) for one in listeners([process.pid])}
        process.stdin.close()
    inside = {("tcp", "127.0.0.1", True), ("tcp6", "::1", True)}
    assert found == inside | {("tcp", "0.0.0.0", False), ("tcp6", "::", False), ("udp", "0.0.0.0", False)}


@pytest.mark.workflow
def test_a_training_of_the_workflow_listens_on_loopback_alone(tmp_path):
    checkout = Checkout(tmp_path, cold=True)  # who listens is known by the environment
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    mark = str(uuid.uuid4())
    # Asked for another interface, too: that is for several machines.
    wide = {"GLOO_SOCKET_IFNAME": "eth0", "STRANGERS": mark}
    driver = checkout.start("snakemake", "pretrain", "--configfile", "experiment.yaml", **wide)
    found = set()
    try:
        while driver.poll() is None:
            found.update(listeners(processes_with("STRANGERS", mark)))
            time.sleep(0.02)
    finally:
        for pid in processes_with("STRANGERS", mark):
            os.kill(pid, signal.SIGKILL)
    assert driver.returncode == 0, driver.stdout.read()[-4000:]
    assert [one for one in found if not one.on_loopback] == []
    assert len({one.pid for one in found if "machine.launch" in one.command}) == 2  # they were seen while they trained


# ---------------------------------------------------------------- the place where they meet

# What a neighbour tries; prints what succeeds.
NEIGHBOUR = """
import os, sys
folder, known = sys.argv[1:]
def attempt(what, do):
    try:
        do()
        print(what)
    except PermissionError:
        pass
attempt("sees the parent", lambda: os.listdir(os.path.dirname(folder)))
attempt("lists", lambda: os.listdir(folder))
attempt("reads", lambda: open(f"{folder}/{known}", "rb").read())
attempt("writes", lambda: open(f"{folder}/{known}", "ab").write(b"x"))
attempt("creates", lambda: open(f"{folder}/machine-9", "w"))
attempt("deletes", lambda: os.unlink(f"{folder}/{known}"))
attempt("renames", lambda: os.rename(folder, folder + "-mine"))
attempt("links", lambda: os.symlink("/tmp", f"{folder}/link"))
"""

MEETING = """#!{python}
import os, sys, time
meeting = os.environ["GRANULARITY_MEETING"]
with open(meeting, "a") as file:
    file.write("here")
if os.environ["RANK"] == "0":
    with open({report!r} + ".new", "w") as file:
        file.write(os.path.realpath(meeting))
    os.rename({report!r} + ".new", {report!r})
time.sleep(120)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder like /tmp: everybody may enter and write, and nobody may touch what belongs to another."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a neighbour")
def test_a_neighbour_cannot_enter_the_place_where_processes_meet(tmp_path, public):
    worker, report = tmp_path / "python", tmp_path / "meeting"
    worker.write_text(MEETING.format(python=sys.executable, report=str(report)))
    worker.chmod(0o755)
    code = f"import sys; from granularity.machine import launch; sys.executable = {str(worker)!r}; launch.main()"
    environment = os.environ | {"TMPDIR": str(public)}
    with subprocess.Popen([sys.executable, "-c", code, "2", "pretrain"], env=environment) as process:
        while not report.exists():
            assert process.poll() is None
            time.sleep(0.02)
        meeting = Path(report.read_text())
        assert meeting.parent.parent == public and meeting.read_text().startswith("here")
        words = ["python3", "-c", NEIGHBOUR, str(meeting.parent), meeting.name]
        identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        done = subprocess.run(words, capture_output=True, text=True, cwd="/", env={"PATH": os.defpath}, **identity)
        process.terminate()
    assert (done.stdout.splitlines(), done.stderr) == (["sees the parent"], "")
    assert process.returncode == 128 + signal.SIGTERM
    assert list(public.iterdir()) == []  # it is gone when the processes are


def run_alone(meet: Path, machine: int = 0) -> int:
    return launch.launch(1, ["--help"], machines=2, machine=machine, meet=meet)


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o770, 0o755, 0o720])
def test_a_folder_that_others_may_enter_is_refused(tmp_path, mode):
    tmp_path.chmod(mode)
    with pytest.raises(GranularityError, match="others may enter it; make one with mktemp -d"):
        run_alone(tmp_path)
    assert list(tmp_path.iterdir()) == [] and stat.S_IMODE(tmp_path.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path):
    tmp_path.chmod(0o700)
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(GranularityError, match="belongs to another user"):
        run_alone(tmp_path)


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "file").touch()
    for name in ("link", "file", "nothing"):
        with pytest.raises(GranularityError, match=f"--meet .*/{name}: .*; make one with mktemp -d"):
            run_alone(tmp_path / name)


def test_a_folder_is_for_one_start_and_all_machines_must_come(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "SECONDS_TO_COME", 0.1)
    with pytest.raises(GranularityError, match="machine 1 of 2 with 1 processes did not come within"):
        run_alone(tmp_path)
    with pytest.raises(GranularityError, match="machine 0 was here before; make a new folder for every start"):
        run_alone(tmp_path)
