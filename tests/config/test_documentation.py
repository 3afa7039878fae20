"""The documentation: its examples are configurations, its links lead somewhere, its tables are made."""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from granularity.base import extensions
from granularity.config import files
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from support import writing

ROOT = Path(__file__).parents[2]
DOCS = ("docs/recipes.md", "docs/draws.md", "docs/jobs.md", "docs/development.md")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "profiles/*.md", "config/*.md")
    for path in ROOT.glob(pattern)
)


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


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            there = (ROOT / page).parent / name if name else ROOT / page
            assert there.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(there), f"{page}: {target}"


def test_the_page_of_the_design_lists_the_stages_in_their_order():
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/design.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert rows == list(STAGES)


def test_the_table_of_speeds_is_made_from_the_rows(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import run

    rows = [json.loads(line) for line in run.MEASURED.read_text(encoding="utf-8").splitlines()]
    text = run.PAGE.read_text(encoding="utf-8")
    assert run.page(text, rows) == text
    sys.modules.pop("run")


def test_the_page_of_results_is_made_from_the_tables_beside_it(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs/results"))
    import page

    for name in page.PAGES:
        assert page.page(name) == (ROOT / "docs" / name).read_text(encoding="utf-8"), name
    committed = pd.read_csv(page.COMMITTED, keep_default_na=False, dtype=str)
    judged = page.claims.rows()[committed.columns]
    assert committed[committed["study"].isin(judged["study"])].to_dict("records") == judged.to_dict("records")
    sys.modules.pop("page")
