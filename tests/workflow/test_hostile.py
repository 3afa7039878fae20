"""Hostile surroundings and hostile data: full disks, missing permissions, closed pipes; names that are programs.

Nothing that fails may lose or change a result: afterwards the same command ends in the same digest.
"""

import contextlib
import gzip
import hashlib
import html.parser
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from granularity import cli
from granularity.base.errors import GranularityError
from granularity.config import files
from granularity.look import inspection
from granularity.plan import commands
from granularity.plan.graph import Plan
from granularity.plan.rules import Rules
from granularity.stages import STAGES
from granularity.store.artifact import Artifact, as_text
from granularity.store.place import MANIFEST
from support import tiny_chain, writing
from support.bounds import bounded
from support.checkout import Checkout
from support.stores import leftovers, made_in, stamps_in

ROOT = Path(__file__).parents[2]


# ---------------------------------------------------------------- names in folders, jobs and shells


def test_rules_quote_every_word_of_a_command(monkeypatch):
    """Whatever options hold, a shell splits the command into the words that it was made of."""
    monkeypatch.chdir(ROOT)
    title = "$(touch pwned) `touch pwned`; 'x' \"y\" > pwned & \\ # ~ * {x} {input} é"
    values = {"report": {"title": title}, "encoder": {"captions": {"template": title.replace("{x} {input}", "{}")}}}
    rules = Rules([Plan(files.validate(values))])
    for stage in STAGES:
        for job in rules.plan.jobs(stage):
            inputs = {role: [rules.plan.stamp(one) for one in of] for role, of in job.inputs.items()}
            output = SimpleNamespace(stamp=rules.plan.stamp(job))
            text = rules.command(stage)(job.values, SimpleNamespace(**inputs), output)
            assert shlex.split(text) == commands.words(rules.plan, job)
    shells = [re.findall(r"shell:\n((?:\s+f?\".*\"\n)+)", file.read_text()) for file in (ROOT / "rules").glob("*.smk")]
    places = {place for found in shells for text in found for place in re.findall(r"\{([^{}]+)\}", text)}
    # What rules add are paths, made of checked names, and a number.
    added = {re.split("[.:]", place)[0] for place in places - {"params.command", "params.page", "params.folders"}}
    assert added == {"output", "log", "threads"}


# ---------------------------------------------------------------- names that would be paths

BEYOND = ["../../../../beyond", "/beyond", "mine/../../../../beyond", ".hidden", "mine//x", "mine/x\0", ""]
ELSEWHERE = ["mine/train-1/pretrain/net/all/x", "mine/x.stamp", "other/x"]  # in a generation, of a stamp, of another
RUNS = {"run_id": "0" * 8, "network": "net", "space": "target", "family": "target", "transfer": None}
RUNS |= {"granularity": 2, "pretrain_seed": 0, "finetune_seed": None, "train_loss": 0.5, "val_error": 1.0}


def with_runs(folder: Path, **said) -> Artifact:
    """A pretraining, of which only tables are there."""
    with writing.create(folder / "results/mine/train-1/pretrain/net/all", "pretrain", params={}) as out:
        out.table("runs.parquet", pd.DataFrame([RUNS | {"backbone": "backbones/x.safetensors"} | said]))
        history = {"run_id": RUNS["run_id"], "epoch": 1, "lr": 0.1, "train_loss": 0.5}
        out.table("history.parquet", pd.DataFrame([history]))
        kept = {"run_id": RUNS["run_id"], "epoch": 1, "file": "backbones/x.safetensors"}
        out.table("checkpoints.parquet", pd.DataFrame([kept]))
        if "backbone" in said:
            out.text("backbones/x.safetensors", "x")
    return Artifact.open(folder / "results/mine/train-1/pretrain/net/all")


def by_manifest(folder: Path, change) -> None:
    made = with_runs(folder)
    (made.folder / MANIFEST).chmod(0o644)
    (made.folder / MANIFEST).write_text(as_text(change(made.manifest)))
    cli.app(["inspect", str(made.path)], standalone_mode=False)


