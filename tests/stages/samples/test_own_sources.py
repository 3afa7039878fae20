"""A source of one's own: one file outside the package, found by name, with keys of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from pydantic import ValidationError
from typer.testing import CliRunner

from granularity import cli
from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages import STAGES
from granularity.stages.samples import options, source
from granularity.stages.samples.options import samples_section, stage_section
from granularity.store import code
from granularity.store.artifacts import Artifact
from support import tasks
from support.sampling import save, section, table_of

DOCUMENT = Path(__file__).parents[3] / "docs" / "datasets.md"
EXAMPLE = re.search(r"```python\n# lists\.py\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]


@pytest.fixture
def own(tmp_path):
    """Returns a function that loads a source from a file outside the package; afterwards there is none again."""

    def load(text: str, name: str = "squares", head: str = 'EXTENDS = "source"\nfrom pydantic import Field\n') -> Path:
        file = tmp_path / f"{name}.py"
        file.write_text(head + text)
        extensions.load([file])
        return file

    yield load
    extensions.load([])


def test_a_key_of_an_extension_comes_and_goes(own):
    own('OPTIONS = {"side": (int, Field(4, ge=1, description="Of a square."))}\nNEEDS_ROOT = False\n')
    params = section(source="squares")
    assert params.side == 4 and options.of_source(params)["side"] == 4
    with pytest.raises(ValidationError, match="side: is for source 'squares', not for 'digits'"):
        section(side=5)
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        section(source="squares", side=0)
    assert samples_section().model_fields["side"].description == "Of a square."
    extensions.load([])
    assert "side" not in samples_section().model_fields


def test_an_extension_changes_nothing_of_other_sources(own):
    before = options.of_source(section())
    own('OPTIONS = {"side": (int, Field(4))}\n')
    assert options.of_source(section()) == before


@pytest.mark.parametrize("key", ["ranks", "train_size", "show", "hub"])
def test_a_key_that_there_is_already_is_refused(own, key):
    own(f'OPTIONS = {{"{key}": (int, Field(4))}}\n')
    with pytest.raises(GranularityError, match=f"source 'squares': OPTIONS: there is another key '{key}' already"):
        samples_section()


def test_two_sources_may_share_a_key(own):
    own('from granularity.stages.samples.options import LABELS\nOPTIONS = {"labels": LABELS}\nNEEDS_ROOT = False\n')
    assert str(section(source="squares", labels="x").labels) == "x"


# ---------------------------------------------------------------- the example of docs/datasets.md


@pytest.fixture
def lists(tmp_path, own) -> dict:
    """Options that read three images by the example's source."""
    for grey, name in ((10, "a/1.png"), (20, "a/2.png"), (30, "b/1.png")):
        save(tmp_path / "root" / name, Image.new("L", (4, 4), grey))
    (tmp_path / "root" / "images.txt").write_text("a/2.png\tcat\nb/1.png\tdog\na/1.png\tcat\n")
    own(EXAMPLE, "lists", "")
    ranks = {"ranks": ["label"], "target": "label"}
    return {"source": "lists", "root": str(tmp_path / "root"), "listing": "images.txt", "validation": 1, **ranks}


def test_the_source_is_read(lists):
    found = source.find(section(**lists))
    assert found.ranks == ["label"]
    assert found.frame["file"].tolist() == ["a/2.png", "b/1.png", "a/1.png"]


def test_the_stage_makes_its_table(lists, tmp_path):
    made = tasks.run("samples", tmp_path / "samples", lists)
    table = table_of(made.path)
    assert table[["file", "label"]].values.tolist() == [["a/2.png", "cat"], ["b/1.png", "dog"], ["a/1.png", "cat"]]
    assert table["split"].value_counts().to_dict() == {"train": 2, "val": 1}
    assert [Images(made).load(i, "L").getpixel((0, 0)) for i in range(3)] == [20, 30, 10]
    assert made.params["listing"] == "images.txt" and not {"hub", "labels", "shifted"} & made.params.keys()


def test_its_files_count(lists, tmp_path):
    assert options.files(section(**lists)) == [str(tmp_path / "root" / "images.txt")]
    with pytest.raises(GranularityError, match=r"images\.txt: line 2: is no path, a tab and a label"):
        (tmp_path / "root" / "images.txt").write_text("a/2.png\tcat\nb/1.png\n")
        tasks.run("samples", tmp_path / "samples", lists)


def test_its_code_counts_and_that_of_no_other_source(lists, tmp_path):
    def key(**values) -> str:
        extensions.load([tmp_path / "lists.py"])
        for cached in (code.code_digest, code._read):  # files do not change within one process
            cached.cache_clear()
        return tasks.run("samples", tmp_path / "samples", values).manifest["key"]

    digits = {"validation": 60, "train_size": 20}
    ours, other = key(**lists), key(**digits)
    (tmp_path / "lists.py").write_text(EXAMPLE.replace('"\\t"', '"\\t", 1'))
    assert key(**lists) != ours and key(**digits) == other
    extensions.load([])
    assert tasks.run("samples", tmp_path / "samples", digits).manifest["key"] == other
    assert STAGES["samples"].code(stage_section()(**digits))[1:] == ("granularity.stages.samples.sources.digits",)


def test_the_command_takes_the_file(lists, tmp_path):
    extensions.load([])
    words = ["samples", "--options", json.dumps(lists), "--output", str(tmp_path / "samples")]
    refused = CliRunner().invoke(cli.app, words)
    assert "there is no such source" in str(refused.exception)
    made = CliRunner().invoke(cli.app, [*words, "--extension", str(tmp_path / "lists.py")])
    assert made.exit_code == 0, made.exception
    assert len(Artifact.open(tmp_path / "samples", "samples").table("samples.parquet")) == 3
