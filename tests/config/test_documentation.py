"""The documentation: its examples are configurations, and the table of the eight tasks is the sum of its list."""

import csv
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import yaml

from granularity.base import extensions
from granularity.config import files
from granularity.plan.graph import Plan
from support import writing

ROOT = Path(__file__).parents[2]
DOCS = ("docs/recipes.md", "docs/development.md")


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [block.split("```")[0] for block in text.split(f"```{language}\n")[1:]]


EXAMPLES = [block for page in DOCS for block in blocks(page, "yaml") if not block.startswith("# R")]  # R1, ...: recipes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the examples name: the Python files of docs/development.md, weights, a backbone."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    for code in blocks("docs/development.md", "python"):
        name = code.split("\n", 1)[0].removeprefix("# ")
        if "/" not in name:
            (tmp_path / name).write_text(code)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/resnet18.safetensors").touch()
    with writing.create(tmp_path / "results/digits/train-300/pretrain/resnet18/manual", "pretrain") as out:
        out.text("backbones/manual-digit-p0-5c0f1d2a.safetensors", "")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    extensions.load([])


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split("\n", 1)[0])
def test_an_example_is_a_configuration(folder, text):
    plan = Plan(files.load("config/config.yaml", overrides=yaml.safe_load(text)))
    assert plan.jobs("pretrain") and plan.jobs("report")


def test_the_eight_tasks_are_counted_as_they_are_listed():
    listed: dict[tuple[str, str], Counter] = defaultdict(Counter)
    with open(ROOT / "docs/eight_tasks.csv", newline="") as stream:
        for row in csv.DictReader(stream):
            task = row["task"].split(" ", 1)[1]
            listed[task, row["project"]].update(files=1, read=int(row["read"]), edits=int(row["edits"]))
    page = (ROOT / "docs/development.md").read_text(encoding="utf-8")
    table = page[page.index("| task |") :].split("\n\n", 1)[0].split("\n")
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    assert len(rows) == 8 and {task for task, *_ in rows} == {task for task, _ in listed}
    for task, *cells in rows:
        for project, cell in zip(header[1:], cells, strict=True):
            count = listed[task, project]
            assert cell == (f"{count['files']} / {count['read']} / {count['edits']}" if count else "–"), (task, project)
