"""`granularity status`: what it calls done, running, failed, interrupted, outdated and waiting, and the costs."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from granularity import cli
from granularity.config.options import Config
from granularity.look import inspection, status
from granularity.plan.graph import Plan, plans
from granularity.stages import STAGES, theory
from granularity.store import lock, place
from granularity.store import writer as store_writer
from granularity.store.artifact import ORIGIN, Artifact, as_text, by_stage, content_digest, key_of
from support import minimal_results, writing

SMALL = {
    "name": "small",
    "seeds": {"pretrain": 1, "finetune": 2},
    "encoder": {"model": "encoder.json"},
    "conditions": [{"train_size": 120}, {"train_size": 240, "spaces": ["kmeans-4"]}],
    "label_spaces": {
        "random": [4],
        "random_instance": True,
        "kmeans": [4],
        "kmeans_superclass": [2],
        "rebalanced": {"clusters": [2, 3], "thresholds": [4]},
    },
    "jobs": {"pretrain": "family", "finetune": "family"},
}
CHAIN = Path("results/small/train-120")
TRAINED = {"pretrain", "finetune", "measure"}


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    """A small configuration, in a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    config = Config.model_validate(SMALL)
    Path("small.yaml").write_text(json.dumps(SMALL))
    Path("encoder.json").touch()
    return config


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A finished run, which no test changes."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("encoder.json").touch()
        minimal_results.write(Plan(Config.model_validate(SMALL)))
    return folder / "results"


@pytest.fixture
def finished(config, made) -> Config:
    shutil.copytree(made, "results", symlinks=True)
    return config


def look(config: Config) -> list[status.Job]:
    return status.look(Plan(config))


def states(config: Config) -> Counter:
    return Counter(job.state for job in look(config))


def job_at(config: Config, folder: Path) -> status.Job:
    return next(job for job in look(config) if job.folder == folder)


def reseal(folder: Path, change) -> None:
    """Change a manifest as if it had been written so."""
    file = folder.resolve() / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["seal"]
    change(manifest)
    manifest["digest"], manifest["key"] = content_digest(manifest), key_of(manifest)
    file.chmod(0o644)
    file.write_text(as_text(manifest))
    made = file.parent.rename(file.parent.with_name(manifest["key"]))
    place.point(folder, made, manifest["kind"], manifest["digest"])


def spoil(file: Path, text: str) -> None:
    file.chmod(0o644)
    file.write_text(text)


def tree() -> dict[str, tuple]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in Path().rglob("*")}


# ---------------------------------------------------------------- results


def test_nothing_is_there(config):
    assert set(states(config)) == {"waiting"}
    assert not Path("results").exists()
    count = str(len(look(config)))
    last = status.describe(look(config)).splitlines()[-1]
    assert last.split() == ["all", count, "-", "-", "-", count, "-", "-", "-"]


def test_a_finished_run_is_done_and_nothing_is_written(finished):
    before = tree()
    jobs = look(finished)
    text = status.describe(jobs)
    assert tree() == before
    assert {job.state for job in jobs} == {"done"}
    assert {job.stage for job in jobs} == set(STAGES) - {"duplicates", "theory", "verdicts", "gather"}
    assert Counter(job.stage for job in jobs if job.wildcards.get("condition") == "train-120")["hierarchy"] == 7
    assert "outdated" not in text and "interrupted" not in text


def test_another_input_makes_what_follows_outdated(finished):
    made = Artifact.peek(CHAIN / "cluster/whole-4")
    origin = {name: made.manifest[name] for name in ORIGIN} | {"machine": {"cpu": "another"}}
    with store_writer.create(made.path, origin, {}, made.params, made.manifest["facts"]) as out:
        out.text("assignment.parquet", "another clustering")
    outdated = {str(job.folder) for job in look(finished) if job.state == "outdated"}
    assert outdated == {
        f"{CHAIN}/hierarchy/kmeans-4",
        f"{CHAIN}/pretrain/resnet18/kmeans",
        f"{CHAIN}/finetune/target/resnet18/kmeans",
        f"{CHAIN}/measure/probe/resnet18/all",
        "results/small/report",
    }
    assert job_at(finished, CHAIN / "measure/probe/resnet18/all").detail == ("made from other inputs",)


