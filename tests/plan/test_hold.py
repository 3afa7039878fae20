"""One name has one configuration at a time."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.plan.graph import Plan
from granularity.plan.hold import hold

HOLDER = """
import sys, time
from pathlib import Path
from granularity.config.options import Config
from granularity.plan.graph import Plan
from granularity.plan.hold import hold
hold(Plan(Config()), Path("results/digits"))
print("ready", flush=True)
time.sleep(600)
"""
ROOT = Path("results/digits")
SAME, OTHER = Config(), Config.model_validate({"seeds": {"base": 1}})


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def holder(place):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_another_configuration_is_refused_while_the_first_is_at_work(holder):
    holder.send_signal(signal.SIGSTOP)  # it holds it all the same
    with pytest.raises(GranularityError) as caught:
        hold(Plan(OTHER), ROOT)
    (line,) = caught.value.args
    assert f"process {holder.pid} on " in line and f"in {os.getcwd()};" in line and "\n" not in line
    hold(Plan(OTHER), Path("results/other"))  # another name
    holder.kill()
    holder.wait()
    hold(Plan(OTHER), ROOT)


def test_drivers_of_one_configuration_share_its_name(holder, capsys):
    hold(Plan(SAME), ROOT)
    with pytest.raises(GranularityError):
        hold(Plan(OTHER), ROOT)
    holder.kill()
    holder.wait()
    with pytest.raises(GranularityError, match=f"process {os.getpid()} on "):  # whoever began, this one goes on
        hold(Plan(OTHER), ROOT)
    assert capsys.readouterr().err == ""


def test_where_nothing_can_be_locked_it_is_said(monkeypatch, capsys):
    def refuse(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    hold(Plan(SAME), ROOT)
    hold(Plan(OTHER), ROOT)
    assert capsys.readouterr().err.count("cannot be locked (No locks available)") == 2


def test_what_others_have_written_in_its_file_is_no_matter():
    file = ROOT.parent / ".store/.driver-digits"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xff\n[]\n{}\n" + b"x" * 9)
    hold(Plan(SAME), ROOT)
    file.write_bytes(b"\xff\n[]\n1\n")
    hold(Plan(SAME), ROOT)
