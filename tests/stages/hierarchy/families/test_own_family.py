"""A family of the user's own: one file, from the options it takes to how the report draws it."""

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from granularity import cli
from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.look.spaces import checks
from granularity.stages.hierarchy.space import LONGEST, Space, label_spaces_section, spaces
from granularity.stages.report import series
from granularity.store.artifact import Artifact
from support import tasks

FAMILY = '''
"""Classes named alike: by the first letters of the finest rank."""

from pydantic import Field

from granularity.base.section import Count
from granularity.stages.hierarchy.checks import compare
from granularity.stages.hierarchy.labels import Labels
from granularity.stages.hierarchy.space import Space

EXTENDS = "family"
OPTION = (list[Count], Field([1], description="First letters of the finest rank: how many."))
WORDS = "first letters"
STYLE = ("#123456", "d")


def spaces(option, samples):
    for letters in option:
        yield Space(f"letters-{letters}", "letters", {"letters": letters})


def check(option, config):
    for letters in option:
        if letters > 9:
            yield f"label_spaces.letters: {letters} letters are too many"


def labels(training, letters):
    import numpy as np

    names, values = np.unique(training.frame[training.finest].astype("str").str[:letters], return_inverse=True)
    return Labels(values.astype(np.int32), names.tolist(), notes={"letters": letters})


def more_files(training, letters):
    return {"more_words.parquet": training.frame[[training.finest]]}


def checks(space, samples):
    yield compare("OWN", f"{space.params['space']}: classes", 3, space.json("properties.json")["granularity"])
'''


SAMPLES = SimpleNamespace(ranks=["kind", "species"], target="kind")  # what families look at


@pytest.fixture
def own(tmp_path):
    """The file, loaded; forgotten afterwards."""
    file = tmp_path / "elsewhere" / "letters.py"
    file.parent.mkdir()
    file.write_text(FAMILY)
    extensions.load([file])
    yield file
    extensions.load([])


@pytest.fixture
def made(own, tmp_path, make_samples) -> tuple[Artifact, Artifact]:
    """A label space of the family, and its sample table."""
    species = ["crow", "carp", "owl", "eel", "crow"]
    kinds = ["bird", "fish", "bird", "fish", "bird"]
    samples = make_samples(tmp_path / "samples", ["train"] * 5, {"kind": kinds, "species": species}, "kind", source="x")
    options = {"space": "letters-1", "family": "letters", "params": {"letters": 1}}
    return tasks.run("hierarchy", tmp_path / "space", options, samples=samples), Artifact.open(samples)


def test_its_key_is_an_option_with_a_default_and_bounds(own):
    section = label_spaces_section()
    assert list(section.model_fields)[-1] == "letters"
    assert section().letters == [1] and section(letters=[2, 3]).letters == [2, 3]
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        section(letters=[0])
    with pytest.raises(ValidationError, match=r"a value is given twice: \[2, 2\]"):
        section(letters=[2, 2])
    extensions.load([])
    assert "letters" not in label_spaces_section().model_fields


def test_its_labels_are_made_and_checked(made):
    space, samples = made
    classes = space.table("classes.parquet")
    assert classes["name"].tolist() == ["c", "e", "o"]
    assert space.table("labels.parquet")["label"].tolist() == [0, 0, 2, 1, 0]
    assert space.summary["letters"] == 1
    assert space.table("more_words.parquet")["species"].tolist() == ["crow", "carp", "owl", "eel", "crow"]
    (check,) = checks(samples, [space])
    assert (check.id, check.verdict) == ("OWN", "holds")


def test_the_report_draws_it_as_it_says_and_without_it_all_the_same(own):
    space = Space("letters-1", "letters", {"letters": 1})
    assert series.series_of(space) == "letters"
    assert series.describe("letters")[:2] == ("first letters", ("#123456", "d"))
    places = [series.describe(one).place for one in ("manual", "letters", "one_pass", "nobody")]
    assert places == sorted(set(places))
    extensions.load([])
    assert series.describe("letters")[:2] == ("letters", series.DEFAULT)
    above = Space("topdown-3", "nested", {"direction": "topdown", "clusterings": ["whole-3"], "level": 1})
    assert series.describe(series.series_of(above)).words == "k-means tree, split from above"


@pytest.mark.parametrize(
    ("cut", "instead", "message"),
    [
        ("def labels(", "def label(", "letters.py: a family of label spaces needs labels"),
        (
            'f"letters-{letters}"',
            '"random-10"',
            "label_spaces.letters: 'random-10' is already the name of a label space of random",
        ),
        ('EXTENDS = "family"', 'EXTENDS, NEEDS = "family", ("embed",)', "a family may need only"),
        ('"letters", {"letters"', '"manual", {"letters"', "gives letters-1 the wrong family 'manual'"),
        ("EXTENDS =", "KIND =", "letters.py: must define EXTENDS as one of"),
    ],
)
def test_a_file_that_would_fail_later_is_refused_first(own, cut, instead, message):
    assert cut in FAMILY
    own.write_text(FAMILY.replace(cut, instead))
    with pytest.raises(GranularityError, match=message):
        extensions.load([own])
        spaces(label_spaces_section()(random=[10]), SAMPLES)


BAD = ["../../evil", "{wild}", "x.stamp", "a b", "-x", "x\n", "", "x" * 240, 3]


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_a_name_that_would_fail_later_is_refused_first(own, tmp_path, name):
    own.write_text(FAMILY.replace('f"letters-{letters}"', repr(name)))
    (tmp_path / "own.yaml").write_text(f"extensions: [{own}]\n")
    error = CliRunner().invoke(cli.app, ["config", "check", "-f", str(tmp_path / "own.yaml")]).exception
    assert isinstance(error, GranularityError)
    (line,) = str(error).splitlines()
    assert f"label_spaces.letters: {repr(name)[:70]}" in line
    assert line.endswith(f"does not end in .stamp, and is no longer than {LONGEST} bytes")


def test_the_images_are_opened_when_they_are_used(own, made, tmp_path, make_array):
    """They are read in the rows of the sample table; without NEEDS, and without them, it is said what is missing."""
    samples, values = made[1].path, np.arange(5, dtype=np.uint8).reshape(5, 1, 1, 1)
    given = {"samples": samples, "pixels": make_array(tmp_path / "pixels", "pixels", samples, values)}
    looks = "    from granularity.data.shards import pictures\n    images = pictures(training.pixels)\n"
    looks += "    light = [images[row].item() for row in training.rows(training.frame)]\n"
    looks += "    return Labels(training.frame.index.to_numpy().astype('int32'), light)\n"
    text = FAMILY.replace("    import numpy as np\n", looks)
    options = {"space": "letters-1", "family": "letters", "params": {"letters": 1}}

    def run(text, **inputs):
        own.write_text(text)
        extensions.load([own])
        return tasks.run("hierarchy", tmp_path / "space", options, **inputs)

    with pytest.raises(GranularityError, match=r"must declare NEEDS = \(\"pixels\",\)"):
        run(text, **given)
    text = text.replace('EXTENDS = "family"', 'EXTENDS, NEEDS = "family", ("pixels",)')
    with pytest.raises(GranularityError, match="give --pixels"):
        run(text, samples=samples)
    assert run(text, **given).table("classes.parquet")["name"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("stem", ["{wild}", "_x", "x.stamp"])
def test_a_file_whose_name_is_none_is_refused(own, stem):
    extensions.load([own.rename(own.with_name(f"{stem}.py"))])
    with pytest.raises(GranularityError, match=f"'{stem}' cannot name a family: .*; rename the file"):
        label_spaces_section()
