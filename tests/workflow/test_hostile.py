"""Hostile surroundings and hostile data: full disks, missing permissions, clocks that jump; names that are programs.

Nothing that fails may lose or change a result: afterwards the same command ends in the same digest.
"""

from __future__ import annotations

import ast
import contextlib
import html.parser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from PIL import Image

from granularity.base import progress
from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.look import inspection
from granularity.plan import commands
from granularity.plan.graph import Plan
from granularity.plan.rules import Rules
from granularity.stages import STAGES
from granularity.store.artifacts import Artifact
from support import tiny_chain, writing
from support.checkout import Checkout
from support.stores import leftovers, made_in, stamps_in

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "workflow" / "granularity"
CHAIN = Path("results/tiny/train-60")


# ---------------------------------------------------------------- no code from data


UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "code", "codeop"}
CALLS = {"eval", "exec", "compile", "__import__", "execfile", "torch.load", "torch.jit.load", "torch.hub.load"}
CALLS |= {"os.system", "os.popen", "pd.read_pickle", "pd.eval", "np.fromregex", "yaml.load", "yaml.unsafe_load"}
CALLS |= {"yaml.full_load", "shutil.unpack_archive", "pickletools.optimize"}
METHODS = {"extractall", "extract", "read_pickle", "to_pickle", "allow_pickle", "unpack_archive"}
# pickletools parses the instructions of a pickle; it runs none of them.
PARSES_PICKLES = "restricted_pickle.py"


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def dangers(source: str) -> list[str]:
    """What in a module's code could run what it reads."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [f"import {name}" for name in names if name.split(".")[0] in UNPICKLERS]
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if name in CALLS or name.rsplit(".", 1)[-1] in METHODS:
                found.append(name)
            if name in ("np.load", "numpy.load") and getattr(given.get("allow_pickle"), "value", None) is not False:
                found.append(f"{name} that may unpickle")
            if "shell" in given and getattr(given["shell"], "value", True):
                found.append(f"{name} with a shell")
    return found


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_module_can_run_what_it_reads(file):
    source = file.read_text()
    assert dangers(source) == []
    assert ("pickletools" in source) == (file.name == PARSES_PICKLES)


DANGEROUS = ["import pickle", "from joblib import load", "import dill as d", "torch.load(f)", "np.load(f)"]
DANGEROUS += ["np.load(f, allow_pickle=True)", "eval(x)", "subprocess.run(x, shell=True)", "archive.extractall(p)"]
DANGEROUS += ["yaml.load(x)"]


@pytest.mark.parametrize("source", DANGEROUS)
def test_that_test_can_fail(source):
    assert dangers(source)


# ---------------------------------------------------------------- names in folders, jobs and shells


SAFE = re.compile(r"[\w./=,@:+-]+")
RANK = st.text(st.characters(categories=["L", "M", "N"]) | st.sampled_from("_.-"), min_size=1, max_size=60)
examples = settings(derandomize=True, database=None, deadline=None, max_examples=150)


@examples
@given(st.lists(RANK, min_size=1, max_size=4, unique=True), st.text("ab.-_9", min_size=1, max_size=20))
def test_names_that_are_accepted_are_words_of_a_shell_and_names_of_folders(ranks, name):
    units = dict.fromkeys(("pretrain", "finetune", "measure"), "run")
    values = {"name": name, "conditions": [{"train_size": 300}], "jobs": units, "seeds": {"pretrain": 1, "finetune": 2}}
    values["samples"] = {"source": "folder", "root": "/", "ranks": ranks, "target": ranks[0]}
    try:
        config = files.validate(values)
    except GranularityError:
        return
    plan = Plan(config)
    names = [plan.root, plan.page]
    for job in (job for stage in STAGES for job in plan.jobs(stage)):
        names += [str(plan.folder(job)), *job.values.values(), *job.options.get("runs", ())]
    for one in names:
        assert shlex.split(one) == [one] and not set(one) & set("{}*?[]$`'\"\\;&|<>()!#~ \t\n"), one
        assert len(os.fsencode(Path(one).name)) < 256 - len(".new-0123456789abcdef-old.safetensors")
        assert not Path(one).name.startswith((".", "-")) and ".." not in Path(one).parts


def test_rules_quote_every_word_of_a_command(monkeypatch):
    """Whatever options hold, a shell splits the command into the words that it was made of."""
    monkeypatch.chdir(ROOT)
    title = "$(touch pwned) `touch pwned`; 'x' \"y\" > pwned & \\ # ~ * {x} {input} é"
    values = {"report": {"title": title}, "encoder": {"captions": {"template": title.replace("{x} {input}", "{}")}}}
    rules = Rules(Plan(files.validate(values)))
    for stage in STAGES:
        for job in rules.plan.jobs(stage):
            inputs = {role: [rules.plan.stamp(one) for one in of] for role, of in job.inputs.items()}
            output = SimpleNamespace(stamp=rules.plan.stamp(job))
            text = rules.command(stage)(job.values, SimpleNamespace(**inputs), output)
            assert shlex.split(text) == commands.words(rules.plan, job)
    shells = [re.findall(r"shell:\n((?:\s+f?\".*\"\n)+)", file.read_text()) for file in (ROOT / "rules").glob("*.smk")]
    places = {place for found in shells for text in found for place in re.findall(r"\{([^{}]+)\}", text)}
    # What rules add are paths, made of names that the test above is about, and a number.
    assert {re.split("[.:]", place)[0] for place in places - {"params.command", "params.page"}} == {
        "output",
        "log",
        "threads",
    }


def test_a_digest_in_a_manifest_is_no_command(tmp_path, monkeypatch):
    """The report's options hold the digests of the theory's results."""
    monkeypatch.chdir(tmp_path)
    with writing.create("thing", "thing", ("granularity.base.seeds",), {}, {}) as out:
        out.json("x.json", {})
    for digest in ("$(touch pwned)", "a; touch pwned", "'", "0" * 63 + "\n"):
        tiny_chain.rewrite(Path("thing"), lambda manifest, digest=digest: manifest.update(digest=digest))
        with pytest.raises(GranularityError, match="not a manifest: digest"):
            Artifact.peek("thing")


# ---------------------------------------------------------------- disks and permissions


@pytest.fixture(scope="module")
def chain(tiny_results):
    folder, made = tiny_results
    with tiny_chain.tiny_world(), contextlib.chdir(folder):
        yield [step for step in made if step.kind != "report"]


def fill(disk: Path) -> None:
    (disk / "ballast").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize))


def one_line(step, output) -> str:
    with pytest.raises(GranularityError) as caught:
        step.run(output)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and "cannot be written" in message, message
    return message


def nothing_but_work(place: Path) -> None:
    """No name, no stamp and no generation; of a job, at most what it had finished of its work."""
    kept = {".store", ".store/.new", ".store/.claims", ".store/.work"}
    found = {str(path.relative_to(place)) for path in place.rglob("*")} - {"ballast"}
    work = (".store/.work/", ".store/run", ".store/measured")
    assert {name for name in found - kept if not name.startswith(work)} == set()


def nothing_but_the_result(place: Path, name: str = "out") -> None:
    assert {path.name for path in place.iterdir()} == {".store", name, f"{name}.stamp"}
    assert leftovers(place) == [] and len(made_in(place)) == len(stamps_in(place)) == 1


def clear(place: Path) -> None:
    shutil.rmtree(place)
    place.mkdir()


def test_a_full_disk_costs_no_stage_its_result(chain, disk):
    """Full from the start, and full on the way: a line, nothing published, and the same digest once there is room."""
    place = disk / "place"
    place.mkdir()
    for step in {step.kind: step for step in chain}.values():
        size = sum(file.stat().st_size for file in step.folder.rglob("*") if file.is_file())
        for room in (0, size // 2):
            block = 4096
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            (disk / "ballast").write_bytes(bytes(max(0, free - room // block * block)))
            assert "No space left" in one_line(step, place / "out")
            nothing_but_work(place)
            (disk / "ballast").unlink()
        step.run(place / "out")
        assert Artifact.open(place / "out").digest == Artifact.open(step.folder).digest, step.kind
        nothing_but_the_result(place)
        clear(place)


def test_a_full_disk_keeps_the_result_that_was_there(chain, disk):
    step = next(step for step in chain if step.kind == "pixels")
    place = disk / "place"
    step.run(place / "out")
    before, other = made_in(place), [word.replace('"size":8', '"size":7') for word in step.words]
    assert other != step.words
    fill(disk)
    one_line(replace(step, words=other), place / "out")
    assert made_in(place) == before and "out" in stamps_in(place)
    (disk / "ballast").unlink()
    nothing_but_the_result(place)


def test_a_folder_that_cannot_be_written(chain, disk):
    for step in {step.kind: step for step in chain}.values():
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert "Read-only file system" in one_line(step, disk / "out")
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert list(disk.iterdir()) == []


FILE_LIMIT = """
import resource, signal, sys
sys.path[:0] = {path!r}
from support import tiny_chain
from granularity.base.errors import GranularityError
from granularity.config import files
steps = tiny_chain.steps(files.validate(tiny_chain.TINY))
for step in steps:
    if step.kind in ("samples", "pixels", "pretrain", "measure"):
        for limit in {limits}:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                step.run("{output}")
                print(step.kind, limit, "made it")
            except GranularityError as error:
                print(step.kind, limit, str(error))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def test_files_that_may_not_grow(chain, tmp_path):
    """The portable way to a full disk: a limit on the size of files, as a quota sets it."""
    output = tmp_path / "place" / "out"
    code = FILE_LIMIT.format(path=[str(ROOT / "tests"), str(ROOT / "workflow")], limits=[0, 300, 2000], output=output)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == 12
    for line in lines:
        assert "File too large" in line or "cannot be written" in line, line
    nothing_but_work(output.parent)