def by_archive(folder: Path, change=lambda manifest: manifest, names=lambda said, key: said, other="mine/note") -> None:
    """What was pushed, with another manifest, other names, or another file beside, and is pulled elsewhere."""
    made, away = with_runs(folder), folder / "away"
    (folder / "results/mine/note").write_text("x")
    cli.app(["push", str(folder / "results"), str(away)], standalone_mode=False)
    for archive, text in {
        next(away.glob("generations/*")): as_text(change(made.manifest)),
        next(away.glob("others/*")): None,
    }.items():
        with tarfile.open(archive) as tar:
            entries = [(entry, tar.extractfile(entry).read()) for entry in tar]
        with tarfile.open(archive, "w") as tar:
            for entry, data in entries:
                entry.name = other if text is None else entry.name
                data = text.encode() if text and entry.name == MANIFEST else data
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    archive.rename(archive.with_name(f"{digest}.tar"))
    file = away / "names/mine.json"
    said = json.loads(file.read_text()) | {"others": digest}
    file.write_text(json.dumps(names(said, [made.kind, made.manifest["key"]])))
    cli.app(["pull", str(folder / "a/b/c/results"), str(away)], standalone_mode=False)


def by_table(folder: Path, **said) -> None:
    with_runs(folder, **said)
    words = ["--to", str(folder / "to"), "--format", "tensorboard"]
    cli.app(["export", "history", str(folder / "results"), *words], standalone_mode=False)


READERS = {
    "a file of a manifest": lambda at, name: by_manifest(
        at, lambda it: it | {"files": {name: it["files"].popitem()[1]}}
    ),
    "the kind in a manifest": lambda at, name: by_manifest(at, lambda it: it | {"kind": name}),
    "the key in a manifest": lambda at, name: by_manifest(at, lambda it: it | {"key": name}),
    "the key in an archive": lambda at, name: by_archive(at, lambda it: it | {"key": name}),
    "the kind in an archive": lambda at, name: by_archive(at, lambda it: it | {"kind": name}),
    "a name": lambda at, name: by_archive(at, names=lambda said, key: said | {"names": said["names"] | {name: key}}),
    "the key of a name": lambda at, name: by_archive(
        at, names=lambda said, key: said | {"names": {"mine/x": [key[0], name]}}
    ),
    "a kind of no stage": lambda at, name: by_archive(
        at, names=lambda said, key: said | {"generations": [[name or "thing", key[1]]]}
    ),
    "the archive beside": lambda at, name: by_archive(at, names=lambda said, key: said | {"others": name}),
    "a file beside": lambda at, name: by_archive(at, other=name.replace("\0", "/../x") or "../beyond"),
    "a network": lambda at, name: by_table(at, network=name),
    "a space": lambda at, name: by_table(at, space=f"{name}/../../../../beyond"),
    "weights": lambda at, name: (
        with_runs(at, backbone=name),
        cli.app(["export", "backbone", "x", "--to", str(at / "to"), "--results", str(at)], standalone_mode=False),
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_names_of_others_lead_nowhere(reader, tmp_path):
    """One line from each reader of names that somebody else has written; and nothing lies where they would lead."""
    for number, name in enumerate([*BEYOND, *(ELSEWHERE if reader == "a name" else ())]):
        where = tmp_path / "d" / "d" / "d" / str(number)
        (where / "a/b/c").mkdir(parents=True)
        with pytest.raises(GranularityError) as caught:
            READERS[reader](where, name)
        assert len(str(caught.value).splitlines()) == 1
        assert not list(tmp_path.rglob("beyond*")) and not Path("/beyond").exists()
        assert not (where / "to").exists()


GIB = 1 << 30


@pytest.mark.parametrize("folder", ["generations", "others"])
@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, "gzip"])
def test_an_archive_that_would_grow_is_refused_before_it_does(tmp_path, kind, folder):
    """A sparse file, a header of gigabytes, a compressed archive: nothing is written, and no memory taken."""
    with_runs(tmp_path)
    cli.app(["push", str(tmp_path / "results"), str(tmp_path / "away")], standalone_mode=False)
    (file,) = (tmp_path / "away" / folder).iterdir()
    entry = tarfile.TarInfo("mine/x")
    entry.size, entry.type = (1000, tarfile.REGTYPE) if kind == "gzip" else (6 * GIB, kind)
    data = entry.tobuf(tarfile.GNU_FORMAT) + bytes(10_240)
    file.write_bytes(gzip.compress(data) if kind == "gzip" else data)
    if folder == "others":
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(file.with_name(f"{digest}.tar"))
        names = tmp_path / "away/names/mine.json"
        names.write_text(json.dumps(json.loads(names.read_text()) | {"others": digest}))
    with bounded(), pytest.raises(GranularityError) as caught:
        cli.app(["pull", str(tmp_path / "to/results"), str(tmp_path / "away")], standalone_mode=False)
    assert len(str(caught.value).splitlines()) == 1 and folder in str(caught.value)
    assert not (tmp_path / "to/results/mine/x").exists() and not list(tmp_path.glob("to/results/.store/.new/*"))


