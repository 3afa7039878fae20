"""The code digest: what an edit makes again, and what it does not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from granularity import cli
from granularity.plan import jobs
from granularity.store import code

PACKAGE = Path(code.__file__).parent


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """A copy of the package that a test may edit; returns a function that edits and gives the changed kinds."""
    copy = tmp_path / "granularity"
    shutil.copytree(PACKAGE, copy)
    monkeypatch.setattr(code, "ROOT", copy)

    def forget():
        code.code_digest.cache_clear()
        code._read.cache_clear()

    def digests():
        forget()
        return {kind: code.code_digest(module) for kind, module in jobs.MODULES.items()}

    before = digests()

    def edit(file, old, new):
        text = (copy / file).read_text()
        assert old in text
        (copy / file).write_text(text.replace(old, new, 1))
        after = digests()
        return {kind for kind in before if before[kind] != after[kind]}

    yield edit
    forget()


def test_an_edit_to_one_stage_changes_that_stage_alone(edited):
    assert edited("cluster.py", "niter=1", "niter=2") == {"clusters"}


def test_an_edit_to_what_stages_share_changes_those_that_import_it(edited):
    assert edited("training/data.py", "< 0.5", "< 0.4") == {"pretrain", "finetune", "probe"}


def test_an_edit_to_the_ground_floor_changes_everything(edited):
    assert edited("artifacts.py", '"samples": 2', '"samples": 3') == set(jobs.MODULES)


def test_comments_and_docstrings_do_not_count(edited):
    assert edited("cluster.py", '"""Stage `clusters`', '# words\n"""Other words about stage') == set()


def test_an_option_does_not_count_by_itself(edited):
    assert edited("config.py", "iterations: Count = Field(25", "iterations: Count = Field(26") == set()


def test_templates_count(edited):
    assert edited("report/page.css", "{", "{ ") == {"report"}


def test_no_stage_imports_another():
    stages = {kind: module for kind, module in jobs.MODULES.items() if kind != "report"}
    for kind, module in stages.items():
        others = set(stages.values()) - {module}
        assert not code.import_closure(module) & others, kind


@pytest.mark.parametrize("arguments", [["--help"], ["cluster", "--help"], ["config", "check"], ["status"]])
def test_help_and_planning_do_not_import_torch(arguments):
    script = (
        "import sys; from granularity import cli\n"
        f"sys.argv = ['granularity', *{arguments!r}]\n"
        "try: cli.app()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'faiss', 'open_clip', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=PACKAGE.parents[1])
    assert done.returncode == 0, done.stderr


def test_a_command_digests_the_code_of_its_stage_before_it_imports_it(monkeypatch):
    """An edit while the job waits for a GPU would else be taken for what it computes with."""
    monkeypatch.setattr(sys, "argv", ["granularity", "embed", "--help"])
    code.code_digest.cache_clear()
    cli._remember_code()
    assert code.code_digest.cache_info().currsize == 1
    code.code_digest(jobs.MODULES["embedding"])
    assert code.code_digest.cache_info().hits == 1
    assert set(cli.MAKES.values()) == set(jobs.MODULES)
    assert set(cli.MAKES) < {command.name or command.callback.__name__ for command in cli.app.registered_commands}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), 1),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), 1),
        (RuntimeError("else"), None),
    ],
)
def test_too_little_memory_is_one_line(monkeypatch, capsys, error, status):
    def app():
        raise error

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(cli.interrupt, "install", lambda: None)
    with pytest.raises(RuntimeError if status is None else SystemExit):
        cli.main()
    assert ("error: out of memory; give the job more" in capsys.readouterr().err) == (status == 1)