@contextlib.contextmanager
def as_nobody():
    """Root may do all; nobody may not."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        yield


@pytest.fixture
def shared_folder():
    """A folder that other users may look into."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        with contextlib.suppress(OSError):
            path.chmod(0o755)
    shutil.rmtree(folder)


def test_missing_permissions_are_named(shared_folder):
    """To read a configuration, a manifest, a file or a folder of an artifact; to write a result."""
    folder = shared_folder
    with writing.create(folder / "results" / "thing", "thing", ("granularity.base.seeds",), {}, {}) as out:
        out.json("x.json", {"x": 3})
    (folder / "c.yaml").write_text("name: a\n")
    for file, act in {
        "c.yaml": lambda: files.load(folder / "c.yaml"),
        "results/thing/manifest.json": lambda: Artifact.open(folder / "results/thing"),
        "results/thing/x.json": lambda: Artifact.open(folder / "results/thing"),
        "results/thing": lambda: inspection.verify(folder / "results"),
        "results": lambda: inspection.verify(folder / "results"),
    }.items():
        mode = (folder / file).stat().st_mode
        real = (folder / file).resolve()
        (folder / file).chmod(0)
        with as_nobody(), pytest.raises(GranularityError) as caught:
            act()
        (folder / file).chmod(mode)
        message = str(caught.value)
        assert any(str(path) in message for path in (folder / file, real)) and "Permission denied" in message, message
        assert len(message.splitlines()) == 1
    (folder / "results/thing/x.json").chmod(0)
    with as_nobody():
        assert "x.json: cannot be read (Permission denied)" in inspection.verify(folder / "results")["problems"][0]
    (folder / "results/thing/x.json").chmod(0o644)
    refused = pytest.raises(GranularityError, match=r"cannot be written \(Permission denied\)")
    with (
        as_nobody(),
        refused,
        writing.create(folder / "results/new", "thing", ("granularity.base.seeds",), {}, {}) as out,
    ):
        out.json("x.json", {})
    nothing_but_the_result(folder / "results", "thing")


