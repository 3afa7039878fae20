"""A source of one's own: one file outside the package, found by name, with keys of its own."""

import re
from pathlib import Path

import pytest
from PIL import Image

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.stages.samples import options
from granularity.stages.samples.options import samples_section
from support import tasks
from support.sampling import save, section

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


@pytest.mark.parametrize("key", ["ranks", "train_size", "show", "hub"])
def test_a_key_that_there_is_already_is_refused(own, key):
    own(f'OPTIONS = {{"{key}": (int, Field(4))}}\n')
    with pytest.raises(GranularityError, match=f"source 'squares': OPTIONS: there is already a key '{key}'; rename it"):
        samples_section()


@pytest.fixture
def lists(tmp_path, own) -> dict:
    """Options that read three images by the example's source."""
    for grey, name in ((10, "a/1.png"), (20, "a/2.png"), (30, "b/1.png")):
        save(tmp_path / "root" / name, Image.new("L", (4, 4), grey))
    (tmp_path / "root" / "images.txt").write_text("a/2.png\tcat\nb/1.png\tdog\na/1.png\tcat\n")
    own(EXAMPLE, "lists", "")
    ranks = {"ranks": ["label"], "target": "label"}
    return {"source": "lists", "root": str(tmp_path / "root"), "listing": "images.txt", "validation": 1, **ranks}


def test_its_files_count(lists, tmp_path):
    assert options.files(section(**lists)) == [str(tmp_path / "root" / "images.txt")]
    with pytest.raises(GranularityError, match=r"root: no known label for 1 images, such as 'b/1\.png'"):
        (tmp_path / "root" / "images.txt").write_text("a/2.png\tcat\nb/1.png\n")
        tasks.run("samples", tmp_path / "samples", lists)