def test_other_code_and_other_versions_are_outdated(finished):
    reseal(CHAIN / "pixels", lambda manifest: manifest["code"].update(digest="0" * 16))
    reseal(CHAIN / "samples", lambda manifest: manifest.update(schema_version=0))
    reseal(CHAIN / "encoder", lambda manifest: manifest["packages"].update(pillow="1"))
    assert job_at(finished, CHAIN / "encoder").detail == ("made with other versions of packages",)
    assert job_at(finished, CHAIN / "pixels").detail == ("made by other code",)
    assert job_at(finished, CHAIN / "samples").detail == ("written by another version of this program",)
    text = status.describe(look(finished))
    assert "outdated\n  1 written by another version of this program\n  1 made by other code\n" in text


def test_a_folder_that_may_not_be_entered_is_a_failure_of_its_jobs(finished, monkeypatch):
    exists = Path.exists

    def refuse(path):
        if path == place.stamp_of(CHAIN / "samples"):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", refuse)
    assert job_at(finished, CHAIN / "samples").detail == (f"{CHAIN / 'samples.stamp'}: Permission denied",)


def test_a_changed_option_makes_its_stages_outdated(finished):
    """A run's id digests all that it is made from, so an early change shows in every stage that names runs."""
    for change, kinds in (
        ({"cluster": {"restarts": 9}}, {"cluster", *TRAINED}),
        ({"pixels": {"size": 16}}, {"pixels", *TRAINED}),
        ({"pretrain": {"lr": 0.1}}, TRAINED),
        ({"finetune": {"lr": 0.1}}, {"finetune"}),
        ({"model": {"args": {"stem_width": 8}}}, TRAINED),
        ({"probe": {"neighbours": 3}}, {"measure"}),
        ({"encoder": {"model": "encoder.json", "batch_size": 5}}, {"embed", *TRAINED}),
        ({"encoder": {"model": "encoder.json", "captions": {"epochs": 3}}}, {"encoder", *TRAINED}),
        ({"samples": {"validation": 800}}, {"samples", *TRAINED}),
        ({"jobs": {"measure": "condition"}}, set()),
        ({"report": {"title": "Another"}}, set()),
    ):
        found = [job for job in look(Config.model_validate({**SMALL, **change})) if job.state == "outdated"]
        assert {job.stage for job in found} - {"report"} == kinds, change
        assert {job.detail for job in found} <= {("made with other parameters",)}


def test_damage_counts_as_failed(finished):
    spoil(CHAIN / "pixels/moments.json", "")
    (CHAIN / "cluster/whole-4/centroids.npy").unlink()
    spoil(CHAIN / "measure/probe/resnet18/all/manifest.json", "{")
    assert "0 bytes, the manifest says" in job_at(finished, CHAIN / "pixels").detail[0]
    assert "centroids.npy: missing" in job_at(finished, CHAIN / "cluster/whole-4").detail[0]
    assert "corrupt (not a manifest)" in job_at(finished, CHAIN / "measure/probe/resnet18/all").detail[0]
    assert states(finished)["failed"] == 3


# ---------------------------------------------------------------- logs


TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    1 / 0\nZeroDivisionError: zero\n'
)
STOPPED = "stopped: SIGTERM; finished work is kept, and the next run continues from there"
NO_COMMAND = "/bin/bash: line 1: granularity: command not found"