def test_images_that_may_not_be_read(shared_folder):
    from granularity import cli

    root = shared_folder / "data"
    for i in range(6):
        (root / f"c{i % 2}").mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), i).save(root / f"c{i % 2}" / f"{i}.png")
    (shared_folder / "out").mkdir(mode=0o777)
    (shared_folder / "out").chmod(0o777)
    options = f'{{"source": "folder", "root": "{root}", "ranks": ["c"], "target": "c", "validation": 2}}'
    words = ["samples", "--options", options, "--output", str(shared_folder / "out" / "samples")]
    for bad in (root / "c1" / "3.png", root / "c1", root):
        bad.chmod(0)
        with as_nobody(), pytest.raises(GranularityError) as caught:
            cli.app(words, standalone_mode=False)
        bad.chmod(0o755)
        assert str(bad) in str(caught.value) and len(str(caught.value).splitlines()) == 1
        nothing_but_work(shared_folder / "out")


def test_paths_that_are_too_long(chain, tmp_path):
    step = chain[0]
    for output in (tmp_path / ("n" * 300), tmp_path / "/".join(["d" * 200] * 30), tmp_path / ("n" * 245)):
        assert "File name too long" in one_line(step, output)
    assert list(tmp_path.rglob("*")) == [] or not list(tmp_path.rglob("manifest.json")), "told before it is computed"


# ---------------------------------------------------------------- clocks


