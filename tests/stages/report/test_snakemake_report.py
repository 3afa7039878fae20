"""Snakemake's own report: a page that holds ours, its figures and its tables, each with a caption."""

import contextlib
import json
import re
import zipfile

import pytest

from granularity.config import files
from support import synthetic_results
from support.checkout import Checkout

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Results that are there, as far as Snakemake can tell; nothing was trained."""
    found = Checkout(tmp_path_factory.mktemp("checkout"))
    own = {"name": "small", "conditions": [{"train_size": 120}], "label_spaces": {"kmeans": [10]}}
    found.path("shown.yaml").write_text(json.dumps(own))
    with contextlib.chdir(found.folder):
        plan = synthetic_results.write(files.load("shown.yaml"))
        synthetic_results.write_report(plan)
    return found


def test_it_holds_the_page_its_figures_and_its_tables_with_captions(checkout):
    words = ["--configfile", "shown.yaml", "--cores", "1", "--rerun-triggers", "mtime"]
    checkout.snakemake(*words)
    checkout.snakemake(*words, "--report", "report.zip")
    made = checkout.path("results/small/report")
    with zipfile.ZipFile(checkout.path("report.zip")) as archive:
        held = {name.rsplit("/", 1)[1]: name for name in archive.namelist() if "/data/" in name}
        for file in [made / "report.html", *made.glob("figures/*.svg"), *made.glob("tables/*.csv")]:
            assert archive.read(held[file.name]) == file.read_bytes(), file.name
        index = archive.read("report/report.html").decode()
    assert set(held) == {"report.html", *(file.name for file in made.glob("*/*") if file.suffix != ".parquet")}
    categories = json.loads(re.search(r"var categories = (\{.*?\});?\s*$", index, flags=re.MULTILINE)[1])
    assert {name: len(found["Other"]) for name, found in categories.items()} == {
        "Page": 1,
        "Figures": len(list(made.glob("figures/*.svg"))),
        "Tables": len(list(made.glob("tables/*.csv"))),
    }
    assert "per family of label spaces" in index and "As on the page." not in index  # every part has a caption