@pytest.mark.parametrize(
    ("log", "state", "shown"),
    [
        ("", "waiting", []),
        ("hashing: 3 of 9 chunks\n", "waiting", []),
        ("some progress\nerror: no space left\n\n", "failed", ["error: no space left"]),
        ("error: a: first\nb: second\n", "failed", ["error: a: first", "b: second"]),
        ("x\n" * 9999 + STOPPED, "failed", [STOPPED]),
        (TRACEBACK, "failed", TRACEBACK.splitlines()[-3:]),
        (NO_COMMAND, "failed", [NO_COMMAND]),
        ("a warning about an error: it is none\nand on\n", "waiting", []),
        (b"\xff\xfe\nerror: \xff\n", "failed", ["error: \ufffd"]),
    ],
)
def test_the_end_of_a_log_says_whether_a_job_failed(config, log, state, shown):
    file = Path("results/small/logs/train-120/cluster/whole-4.log")
    file.parent.mkdir(parents=True)
    file.write_bytes(log if isinstance(log, bytes) else log.encode())
    job = job_at(config, CHAIN / "cluster/whole-4")
    assert job.log == file
    assert (job.state, list(job.detail)) == (state, shown)
    if state == "failed":
        lines = [f"  {job.folder}", *(f"      {line}" for line in shown), f"      {file}"]
        assert " ".join(status.describe([job]).split()).endswith(" ".join(" ".join(lines).split()))


# ---------------------------------------------------------------- writers


WRITER = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from granularity import cli
from granularity.base import interrupt
from granularity.base.progress import say
from support import writing

def work():
    with writing.create(sys.argv[1], "pretrain", resumable=True) as out:
        say("pretraining: 3 of 6 runs, 50 %, about 10 s left")
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
            interrupt.stop_if_requested()