def test_a_clock_that_is_set_back_and_files_from_the_future(chain, tmp_path, monkeypatch):
    """Claims, checkpoints and results go by order and content, never by the time of day."""
    step = next(step for step in chain if step.kind == "pixels")
    output = tmp_path / "out"
    key = Artifact.open(step.folder).manifest["key"]
    store = tmp_path / ".store"
    for name in (f".claims/pixels-{key}.json", f".work/pixels-{key}"):
        (store / name).parent.mkdir(parents=True)
        (store / name).write_text("{}") if name.endswith("json") else (store / name).mkdir()
        os.utime(store / name, (time.time() + 10**9, time.time() + 10**9))
    now = iter(range(2 * 10**9, 0, -(10**6)))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    step.run(output)
    found = Artifact.open(output)
    assert found.digest == Artifact.open(step.folder).digest
    assert 0 <= found.manifest["cost"]["wall_seconds"] < 600
    nothing_but_the_result(tmp_path)
    for file in output.iterdir():
        os.utime(file, (2**32, 2**32))
    assert inspection.verify(tmp_path)["problems"] == []


def test_checkpoints_go_by_a_clock_that_only_goes_forwards(monkeypatch):
    from granularity.store import checkpoints

    monkeypatch.setattr(checkpoints, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(time, "time", lambda: -1e9)
    assert checkpoints.Clock().due()
    source = (PACKAGE / "store/checkpoints.py").read_text() + (PACKAGE / "store/claim.py").read_text()
    assert "time.monotonic()" in source and "datetime" not in source


# ---------------------------------------------------------------- output that goes nowhere


def shell(command: str, **environment: str) -> subprocess.CompletedProcess:
    """A command of this installation, through a shell; its status is that of `granularity`."""
    words = f"{shlex.quote(sys.executable)} -m granularity"
    code = f"set -o pipefail; {command.replace('granularity', words, 1)}"
    path = {"PYTHONPATH": str(ROOT / "workflow")}
    return subprocess.run(
        ["bash", "-c", code], cwd=ROOT, capture_output=True, text=True, env=os.environ | path | environment
    )


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("granularity config default > /dev/full", 1, "error: standard output: No space left on device\n"),
        ("granularity config check > /dev/full", 1, "error: standard output: No space left on device\n"),
        ("granularity config default >&-", 0, ""),
        ("granularity config default 2>&- > /dev/null", 0, ""),
        ("granularity config check -f /none 2>&-", 1, ""),
        ("granularity config check -f /none 2> /dev/full", 1, ""),
        ("granularity config schema | true", 1, ""),
        ("granularity config schema | head -c 9 > /dev/null", None, ""),
    ],
)
def test_output_that_nobody_takes(command, status, said):
    ended = shell(command)
    assert status is None or ended.returncode in (status, 0 if "|" in command else status), ended
    assert ended.stderr == said


def test_no_home_and_nowhere_for_temporary_files():
    ended = shell("granularity config check", HOME="/proc", TMPDIR="/proc", XDG_CACHE_HOME="/proc")
    assert ended.returncode == 0 and ended.stderr == ""


@pytest.mark.parametrize("stream", [None, "broken", "full"])
def test_a_log_that_cannot_be_written_costs_no_result(chain, stream, tmp_path, monkeypatch):
    class Broken:
        def write(self, text):
            raise BrokenPipeError if stream == "broken" else OSError(28, "No space left on device")

        flush = isatty = lambda self: False

    step = next(step for step in chain if step.kind == "pixels")
    monkeypatch.setattr(sys, "stderr", Broken() if stream else None)
    progress.say("a line")
    step.run(tmp_path / "out")
    monkeypatch.undo()
    assert Artifact.open(tmp_path / "out").digest == Artifact.open(step.folder).digest


def test_what_a_terminal_would_obey_is_shown_and_not_obeyed(tmp_path):
    params = {"evil": "\x1b[2J\x1b]0;title\x07"}
    with writing.create(tmp_path / "thing", "thing", ("granularity.base.seeds",), {}, params) as out:
        out.json("x.json", {"\x1b[31m": "\x9b31m"})
    ended = shell(f"granularity inspect {tmp_path / 'thing'}")
    assert ended.returncode == 0 and "\\x1b[2J" in ended.stdout
    assert all(c.isprintable() or c == "\n" for c in ended.stdout)
    file = tmp_path / "a\x1b[31m\nb.yaml"
    file.write_text("name: [\n")
    ended = shell(f"granularity config check -f {shlex.quote(str(file))}")
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1 and "\x1b" not in ended.stderr