# ---------------------------------------------------------------- disks and permissions


@pytest.fixture(scope="module")
def chain(tiny_results):
    folder, made = tiny_results
    with tiny_chain.tiny_world(), contextlib.chdir(folder):
        yield [step for step in made if step.kind != "report"]


def one_line(step, output) -> str:
    with pytest.raises(GranularityError) as caught:
        step.run(output)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and "cannot be written" in message, message
    return message


def nothing_but_work(place: Path) -> None:
    """No name, no stamp and no generation; of a job, at most what it had finished of its work."""
    kept = {".store", ".store/.new", ".store/.locks", ".store/.work"}
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
    folder, code = shared_folder, ("granularity.base.seeds",)
    with writing.create(folder / "results" / "thing", "thing", code, {}, {}) as out:
        out.json("x.json", {"x": 3})
    (folder / "c.yaml").write_text("name: a\n")
    for file, act in {
        "c.yaml": lambda: files.load(folder / "c.yaml"),
        "results/thing/manifest.json": lambda: Artifact.open(folder / "results/thing"),
        "results/thing/x.json": lambda: Artifact.open(folder / "results/thing"),
        "results": lambda: inspection.verify(folder / "results"),
    }.items():
        mode, real = (folder / file).stat().st_mode, (folder / file).resolve()
        (folder / file).chmod(0)
        with as_nobody(), pytest.raises(GranularityError, match="Permission denied") as caught:
            act()
        (folder / file).chmod(mode)
        message = str(caught.value)
        assert any(str(path) in message for path in (folder / file, real)) and len(message.splitlines()) == 1
    refused = pytest.raises(GranularityError, match=r"cannot be written \(Permission denied\)")
    with as_nobody(), refused, writing.create(folder / "results/new", "thing", code, {}, {}) as out:
        out.json("x.json", {})
    nothing_but_the_result(folder / "results", "thing")


# ---------------------------------------------------------------- output that goes nowhere


def shell(command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    """A command of this installation, through a shell; its status is that of `granularity`."""
    words = f"{shlex.quote(sys.executable)} -m granularity"
    code = f"set -o pipefail; {command.replace('granularity', words, 1)}"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "workflow")}
    environment.pop("PYTHONUNBUFFERED", None)  # with it nothing is left to be written when Python ends
    return subprocess.run(["bash", "-c", code], cwd=cwd, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("granularity config default > /dev/full", 1, "error: standard output: No space left on device\n"),
        ("granularity config default >&-", 0, ""),
        ("granularity config check -f /none 2> /dev/full", 1, ""),
        ("granularity config schema | true", 1, ""),
    ],
)
def test_output_that_nobody_takes(command, status, said):
    ended = shell(command)
    assert ended.returncode in (status, 0 if "|" in command else status), ended
    assert ended.stderr == said


def test_a_log_that_cannot_be_written_costs_no_result(chain, tmp_path):
    step = next(step for step in chain if step.kind == "pixels")
    words = shlex.join(["granularity", *step.words[:-1], str(tmp_path / "out")])
    ended = shell(f"{words} 2> /dev/full", cwd=Path.cwd())
    assert ended.returncode == 0
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
    "%s %(x)s $HOME ${IFS} *?[a] ~ & > pwned",
    "ünïcödé \u202e 猫 " + "x" * 80,
    "up/../../../pwned",
    "=cmd+' /C calc'!A0",
]
NAMES = ["$(touch pwned).png", "`touch pwned`.png", "; touch pwned;.png", "-o.png", "<img src=x onerror=x>.png"]
NAMES += ["a\nb.png", "{sample}.png", "'\".png", " .png", "é猫.png"]


def hostile_images(root: Path) -> None:
    rng = np.random.default_rng(0)
    for number, name in enumerate(CLASSES):
        folder = root / ("k;ind" if number % 2 else "$(touch pwned)") / name.replace("/", "∕")
        folder.mkdir(parents=True)
        for file in NAMES:
            pixels = (rng.integers(0, 60, (8, 8, 3)) + 15 * number).astype(np.uint8)
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
        "pixels": {"size": 8, "mode": "RGB"},
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
    assert not found.tags & {"iframe", "object", "embed", "b", "base", "form"} and page.count("<script") == 1  # ours
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
