"""A real Slurm on this one machine: a controller and six virtual nodes. Three have CPUs, two more are there to be lost,
and one has (pretended) GPUs.

Everything is private to one folder: configuration, keys, sockets, logs; a Slurm that the machine has is left alone.
Needs root (device files, munge) and Debian's or Ubuntu's `slurm-wlm`, `slurmdbd`, `mariadb-server` and `munge`.
"""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import psutil

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "slurmdbd", "mariadbd", "mariadb-install-db")
CPU_NODES, SPARE_NODES, GPU_NODES = ("c1", "c2", "c3"), ("s1", "s2"), ("g1",)
NODES = (*CPU_NODES, *SPARE_NODES, *GPU_NODES)
ACCOUNT = "vision"

# A job that is put back waits as long as its credential was good for: cred_expire instead of two minutes.
# No cgroups, which a container seldom may have: the memory of jobs is polled (OverMemoryKill). `config_overrides` lets
# two cores advertise 64, `LLN` spreads jobs over the nodes, and `batch_sched_delay` starts them at once.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={accounting}
AccountingStoragePass={folder}/munge.socket
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
MinJobAge=3600
KillWait=2
CompleteWait=0
SlurmctldTimeout=30
SlurmdTimeout=30
GresTypes=gpu
NodeName=c[1-3] NodeAddr=127.0.0.1 NodeHostname={host} Port=[{first}-{third}] CPUs=64 RealMemory=256000
NodeName=s[1-2] NodeAddr=127.0.0.1 NodeHostname={host} Port=[{fourth}-{fifth}] CPUs=64 RealMemory=256000
NodeName=g1 NodeAddr=127.0.0.1 NodeHostname={host} Port={sixth} CPUs=64 RealMemory=256000 Gres=gpu:h200:8
PartitionName=cpu Nodes=c[1-3] LLN=YES Default=YES DefaultTime=10 MaxTime=24:00:00
PartitionName=spare Nodes=s[1-2] DefaultTime=10 MaxTime=24:00:00
PartitionName=gpu Nodes=g1 DefaultTime=10 MaxTime=24:00:00
"""
ACCOUNTING = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdPort={accounting}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=root
StorageLoc=slurm
"""


def why_not() -> str | None:
    """What keeps a cluster from being started here; None if nothing does."""
    missing = [name for name in NEEDED if _where(name) is None]
    if missing:
        return f"no {', '.join(missing)} (apt-get install slurm-wlm slurmdbd mariadb-server munge)"
    if os.geteuid() != 0:
        return "a Slurm cluster needs root"
    return None


class Cluster:
    """A running cluster; `environment` is what its commands and jobs need."""

    def __init__(self, folder: Path):
        self.folder = folder
        # The plugin's job step drops all of SLURM_*, and srun would then look for the machine's own configuration.
        self.environment = {"SLURM_CONF": f"{folder}/slurm.conf", "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        self._children: list[subprocess.Popen] = []

    def start(self) -> None:
        folder = self.folder
        (folder / "state").mkdir(parents=True)
        (folder / "bin").mkdir()
        srun = folder / "bin" / "srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {_where("srun")} "$@"\n')
        srun.chmod(0o755)
        names = ("database", "accounting", "port", "first", "second", "third", "fourth", "fifth", "sixth")
        values = dict(zip(names, free_ports(len(names)), strict=True))
        values |= {"folder": folder, "host": socket.gethostname().split(".")[0]}
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
        (folder / "slurmdbd.conf").write_text(ACCOUNTING.format(**values))
        (folder / "slurmdbd.conf").chmod(0o600)
        # Character devices: of regular files Slurm would count them, and not say which ones a job has.
        for number in range(8):
            os.mknod(folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (folder / "gres.conf").write_text(f"NodeName=g1 Name=gpu Type=h200 File={folder}/gpu[0-7]\n")
        self._start_munge()
        self._start_accounting(values["database"])
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.wait_for(lambda: self.states() == dict.fromkeys(NODES, "idle"), 60, "idle nodes")

    def _start_munge(self) -> None:
        folder = self.folder
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={folder}/munge.{suffix}" for option, suffix in files.items()]
        self._child("munged", "--foreground", "--force", f"--key-file={key}", *options)
        probe = ["munge", "-n", f"--socket={folder}/munge.socket"]
        self.wait_for(lambda: subprocess.run(probe, capture_output=True).returncode == 0, 20, "munge")

    def _start_accounting(self, port: int) -> None:
        """A database that only this machine can reach, for as long as the cluster runs."""
        data = f"--datadir={self.folder}/database"
        install = [_where("mariadb-install-db"), "--no-defaults", "--user=root", "--skip-test-db", data]
        subprocess.run(install, check=True, capture_output=True, timeout=120)
        where = [f"--socket={self.folder}/database.socket", f"--port={port}", "--bind-address=127.0.0.1"]
        self._child("mariadbd", "--no-defaults", "--user=root", "--skip-grant-tables", data, *where)
        self.wait_for(lambda: _listens(port), 60, "database")
        self._daemon("slurmdbd")
        add = ("sacctmgr", "-i", "add")
        self.wait_for(lambda: "test" in self.run(*add, "cluster", "test", check=False), 60, "slurmdbd")
        self.run(*add, "account", ACCOUNT, "cluster=test")
        self.run(*add, "user", "root", f"account={ACCOUNT}")

    def start_controller(self) -> None:
        self._daemon("slurmctld")

    def stop_controller(self) -> None:
        self._stop("slurmctld.pid", signal.SIGTERM)

    def start_node(self, node: str) -> None:
        self._daemon("slurmd", "-N", node)

    def lose_node(self, node: str) -> None:
        """As when a node's network fails: Slurm cannot reach it, and what runs there runs on."""
        self._stop(f"slurmd.{node}.pid", signal.SIGKILL)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def find_node(self, node: str) -> None:
        self.start_node(node)
        self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def stop(self) -> None:
        """End all daemons and everything that runs under them."""
        for one in psutil.process_iter(["environ"]):
            if (one.info["environ"] or {}).get("SLURM_CONF") == f"{self.folder}/slurm.conf" and one.pid != os.getpid():
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        for child in self._children:
            child.kill()
            child.wait()

    def run(self, *command: str, check: bool = True) -> str:
        """The output of one of Slurm's commands."""
        environment = os.environ | self.environment
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def states(self) -> dict[str, str]:
        lines = self.run("sinfo", "--noheader", "-N", "-o", "%N %t", check=False).splitlines()
        return dict(line.split() for line in lines)

    def wait_for(self, condition, seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"no {what} within {seconds} seconds; see {self.folder}"
            time.sleep(0.1)

    def _daemon(self, *command: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")} | self.environment
        subprocess.run([_where(command[0]), *command[1:]], env=environment, check=True, timeout=30)

    def _child(self, *command: str) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._children.append(subprocess.Popen([_where(command[0]), *command[1:]], **quiet))

    def _stop(self, pid_file: str, number: int) -> None:
        file = self.folder / pid_file
        with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
            daemon = psutil.Process(int(file.read_text()))
            daemon.send_signal(number)
            self.wait_for(lambda: daemon.status() == psutil.STATUS_ZOMBIE, 30, f"end of {pid_file}")
        file.unlink(missing_ok=True)


def _where(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> list[int]:
    """Ports in a row that nobody listens on."""
    rows = (range(first, first + count) for first in range(17000, 30000, count))
    return next(list(ports) for ports in rows if not any(map(_listens, ports)))