cli.app = work
cli.main()
"""


@pytest.fixture
def writer(config):
    """A real process that works on the pretraining of k-means, with its log where the rule has it."""
    job = job_at(config, CHAIN / "pretrain/resnet18/kmeans")
    job.log.parent.mkdir(parents=True)
    with job.log.open("w") as log:
        command = [sys.executable, "-c", WRITER, str(job.folder)]
        tests = os.pathsep.join([str(Path(writing.__file__).parents[1]), *sys.path])
        environment = os.environ | {"PYTHONPATH": tests}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_a_running_stage_and_a_killed_one(config, writer):
    before = tree()
    job = job_at(config, CHAIN / "pretrain/resnet18/kmeans")
    assert (job.state, job.detail) == ("running", ("pretraining: 3 of 6 runs, 50 %, about 10 s left",))
    assert (job.claim["pid"], job.claim["host"]) == (writer.pid, lock.host())
    assert f"{job.folder} {lock.host()}, process {writer.pid}, since 20" in " ".join(status.describe([job]).split())
    assert tree() == before
    how_many, bar = status.bars([job])
    assert how_many == "1 running, of 1 jobs" and bar.startswith("pretrain ") and " s left" in bar

    writer.kill()  # not yet waited for: a zombie is dead too, once the kernel has taken back its lock
    ends = time.monotonic() + 60
    while job_at(config, CHAIN / "pretrain/resnet18/kmeans").state == "running" and time.monotonic() < ends:
        time.sleep(0.01)
    assert job_at(config, CHAIN / "pretrain/resnet18/kmeans").state == "interrupted"
    writer.wait()
    job = job_at(config, CHAIN / "pretrain/resnet18/kmeans")
    assert job.state == "interrupted"
    assert "finished work is kept" in job.detail[-1]
    assert f"process {writer.pid}" in status.describe([job])
    (left,) = Path("results/.store/.locks").iterdir()
    left.unlink()
    assert job_at(config, CHAIN / "pretrain/resnet18/kmeans").state == "interrupted"  # its work is still there


def leave_claim(folder: Path, beat: float, **over) -> Path:
    store = place.store_of(folder)
    about = {"token": "t", "key": "k", "host": lock.host(), "pid": os.getppid(), "job": None, "started": time.time()}
    about["output"] = place.name_in(store, folder)
    file = place.lock_file(store, "any", "k")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(about | over))
    os.utime(file, (beat, beat))
    return file


def test_a_writer_on_another_node_lives_while_it_touches_its_claim(config):
    folder = CHAIN / "cluster/whole-4"
    leave_claim(folder, time.time() - 20, host="node17", pid=1, job="4711")
    job = job_at(config, folder)
    assert job.state == "running"
    assert "node17, process 1, Slurm job 4711, since" in " ".join(status.describe([job]).split())
    leave_claim(folder, time.time() - 90, host="node17", pid=1)
    assert job_at(config, folder).state == "interrupted"


def test_a_result_without_its_stamp_or_with_another_is_told(finished):
    stamp = place.stamp_of(CHAIN / "pixels")
    stamp.write_text("pixels " + "0" * 64 + "\n")
    assert "this stamp belongs to another result" in job_at(finished, CHAIN / "pixels").detail[0]
    stamp.unlink()
    assert job_at(finished, CHAIN / "pixels").state == "waiting"
    (CHAIN / "samples").unlink()
    assert "there is no artifact here" in job_at(finished, CHAIN / "samples").detail[0]


def test_a_result_is_running_while_it_is_made_again_and_done_after_a_late_kill(finished):
    leave_claim(CHAIN / "samples", time.time())
    assert job_at(finished, CHAIN / "samples").state == "running"
    leave_claim(CHAIN / "samples", time.time(), kernel=lock._kernel())  # killed just after publishing
    job = job_at(finished, CHAIN / "samples")
    assert (job.state, job.claim) == ("done", None)


# ---------------------------------------------------------------- theory, costs, command


def test_a_world_of_the_theory_is_shown_once_it_has_left_a_trace(finished):
    assert not {job.stage for job in look(finished)} & {"theory", "verdicts"}
    plan = Plan(finished)
    minimal_results.create(plan, plan.jobs("theory", world="neural_collapse")[0], {})
    found = [job for job in look(finished) if job.stage in ("theory", "verdicts")]
    assert {job.wildcards.get("world", job.wildcards.get("study")) for job in found} == {"neural_collapse"}
    assert Counter(job.state for job in found) == {"done": 1, "waiting": theory.PARTS}
    assert "theory     theory" in status.describe(look(finished))


def test_gpus_appear_where_one_was_used(finished, monkeypatch):
    def on_gpu(manifest):
        manifest["hardware"]["gpu"] = "H200"
        manifest["cost"] |= {"wall_seconds": 7200.0, "gpu_peak_memory_mb": 41_000.0}

    reseal(CHAIN / "pretrain/resnet18/kmeans", on_gpu)
    reseal(CHAIN / "cluster/whole-4", lambda manifest: manifest["params"].update(gpu=True))
    rows = {row["stage"]: row for row in by_stage(job.artifact for job in look(finished))}
    assert (rows["pretrain"]["gpu_seconds"], rows["pretrain"]["gpu_peak_memory_mb"]) == (7200.0, 41_000.0)
    assert rows["cluster"]["gpu_seconds"] > 0 and rows["cluster"]["gpu_peak_memory_mb"] is None
    assert (rows["samples"]["gpu_seconds"], rows["samples"]["gpu_peak_memory_mb"]) == (0, None)
    text = status.describe(look(finished))
    states, costs = text.split("\n\n")[:2]
    assert states.splitlines()[0].endswith("waiting") and costs.splitlines()[0].endswith("GPU  GPU memory")
    assert next(line for line in costs.splitlines() if " pretrain " in line).endswith("2.0 h     41.0 GB")
    assert max(map(len, text.splitlines())) <= 80


def test_the_command(finished, monkeypatch):
    def run(*options):
        return CliRunner().invoke(cli.app, ["status", *options])

    assert run("-f", "small.yaml").exit_code == 0
    assert " done, of " in run("--watch", "-f", "small.yaml").stdout  # and ends, as nothing is left to make
    found = json.loads(run("--json", "-f", "small.yaml").stdout)
    assert found["root"] == "results/small"
    assert found["total"]["done"] == found["total"]["jobs"] == len(found["jobs"])
    Path("more.yaml").write_text("name: other")
    other = json.loads(run("--json", "-f", "small.yaml", "-f", "more.yaml").stdout)
    assert other["total"]["waiting"] == len(found["jobs"])
    spoil(CHAIN / "pixels/manifest.json", "{")
    failed = run("--json", "-f", "small.yaml")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["total"]["failed"] == 1
    monkeypatch.setattr(status.lock, "SILENT_SECONDS", 0.0)
    for name in ("report", "report.stamp"):
        Path("results/small", name).unlink()
    assert states(finished)["waiting"] and run("--watch", "-f", "small.yaml").exit_code == 1  # it would wait in vain


def test_a_configuration_that_was_never_run_is_one_line_and_the_default_is_config_yaml(finished):
    def run(*options):
        return CliRunner().invoke(cli.app, ["status", *options]).stdout

    never = "was never run here; there are results of small (granularity status -f FILE"
    assert run().startswith(f"digits {never}")  # the workflow's own default: there is none in this folder
    Path("config").mkdir()
    Path("config/config.yaml").write_text("name: mine\n")
    assert run().startswith(f"mine {never}")
    Path("config/config.yaml").write_text(json.dumps(SMALL))
    Path("more.yaml").write_text("report: {title: Another}")
    for files in ((), ("-f", "./config/config.yaml", "-f", "more.yaml")):
        assert run(*files).splitlines()[0].split()[:3] == ["stage", "jobs", "done"]
        assert json.loads(run("--json", *files))["root"] == "results/small"


def test_a_configuration_lies_in_that_of_a_workflow_that_has_this_one_as_a_module(finished):
    Path("outer.yaml").write_text(json.dumps({"samples": "table.tsv", "granularity": SMALL}))
    found = CliRunner().invoke(cli.app, ["status", "--json", "-f", "outer.yaml"])
    assert json.loads(found.stdout)["total"]["waiting"] == 0


def left_over(root="results") -> list[Path]:
    return inspection.left_over(place.find(root), Path(root))


def test_results_that_the_report_does_not_use_are_left_over(finished):
    assert left_over() == []
    later = Config.model_validate(SMALL | {"jobs": {"pretrain": "space", "finetune": "space"}})
    minimal_results.write(Plan(later))
    before, now = (
        {plan.folder(job) for stage in STAGES for job in plan.jobs(stage)} for plan in map(Plan, (finished, later))
    )
    left = set(left_over())
    assert left and left == {folder for folder in before - now if folder.exists()}
    again = min(left)  # made since the report: of a run that has not come to its report
    os.utime(place.stamp_of(again), (time.time() + 9,) * 2)
    assert set(left_over()) == left - {again}


def test_draws_that_a_study_has_no_more_are_left_over(monkeypatch, tmp_path):
    """Whether or not they came to their report; and what a single configuration of that name made, or the reverse."""
    monkeypatch.chdir(tmp_path)
    single, *studies = (
        plans(Config.model_validate(SMALL | {"name": "study", "seeds": {"draws": draws}})) for draws in (1, 2, 3)
    )
    two, three = studies
    minimal_results.write(*three)
    assert left_over() == []
    stopped = Path("results/study/draw-2/report")
    place.stamp_of(stopped).unlink()
    stopped.unlink()
    minimal_results.write(*two)
    assert {*left_over()} == {*place.find("results/study/draw-2")}
    assert left_over("results/study/draw-2") == []  # asked for by name
    minimal_results.write(*single)
    assert {path.parts[2] for path in left_over()} == {"draw-0", "draw-1", "draw-2"}
    os.utime(place.stamp_of(Path("results/study/gather")), (time.time() + 9,) * 2)
    assert {path.parts[2] for path in left_over()} == {"draw-2", "train-120", "train-240"}
