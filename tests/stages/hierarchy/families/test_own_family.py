"""A family of the user's own: one file, from the options it takes to how the report draws it."""

from types import SimpleNamespace

import pytest
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


def test_images_that_are_used_must_be_asked_for_and_given(own, made, tmp_path):
    looks = "    from granularity.data.shards import pictures\n    pictures(training.pixels)\n"
    text = FAMILY.replace("    import numpy as np\n", f"{looks}    import numpy as np\n")
    asked = text.replace('EXTENDS = "family"', 'EXTENDS, NEEDS = "family", ("pixels",)')
    options = {"space": "letters-1", "family": "letters", "params": {"letters": 1}}
    for family, words in ((text, r"must declare NEEDS = \(\"pixels\",\)"), (asked, "give --pixels")):
        own.write_text(family)
        extensions.load([own])
        with pytest.raises(GranularityError, match=words):
            tasks.run("hierarchy", tmp_path / "space", options, samples=made[1].path)


@pytest.mark.parametrize("stem", ["{wild}", "_x", "x.stamp"])
def test_a_file_whose_name_is_none_is_refused(own, stem):
    extensions.load([own.rename(own.with_name(f"{stem}.py"))])
    with pytest.raises(GranularityError, match=f"'{stem}' cannot name a family: .*; rename the file"):
        label_spaces_section()