@pytest.mark.parametrize("cache", ["a file", "unwritable", "full of other things"])
def test_a_cache_that_is_none_costs_no_result(chain, cache, tmp_path, monkeypatch):
    place = tmp_path / "cache"
    if cache == "a file":
        place.write_text("")
    elif cache == "unwritable":
        place = Path("/proc/no/such/place")
    step = next(step for step in chain if step.kind == "hierarchy")
    monkeypatch.setenv("GRANULARITY_CACHE", str(place))
    step.run(tmp_path / "out")
    if cache == "full of other things":
        (entry,) = (place / "hierarchy").iterdir()
        for file in entry.iterdir():
            file.chmod(0o644)
            file.write_bytes(b"other things")
        shutil.rmtree(tmp_path / ".store")
        step.run(tmp_path / "out")
    assert Artifact.open(tmp_path / "out").digest == Artifact.open(step.folder).digest


# ---------------------------------------------------------------- a data set whose names are programs


CLASSES = [
    "$(touch pwned)",
    "`touch pwned`",
    "a; touch pwned #",
    "-rf",
    "<script>touch('pwned')</script>",
    'it\'s "quoted" & <b>bold</b>',
    "two\nlines\r\x1b[31m",
    "{wildcards.space} {input} {{x}} {0} {}",
    "%s %(x)s $HOME ${IFS} *?[a] ~ | > pwned",
    "ünïcödé \u202e 猫 " + "x" * 80,
    "up/../../../pwned",
    "=cmd|' /C calc'!A0",
]
NAMES = ["$(touch pwned).png", "`touch pwned`.png", "; touch pwned;.png", "-o.png", "<img src=x onerror=x>.png"]
NAMES += ["a\nb.png", "{sample}.png", "'\".png", " .png", "é猫.png"]


def hostile_images(root: Path) -> None:
    rng = np.random.default_rng(0)
    for number, name in enumerate(CLASSES):
        folder = root / ("k;ind" if number % 2 else "$(touch pwned)") / name.replace("/", "∕")
        folder.mkdir(parents=True)
        for file in NAMES:
            pixels = (rng.integers(0, 60, (8, 8)) + 15 * number).astype(np.uint8)
            Image.fromarray(pixels).save(folder / file)


class Tags(html.parser.HTMLParser):
    """The tags of a page, and their attributes that run code."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.handlers += [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")]


@pytest.mark.workflow
def test_a_data_set_whose_names_are_programs_is_nothing_but_a_data_set(tmp_path_factory):
    """Through Snakemake, from the folder to the report: nothing is run, everything is escaped, all is sound."""
    outer = tmp_path_factory.mktemp("hostile")
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    root = outer / "data $(touch pwned) `x` 'y' ;"
    hostile_images(root)
    values = tiny_chain.TINY | {
        "name": "hostile",
        "samples": {"source": "folder", "root": str(root), "ranks": ["kind", "Überart"], "target": "kind"},
        "report": {"title": "<script>touch('pwned')</script> $(touch pwned) `touch pwned` 'x' {x} $\\frac"},
    }
    values["samples"] |= {"validation": 40, "check_images": "fail"}
    values["encoder"] = values["encoder"] | {
        "model": "config/encoders/digits-tiny.json",
        "captions": {"epochs": 1, "batch_size": 20, "template": "$(touch pwned) {} `touch pwned`"},
    }
    file = outer / "$(touch pwned) 'x'.yaml"
    file.write_text(yaml.safe_dump(values, allow_unicode=True))
    output = checkout.snakemake("--configfile", str(file), "--cores", "2")
    assert "Traceback" not in output
    for place in (outer, checkout.folder, ROOT, Path.cwd(), Path.home(), Path("/tmp")):
        assert not (place / "pwned").exists()
    assert not [path for path in checkout.folder.rglob("*pwned*") if path.is_file()]
    assert "all sound" in checkout.run("granularity", "verify", "results")
    page = checkout.path("results/hostile/report/report.html").read_text()
    found = Tags(page)
    assert not found.tags & {"script", "iframe", "object", "embed", "b", "base", "form"}
    assert found.handlers == [] and "&lt;script&gt;" in page
    for svg in checkout.path("results/hostile/report/figures").glob("*.svg"):
        drawn = Tags(svg.read_text())
        assert not drawn.tags & {"script", "foreignobject"} and drawn.handlers == []
    samples = Artifact.open(checkout.path("results/hostile/train-60/samples"))
    names = set(samples.table("samples.parquet")["Überart"].astype(str))
    assert names == {name.replace("/", "∕") for name in CLASSES}
    listed = checkout.run("granularity", "inspect", "results/hostile/train-60/hierarchy/manual-Überart")
    assert all(c.isprintable() or c == "\n" for c in listed)
    assert "Nothing to be done" in checkout.snakemake("-n", "--configfile", str(file))
