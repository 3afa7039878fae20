"""Commands that start quickly: their processes are forked from one that has imported the packages that they need.

`commands()` is a folder for the PATH with a `snakemake`, a `granularity`, and `lines`: a `granularity` whose command is
some lines of Python. Each asks a server for a process with its own arguments, environment, folder and open files, in
which the real command runs, with the code that its PYTHONPATH names: only what others have written is imported
beforehand. It passes signals on, ends as that process ends, and who kills it kills that process. The jobs of such a
Snakemake are not of its process group.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

IMPORTED = ("open_clip", "pandas", "pyarrow.dataset", "pyarrow.parquet", "scipy.stats", "snakemake.cli", "timm")
IMPORTED += ("torch._dynamo",)
COMMANDS = {"granularity": "granularity.cli", "lines": "granularity.cli", "snakemake": "snakemake.cli"}
CLIENT = """#!{python} -IS
import json, os, signal, socket, struct, sys

server = socket.socket(socket.AF_UNIX)
server.connect({place!r})
umask = os.umask(0)
os.umask(umask)
given = {{"argv": sys.argv, "environment": dict(os.environ), "folder": os.getcwd(), "umask": umask}}
text = json.dumps(given).encode()
socket.send_fds(server, [struct.pack("q", len(text))], [0, 1, 2])
server.sendall(text)
(process,) = struct.unpack("q", server.recv(8, socket.MSG_WAITALL) or sys.exit("no process"))
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: os.kill(process, number))
(status,) = struct.unpack("q", server.recv(8, socket.MSG_WAITALL) or sys.exit("no status"))
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@functools.cache
def commands() -> Path:
    """The folder of the commands; the server is there for as long as this process is."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))
    place = str(folder / "socket")
    for name in COMMANDS:
        (folder / name).write_text(CLIENT.format(python=sys.executable, place=place))
        (folder / name).chmod(0o755)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)  # who comes before all is imported waits
    words = [sys.executable, "-P", __file__, str(listener.fileno())]
    environment = os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"}
    server = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd="/", env=environment)
    listener.close()

    @atexit.register
    def end() -> None:
        server.stdin.close()
        server.wait()
        shutil.rmtree(folder)

    return folder


def serve(listener: socket.socket) -> None:
    """Fork a process for everyone who asks, until whoever has started this server is gone."""
    _kept = importlib.import_module("granularity.machine.torchvision_compat")  # or torchvision could not be imported
    for name in IMPORTED:
        importlib.import_module(name)
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False  # every process would take torch's tables of operators apart, in 0.1 s
    gc.freeze()  # collecting would copy all of it in every process
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            sys.exit()
        asker, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            attend(asker)
            return
        asker.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def attend(asker: socket.socket) -> None:
    """Run the command that is asked for in a child, which alone returns from here; tell how it ends."""
    head, files, _, _ = socket.recv_fds(asker, 8, 3)
    (size,) = struct.unpack("q", head)
    given = json.loads(asker.recv(size, socket.MSG_WAITALL))
    process = os.fork()
    if process == 0:
        asker.close()
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        run(given)
        return
    for file in files:
        os.close(file)
    asker.sendall(struct.pack("q", process))
    ended = os.pidfd_open(process)
    ready, _, _ = select.select([asker, ended], [], [])
    if ended not in ready:
        os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with contextlib.suppress(OSError):
        asker.sendall(struct.pack("q", status))
    os._exit(0)


def run(given: dict) -> None:
    """Be the command."""
    os.chdir(given["folder"])
    os.umask(given["umask"])
    os.environ.clear()
    os.environ.update(given["environment"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for name in [name for name in sys.modules if name.split(".")[0] == "granularity"]:  # the server's own
        del sys.modules[name]
    importlib.invalidate_caches()
    sys.argv = given["argv"]
    command = Path(sys.argv[0]).name
    module = importlib.import_module(COMMANDS[command])
    if command == "lines":
        module.app = lambda: exec(compile(sys.argv[1], "<lines>", "exec"), {})
    leave(module.main)


def leave(main: Callable[[], object]) -> None:
    """Run a command and end as Python does, but for taking apart all that was imported, which costs a second."""
    try:
        status = main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(int(status or 0))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
