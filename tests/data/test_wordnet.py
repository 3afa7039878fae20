"""WordNet: the file format, several hypernym paths, and the published counts."""

import importlib.util
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from granularity.base.errors import GranularityError
from granularity.cli import app
from granularity.data.wordnet import WordNet
from support.small_wordnet import SMALL

DICT = Path(os.environ.get("WORDNET_DICT", "/usr/share/wordnet"))
needs_wordnet = pytest.mark.skipif(
    not (DICT / "data.noun").exists(), reason="needs WordNet 3.0: apt install wordnet-base, or set WORDNET_DICT"
)


@pytest.fixture
def small(tmp_path) -> Path:
    (tmp_path / "data.noun").write_text(SMALL)
    return tmp_path


def test_the_file_is_read_as_its_manual_says(small):
    graph = WordNet.read(small)
    assert graph.parents["n00000030"] == ("n00000010", "n00000020")
    assert graph.parents["n00000050"] == ()
    assert graph.label("n00000030") == "working dog (n00000030)"
    assert len(graph.parents) == 7


def all_paths(graph: WordNet, synset: str) -> list[list[str]]:
    above = graph.parents[synset]
    return [[synset, *path] for parent in above for path in all_paths(graph, parent)] if above else [[synset]]


def test_a_level_is_the_union_over_all_paths(small):
    """Against the rule spelt out: enumerate every path, take the node at min(k, its end)."""
    graph = WordNet.read(small)
    for synset in graph.parents:
        for k in range(7):
            assert graph.level(synset, k) == {path[min(k, len(path) - 1)] for path in all_paths(graph, synset)}
    assert graph.level("n00000040", 2) == {"n00000010", "n00000020"}
    assert graph.level("n00000050", 5) == {"n00000050"}


def test_living_on_any_path_is_living(small):
    graph = WordNet.read(small)
    assert [graph.is_living(f"n000000{i}0") for i in (1, 2, 3, 4, 5)] == [True, False, True, True, False]
    assert graph.is_living("n00004258")


def test_an_unknown_synset_is_named(small):
    with pytest.raises(GranularityError, match="2 synsets are not nouns of this WordNet, such as 'n00000099'"):
        WordNet.read(small).above(["n00000099", "n00000010", "dog"])


@pytest.fixture(scope="module")
def imagenet21k() -> tuple[WordNet, list[str]]:
    folder = Path(importlib.util.find_spec("timm").submodule_search_locations[0])
    labels = (folder / "data/_info/imagenet21k_goog_synsets.txt").read_text().split()
    return WordNet.read(DICT).above(labels), labels


@needs_wordnet
def test_imagenet21ks_self_roots_and_living_things(imagenet21k):
    graph, labels = imagenet21k
    roots = {graph.label(label) for label in labels if not graph.parents[label]}
    assert roots == {"sun (n09450163)", "Genet (n10994097)", "Munro (n11196627)", "Stoker (n11318824)"}  # L2
    assert sum(graph.is_living(label) for label in labels) == 10_899


@needs_wordnet
def test_the_command_prints_the_levels_and_their_verdicts():
    result = CliRunner().invoke(app, ["wordnet", "--dict", str(DICT)])
    assert result.exit_code == 0, result.output
    assert "21843" in result.output
    assert "5995" in result.output
    assert result.output.count(": holds") == 10
