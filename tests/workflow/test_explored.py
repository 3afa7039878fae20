"""`snakemake explore`: the pages to look through the results, and the same in Snakemake's own report."""

import zipfile

import pytest

from support import tiny_chain

pytestmark = pytest.mark.workflow


def test_the_pages_are_in_snakemakes_own_report(tiny):
    words = tiny_chain.configure(tiny)
    tiny.snakemake("explore", *words)
    tiny.snakemake("explore", "--report", "pages.zip", *words)
    pages = tiny.path("results/tiny/shown/explore")
    made = {path.relative_to(pages).as_posix(): path for path in pages.rglob("*.*") if path.is_file()}
    with zipfile.ZipFile(tiny.path("pages.zip")) as archive:
        (index,) = (name for name in archive.namelist() if name.endswith("/index.html"))
        for name, path in made.items():
            if not name.startswith("."):
                assert archive.read(index.replace("index.html", name)) == path.read_bytes(), name
    assert "train-60/map.html" in made and "all sound" in tiny.run("granularity", "verify", "results")
