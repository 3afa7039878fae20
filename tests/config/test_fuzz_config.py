"""Bad configurations by the hundred: each is refused, a line a mistake, and nothing is written.

The mistakes are made from the schema itself, so an option that is added later is tried as well.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import types
import typing
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from granularity.base import strict_yaml
from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.cli.of_stages import parse
from granularity.config import files
from granularity.config import options as cfg
from granularity.stages import STAGES
from support.checkout import Checkout
from support.tallies import tallies

ROOT = Path(__file__).parents[2]


def examples(count):
    """The same examples every time, however slow the machine is."""
    slow = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(derandomize=True, database=None, deadline=None, max_examples=count, suppress_health_check=slow)


refusals = tallies["bad configurations refused"]


@pytest.fixture(autouse=True)
def in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def refused(folder, text, what, *, name="bad.yaml", lines=1):
    """The lines of the message that a configuration file of this text gives."""
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = sorted(folder.iterdir())
    with pytest.raises(GranularityError) as caught:
        files.load(file)
    message = str(caught.value)
    found = message.splitlines()
    assert sorted(folder.iterdir()) == before
    assert len(found) == lines, message
    assert all(line.startswith(f"{file}: ") and line.isprintable() for line in found), message
    assert "pydantic" not in message and "Traceback" not in message
    assert all(len(line) < 1500 for line in found)
    refusals[what] += 1
    return found


# ---------------------------------------------------------------- every key, every wrong type


class Leaf(typing.NamedTuple):
    path: tuple
    annotation: typing.Any


# What an entry of a list must have beside the key that is tried.
REQUIRED = {("networks", 0): {"name": "n"}, ("transfers", 0): {"name": "t"}, ("transfers", 0, "data"): {"samples": {}}}


def leaves(model=cfg.Config, path=()):
    """Every option of the schema; of a list of sections, those of an entry."""
    for name, field in model.model_fields.items():
        yield Leaf((*path, name), field.annotation)
        listed = typing.get_origin(field.annotation) is list
        for inner in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, Section):
                yield from leaves(inner, (*path, name, *([0] if listed else [])))


def kinds(annotation):
    """Names of the types that an option takes."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return kinds(args[0])
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(kinds, args))
    return {"Literal"} if origin is typing.Literal else {(origin or annotation).__name__}


def wrong_values(annotation):
    """Values that no option of this type takes."""
    names = kinds(annotation)
    tried = [datetime.date(2020, 2, 2), b"\xff\xfe", {1: 2}, {"no such": [1]}, [[[1]]], [None]]
    if "NoneType" not in names:
        tried.append(None)
    if "bool" not in names:
        tried += [True, False, [True]]
    if not names & {"list"}:
        tried += [[], ["x"]]
    if not names & {"str", "Path", "Literal"}:
        tried += ["nonsense", "", "1,5"]
    if names & {"str", "Path"}:
        tried += ["nul \0", "\x1b[31m", "half \ud800"]
    if names & {"int", "float"}:
        tried += [float("nan"), float("inf"), -float("inf")]
    if "int" in names:
        tried += [10**12, 10**300, -(10**12)] + ([] if "float" in names else [2.5])
    if "Literal" in names:
        tried += ["nonsense", "A", ""]
    if not names & {"int", "float", "bool"}:
        tried += [3, 2.5]
    if "dict" in names:
        tried = [one for one in tried if not isinstance(one, dict) or 1 in one]
    return tried


def nested(path, value):
    """A mapping in which the value stands at a path."""
    if isinstance(value, dict):
        value = REQUIRED.get(path, {}) | value
    for depth in range(len(path), 0, -1):
        part = path[depth - 1]
        value = [value] if part == 0 else {**REQUIRED.get(path[: depth - 1], {}), part: value}
    return value


def as_yaml(values):
    """YAML of anything: half characters, dates, bytes and endless numbers as well."""
    return yaml.safe_dump(values, allow_unicode=False).encode()


LEAVES = list(leaves())


def test_the_schema_has_as_many_options_as_one_would_think():
    assert len(LEAVES) > 120
    some = {("pretrain", "augment", "flip"), ("conditions", 0, "train_size"), ("networks", 0, "objective", "name")}
    assert {leaf.path for leaf in LEAVES} >= some | {("transfers", 0, "data", "train_size"), ("measures", 0, "of")}


@pytest.mark.parametrize("section", sorted({leaf.path[0] for leaf in LEAVES}))
def test_a_value_of_a_wrong_type_at_every_key(section, tmp_path):
    for leaf in LEAVES:
        if leaf.path[0] == section:
            for value in wrong_values(leaf.annotation):
                where = ".".join(map(str, leaf.path))
                (line,) = refused(tmp_path, as_yaml(nested(leaf.path, value)), "wrong type or range")
                assert f": {where}" in line, f"{value!r}: {line}"


@pytest.mark.parametrize("section", sorted({leaf.path[0] for leaf in LEAVES}))
def test_every_key_misspelt(section, tmp_path):
    keys = {leaf.path for leaf in LEAVES}
    for path in keys:
        if path[0] != section:
            continue
        *above, key = path
        for wrong in (key + "s", key[:-1], key[0] + key, key.upper(), f" {key}", key.replace("_", "-") + "?"):
            if wrong and (*above, wrong) not in keys:
                (line,) = refused(tmp_path, as_yaml(nested((*above, wrong), 3)), "misspelt")
                assert "unknown key" in line and key in line and ".".join(map(str, above)) in line


@examples(60)
@given(st.data())
def test_every_one_of_several_mistakes_has_its_line(tmp_path, data):
    several = [leaf for leaf in LEAVES if len(leaf.path) == 2 and leaf.path[0] not in ("samples", "label_spaces")]
    several = [leaf for leaf in several if "dict" not in kinds(leaf.annotation)]  # of anything
    chosen = data.draw(st.lists(st.sampled_from(several), min_size=2, max_size=6, unique_by=lambda leaf: leaf.path))
    values = {}
    for section, key in (leaf.path for leaf in chosen):
        values.setdefault(section, {})[key] = {"neither": "nor"}
    found = refused(tmp_path, as_yaml(values), "several mistakes", lines=len(chosen))
    for leaf in chosen:
        assert sum(f": {'.'.join(leaf.path)}" in line for line in found) == 1


# ---------------------------------------------------------------- contradictions


ONE, LARGE = [{"train_size": 300}], {"batch_size": 51}


def one_network(**keys):
    return {"networks": [{"name": "n", **keys}]}


def one_transfer(**keys):
    return {"transfers": [{"name": "t", **keys}]}


CONTRADICTIONS = [
    ("label_spaces.kmeans: 301 is more", {"label_spaces": {"kmeans": [301]}, "conditions": ONE}),
    ("label_spaces.random: one is given twice", {"label_spaces": {"random": [5, 5]}}),
    ("label_spaces.rebalanced.clusters: one is", {"label_spaces": {"rebalanced": {"clusters": [2, 2]}}}),
    ("label_spaces.nested.bottomup: one is given", {"label_spaces": {"nested": {"bottomup": [5, 5]}}}),
    ("label_spaces.nested.topdown: 999", {"label_spaces": {"nested": {"topdown": [999]}}, "conditions": ONE}),
    ("label_spaces.manual: one is given twice", {"label_spaces": {"manual": ["digit", "digit"]}}),
    ("label_spaces.manual: 'genus' is not", {"label_spaces": {"manual": ["genus"]}, "conditions": ONE}),
    ("label_spaces.wordnet: needs samples.wordnet", {"label_spaces": {"wordnet": [2]}}),
    ("conditions: a train_size is given twice", {"conditions": [{"train_size": 300}, {"train_size": 300}]}),
    ("conditions: train_size 901", {"conditions": [{"train_size": 901}]}),
    (
        "conditions.0.spaces: names the label spaces ['kmeans-7']",
        {"conditions": [{"train_size": 300, "spaces": ["kmeans-7"]}]},
    ),
    ("pretrain.batch_size: 301", {"pretrain": {"batch_size": 301}}),
    ("finetune.batch_size: 301", {"finetune": {"batch_size": 301}}),
    ("probe.ranks: 'genus' is not", {"probe": {"ranks": ["genus"]}}),
    ("jobs.processes: 200 cannot share", {"jobs": {"processes": 200}, "finetune": {"batch_size": 200}}),
    ("jobs.arms: 200 cannot share", {"jobs": {"arms": 200}, "finetune": {"batch_size": 200}}),
    ("arms: arms in lockstep", {"jobs": {"arms": 2, "processes": 2}}),
    ("arms: no job holds several", {"jobs": {"arms": 2, "pretrain": "run", "finetune": "space"}}),
    ("pretrain.final_lr: 1.0 is more", {"pretrain": {"final_lr": 1.0}}),
    ("finetune.nesterov: is for", {"finetune": {"nesterov": True, "optimizer": "adam"}}),
    ("pretrain.augment.crop: 40 px", {"pretrain": {"augment": {"crop": 40}}}),
    ("samples.ranks: the digits have", {"samples": {"ranks": ["digit"], "target": "digit"}}),
    ("samples.ranks: one is given twice", {"samples": {"source": "folder", "root": ".", "ranks": ["loops", "loops"]}}),
    ("samples.target: 'genus'", {"samples": {"target": "genus"}}),
    ("samples.root: source 'folder' needs", {"samples": {"source": "folder"}}),
    ("samples.root: source 'parquet' needs", {"samples": {"source": "parquet", "root": ".", "hub": "a/b"}}),
    ("samples.hub: is for source 'parquet'", {"samples": {"source": "folder", "root": ".", "hub": "a/b"}}),
    ("samples.shifted: is for source", {"samples": {"source": "folder", "root": ".", "shifted": {"v2": "."}}}),
    (
        "samples.shifted.v2: there is no folder",
        {"samples": {"source": "imagenet", "root": ".", "shifted": {"v2": "no"}, "extra_splits": ["v2"]}},
    ),
    ("samples.val: 'a' is the training split", {"samples": {"train": "a", "val": "a"}}),
    ("samples.extra_splits: one is given twice", {"samples": {"extra_splits": ["a", "a"]}}),
    ("samples.extra_splits: the splits to train", {"samples": {"extra_splits": ["train"]}}),
    ("samples.root: there is no folder", {"samples": {"source": "folder", "root": "no/such"}}),
    ("samples.root: there is no folder", {"samples": {"source": "folder", "root": "long" * 2000}}),
    ("samples.taxonomy: there is no file", {"samples": {"taxonomy": "."}}),
    ("samples.wordnet: there is no folder", {"samples": {"wordnet": "pyproject.toml"}}),
    ("encoder.model: there is no file", {"encoder": {"model": "gone.json"}}),
    ("encoder.model: there is no file", {"encoder": {"model": "long" * 2000 + ".json"}}),
    ("encoder.model: there is no folder", {"encoder": {"model": "local-dir:gone", "pretrained": None}}),
    ("encoder.pretrained: 'ViT-L-14' needs", {"encoder": {"model": "ViT-L-14", "pretrained": None}}),
    ("model.name: must be the name of an architecture", {"model": {"name": "hf-hub:a/b"}}),
    ("encoder.pretrained: 'hf-hub:a/b' carries", {"encoder": {"model": "hf-hub:a/b"}}),
    ("encoder.pretrained: a name with braces", {"encoder": {"pretrained": "/data/{x}.pt"}}),
    ("encoder.captions.template: needs exactly", {"encoder": {"captions": {"template": "{} and {}"}}}),
    ("model.args.pretrained: initial weights are", {"model": {"args": {"pretrained": True}}}),
    ("model.args.checkpoint_path: initial weights", {"model": {"args": {"checkpoint_path": "evil.pth"}}}),
    ("model.args.num_classes: follows from", {"model": {"args": {"num_classes": 3}}}),
    ("seeds.finetune: 1000 on each of 1000", {"seeds": {"pretrain": 1000, "finetune": 1000}}),
    ("name: results/theory is the place", {"name": "theory"}),
    ("pretrain.freeze_backbone: there is no", {"pretrain": {"freeze_backbone": True}}),
    ("pretrain.optimizer_args.lr: is an option", {"pretrain": {"optimizer_args": {"lr": 1}}}),
    ('jobs.probe = "run": is called jobs.measure now', {"jobs": {"probe": "run"}}),
    ("studies: there is no study 'atlantis'", {"studies": ["atlantis"]}),
    ("extensions: gone.py: there is no such", {"extensions": ["gone.py"]}),
    ("networks: a name is given twice: ['a', 'a']", {"networks": [{"name": "a"}, {"name": "a"}]}),
    ("networks: a name is given twice: ['n_lr-1'", one_network(grid={"lr": [1, 1]})),
    ("networks: a name of more than 60 characters", one_network(grid={"optimizer_args": [{"betas": [0.1] * 20}]})),
    ("networks.0.model.args.pretrained: initial", one_network(model={"args": {"pretrained": True}})),
    ("networks.0.recipe.lrr: unknown key", one_network(recipe={"lrr": 1})),
    ("networks.0.recipe.lr: ", one_network(recipe={"lr": -1})),
    ("networks.0.recipe.batch_size: 301 is more", one_network(recipe={"batch_size": 301})),
    ("networks.0.grid.lrr: unknown key", one_network(grid={"lrr": [1]})),
    ("networks.0.grid: a key has no values", one_network(grid={"lr": []})),
    ("networks.0.keep: there is no epoch 31", one_network(keep=[31])),
    ("networks.0.keep: an epoch is given twice", one_network(keep=[3, 3])),
    ("networks.0.spaces: names the label spaces ['x']", one_network(spaces=["x"])),
    ("networks.0.objective.name: there is no", one_network(objective="guess")),
    ("networks.0.objective.options.x: ", one_network(objective={"name": "distil", "options": {"x": 1}})),
    ("networks.0.init: must be scratch, timm:FILE", one_network(init="guess")),
    ("networks.0.init.timm: there is no file 'gone'", one_network(init="timm:gone")),
    ("networks.0.init.timm: excludes results", one_network(init={"timm": "x", "run": "x"})),
    ("networks.0.init.run: is missing", one_network(init={"results": "."})),
    ("networks.0.init: config: holds no backbone", one_network(init={"results": "config", "run": "x"})),
    ("transfers: a name is given twice", {"transfers": [{"name": "a"}, {"name": "a"}]}),
    ("transfers.0.of: there is no network ['z']", one_transfer(of=["z"])),
    ("transfers.0.recipe.epochs: ", one_transfer(recipe={"epochs": 0})),
    ("transfers.0.data.samples.root: source 'folder'", one_transfer(data={"samples": {"source": "folder"}})),
    ("transfers.0.data.samples.taxonomy: there is no", one_transfer(data={"samples": {"taxonomy": "gone"}})),
    ("transfers.0.data.samples.souce: unknown key", one_transfer(data={"samples": {"souce": "folder"}})),
    ("transfers.0.data.train_size: train_size 901", one_transfer(data={"samples": {}, "train_size": 901})),
    (
        "transfers.0.recipe.batch_size: 51 is more",
        one_transfer(recipe=LARGE, data={"samples": {}, "train_size": 50}),
    ),
    ("measures: a name is given twice", {"measures": [{"name": "probe"}, {"name": "probe"}]}),
    ("measures.0.measure: there is no measure 'x'", {"measures": [{"name": "x"}]}),
    ("measures.0.of: one is given twice", {"measures": [{"of": ["backbones", "backbones"]}]}),
    ("measures.0.options.x: ", {"measures": [{"options": {"x": 1}}]}),
    ("measures.0.splits: there is no ['v2']", {"measures": [{"splits": ["v2"]}]}),
    ("measures.0.ranks: there is no ['genus']", {"measures": [{"ranks": ["genus"]}]}),
]


@pytest.mark.parametrize(("words", "values"), CONTRADICTIONS, ids=[words for words, _ in CONTRADICTIONS])
def test_contradictions(words, values, tmp_path):
    (line,) = refused(tmp_path, as_yaml(values), "contradictions")
    assert words in line


RANKS = [
    "a/b",
    "..",
    ".",
    "",
    " ",
    "$(touch pwned)",
    "`touch pwned`",
    "a;touch pwned",
    "a\nb",
    "a b",
    "a'b",
    'a"b',
    "-f",
]
RANKS += [
    "a,b",
    "{unit}",
    "*",
    "~",
    "a\\b",
    "a|b",
    "a>b",
    "split",
    "sample_id",
    "train",
    "val",
    "sha256",
    "ü" * 61,
    "\u202eab",
]


@pytest.mark.parametrize("rank", RANKS)
def test_ranks_that_would_make_bad_names_of_folders_and_words_of_a_shell(rank, tmp_path):
    values = {"samples": {"source": "folder", "root": ".", "ranks": ["kind", rank], "target": "kind"}}
    (line,) = refused(tmp_path, as_yaml(values), "names")
    assert "samples.ranks" in line


NAMES = [
    "../evil",
    "",
    ".",
    "..",
    "a/b",
    "a b",
    "$(id)",
    "a\n",
    "a;b",
    "-a",
    "ünfug",
    "a'",
    "{root}",
    "n" * 101,
    "a\u200b",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_experiments_that_are_no_names_of_folders(name, tmp_path):
    (line,) = refused(tmp_path, as_yaml({"name": name}), "names")
    assert ": name" in line


def test_ranks_of_every_script_are_taken(tmp_path):
    file = tmp_path / "good.yaml"
    ranks = ["Überart", "вид", "種", "kind_2.b-c", "2nd"]
    samples = {"source": "folder", "root": ".", "ranks": ranks, "target": "種"}
    values = {"samples": samples, "conditions": [{"train_size": 300}]}
    file.write_text(yaml.safe_dump(values, allow_unicode=True))
    assert files.load(file).samples.ranks == ranks


# ---------------------------------------------------------------- YAML


def laughs(levels):
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines)


TRAPS = {
    "tabs": ("cluster:\n\titerations: 3\n", "spaces, not tabs"),
    "a key twice": ("name: a\ndevice: cpu\nname: b\n", "line 3: the key 'name' is there twice"),
    "a key twice, deep": ("pretrain: {lr: 1.0, lr: 2.0}\n", "the key 'lr' is there twice"),
    "a key twice, quoted": ("name: a\n'name': b\n", "the key 'name' is there twice"),
    "a key twice, JSON": ('{"name": "a", "name": "b"}', "the key 'name' is there twice"),
    "billion laughs": (laughs(30), "its aliases stand for more than"),
    "billion laughs in a value": (laughs(9).replace("a8:", "name:"), "its aliases stand for more than"),
    "quadratic": ("a: &a [" + "x, " * 5000 + "]\nb: [" + "*a, " * 5000 + "]\n", "its aliases stand for more than"),
    "an alias in itself": ("name: &a [*a]\n", "an alias stands within"),
    "a mapping in itself": ("&a {cluster: *a}\n", "an alias stands within"),
    "an unknown alias": ("name: *nobody\n", "undefined alias"),
    "python/object/apply": ('!!python/object/apply:os.system ["touch pwned"]\n', "could not determine a constructor"),
    "python/object/apply below": ('name: !!python/object/apply:os.system ["touch pwned"]\n', "constructor for the tag"),
    "python/object/new": ("name: !!python/object/new:subprocess.Popen [[touch, pwned]]\n", "constructor for the tag"),
    "python/name": ("name: !!python/name:os.system\n", "constructor for the tag"),
    "python/module": ("name: !!python/module:os\n", "constructor for the tag"),
    "python/tuple": ("name: !!python/tuple [1, 2]\n", "constructor for the tag"),
    "a tag of one's own": ("name: !mine x\n", "constructor for the tag"),
    "a template": ("__use_yte__: true\nname: ?open('pwned', 'w').name\n", "templates run code"),
    "a list": ("- name\n", "not a list"),
    "text": ("name\n", "not a str"),
    "a number": ("3\n", "not a int"),
    "a date": ("2020-02-02\n", "not a date"),
    "JSON text": ('"name"', "not a str"),
    "two documents": ("name: a\n---\nname: b\n", "another document"),
    "nested lists": ("name: " + "[" * 3000 + "]" * 3000, "levels deep"),
    "nested mappings": ("cluster: " + "{a: " * 500 + "1" + "}" * 500, "levels deep"),
    "nested JSON": ('{"name": ' + "[" * 50_000 + "]" * 50_000 + "}", "levels deep"),
    "nested blocks": ("\n".join(" " * i + "a:" for i in range(200)), "levels deep"),
    "no end": ("cluster: [3\n", "not readable as YAML: line 2"),
    "no end of text": ('name: "abc\n', "not readable as YAML"),
    "two colons": ("name: a: b\n", "mapping values are not allowed"),
    "bad indentation": ("cluster:\n   iterations: 3\n  restarts: 2\n", "not readable as YAML: line 3"),
    "no such date": ("name: 2020-99-99\n", "cannot be read as timestamp: 2020-99-99"),
    "a false integer": ("seeds: {base: !!int x}\n", "cannot be read as int: x"),
    "a false number": ("pretrain: {lr: !!float x}\n", "cannot be read as float: x"),
    "a false truth value": ("name: !!bool x\n", "cannot be read as bool: x"),
    "an empty integer": ('seeds: {base: !!int ""}\n', "cannot be read as int"),
    "a false date": ("name: !!timestamp x\n", "cannot be read as timestamp"),
    "false base64": ("name: !!binary x\n", "failed to decode base64"),
    "binary": ("name: !!binary aGVsbG8=\n", "name: YAML takes it for Python's bytes"),
    "a set": ("name: !!set {a, b}\n", "name: YAML takes it for Python's set"),
    "a date as a name": ("name: 2020-02-02\n", "name: YAML takes it for Python's date"),
    "a time as a name": ("name: 12:30:45\n", "name = 45045"),
    "no as a word": ("samples: {check_images: no}\n", "samples.check_images = false: is no truth value"),
    "a number as a key": ("1: 2\n", "1: a key must be text"),
    "yes as a key": ("yes: 3\n", "True: a key must be text"),
    "nothing as a key": ("~: 3\n", "None: a key must be text"),
    "a date as a key": ("cluster: {2020-02-02: 3}\n", "a key must be text"),
    "a list as a key": ("? [a, b]\n: 3\n", "not readable as YAML"),
    "a control character as a key": ('"a\\x1b[31mb": 3\n', "a key holds the control character"),
    "a line break in a key": ('"a\\nb": 3\n', "unknown key"),
    "a type's name as a key": ("int: 3\n", "int = 3: unknown key"),
    "half a character": ('report: {title: "a\\ud800"}\n', "report.title: holds the control character"),
    "a null byte": ('report: {title: "a\\0b"}\n', "report.title: holds the control character"),
    "a bell": ('report: {title: "a\\ab"}\n', "report.title: holds the control character"),
    "a null byte in a path": ('samples: {source: folder, root: "a\\0b"}\n', "samples.root: holds the control"),
    "an integer of 5000 digits": ("seeds: {base: 1" + "0" * 5000 + "}\n", "cannot be read as int"),
    "an integer of 5000 digits, JSON": ('{"seeds": {"base": 1' + "0" * 5000 + "}}", "cannot be read as int"),
    "merging a number": ("cluster: {<<: 3}\n", "expected a mapping"),
    "a base to merge": ("base: &b {iterations: 3}\ncluster: {<<: *b}\n", "base = "),
    "null for a section": ("cluster:\n", "cluster = null"),
    "raw control characters": ("name: a\x01b\n", "not readable as YAML"),
    "latin-1": ("name: ünfug\n".encode("latin-1"), "byte 6 is no UTF-8"),
    "UTF-16": ("name: a\n".encode("utf-16"), "is no UTF-8"),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(range(256)), "is no UTF-8"),
    "zeros": (bytes(4096), "not readable as YAML"),
    "a large file": (b"#" * (strict_yaml.LARGEST + 1), "larger than"),
    "JSON's not a number": ('{"pretrain": {"lr": NaN}}', "pretrain.lr: nan is no finite number"),
    "JSON's 1e999": ('{"pretrain": {"lr": 1e999}}', "pretrain.lr: inf is no finite number"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_traps_of_yaml(trap, tmp_path, monkeypatch):
    text, words = TRAPS[trap]
    monkeypatch.syspath_prepend(tmp_path)
    (line,) = refused(tmp_path, text, "YAML")
    assert words in line
    assert not (ROOT / "pwned").exists()


def test_files_that_cannot_be_read(tmp_path):
    for path, words in {
        tmp_path: "is a folder",
        tmp_path / "none.yaml": "no such configuration file",
        tmp_path / ("long" * 100): "cannot be read",
        Path("/dev/zero"): "is a device",
    }.items():
        with pytest.raises(GranularityError) as caught:
            files.load(path)
        assert words in str(caught.value) and len(str(caught.value).splitlines()) == 1
        refusals["no file"] += 1


def test_a_file_as_snakemake_gives_it_is_read_again_more_strictly(tmp_path):
    """Snakemake's loader keeps the last of two equal keys; its mapping alone does not show it."""
    file = tmp_path / "twice.yaml"
    file.write_text("name: a\nname: b\n")
    with pytest.raises(GranularityError, match=r"twice\.yaml: line 2: the key 'name' is there twice"):
        files.validate({"name": "b"}, (file,))
    for odd in (float("nan"), {1: 2}, {"x": b"\xff"}, {"x": print}, {"x": object()}, (1, 2)):
        with pytest.raises(GranularityError, match=r"^model"):
            files.validate({"model": {"args": odd}} if isinstance(odd, dict) else {"model": odd})
    endless = []
    endless.append(endless)
    with pytest.raises(GranularityError, match="stands within itself"):
        files.validate({"model": {"args": {"layers": endless}}})


# ---------------------------------------------------------------- anything at all


def never_a_traceback(folder, data):
    file = folder / "any.yaml"
    file.write_bytes(data)
    try:
        files.load(file)
    except GranularityError as error:
        for line in str(error).splitlines():
            assert line.startswith(f"{file}: ") and line.isprintable()
        refusals["anything"] += 1


@examples(150)
@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
)
def test_any_bytes(tmp_path, data):
    never_a_traceback(tmp_path, data)


KEYS = st.sampled_from(sorted({str(part) for leaf in LEAVES for part in leaf.path}))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.binary(max_size=4)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@examples(250)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_values_at_any_keys(tmp_path, values):
    never_a_traceback(tmp_path, as_yaml(values))


SMOKE = (ROOT / "config/experiments/smoke.yaml").read_bytes()


@examples(250)
@given(st.integers(0, len(SMOKE) - 1), st.integers(0, 5), st.binary(max_size=3))
def test_any_slip_of_the_pen_in_a_good_file(tmp_path, place, gone, typed):
    never_a_traceback(tmp_path, SMOKE[:place] + typed + SMOKE[place + gone :])


OPTIONS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@examples(150)
@given(st.one_of(st.text(max_size=30), OPTIONS.map(lambda one: json.dumps(one, default=str))))
def test_any_options_on_the_command_line(text):
    """Snakemake gives the stages their options as JSON; people who run a stage by hand give anything."""
    for stage in STAGES.values():
        try:
            parse(stage.model, text, "--options")
        except GranularityError as error:
            assert str(error).startswith("--options") and len(str(error).splitlines()) == 1
            refusals["options"] += 1


# ---------------------------------------------------------------- the real commands


THROUGH_SNAKEMAKE = {
    "misspelt": ("clustr: {}\n", "unknown key; did you mean 'cluster'?"),
    "wrong type": ("cluster: {iterations: ten}\n", 'cluster.iterations = "ten"'),
    "contradiction": ("pretrain: {batch_size: 301}\n", "pretrain.batch_size: 301 is more than"),
    "a key twice": ("name: a\nname: b\n", "line 2: the key 'name' is there twice"),
    "an odd key": ('"a b": 1\n', "a b = 1: unknown key"),
    "a name": ('name: "$(touch pwned)"\n', "name = "),
    "a rank": ('samples: {source: folder, root: ., ranks: ["$(touch pwned)"], target: x}\n', "samples.ranks.0"),
    "bytes": ("model: {args: {x: !!binary gICA}}\n", "model.args.x: YAML takes it for Python's bytes"),
    "python/name": ("model: {args: {x: !!python/name:builtins.print }}\n", "constructor for the tag"),
    "billion laughs": (laughs(9), "its aliases stand for more than"),
    "a label space": ("conditions: [{train_size: 300, spaces: [kmeans-7]}]\n", "conditions.0.spaces: "),
    "endless": ("pretrain: {lr: .inf}\n", "pretrain.lr: inf is no finite number"),
}


@pytest.mark.workflow
def test_through_the_real_commands(tmp_path_factory, tmp_path):
    """Snakemake reads the file first, with a loader of its own; what it lets through, the workflow refuses."""
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    before = sorted(checkout.folder.rglob("[!.]*"))
    for trap, (text, words) in THROUGH_SNAKEMAKE.items():
        file = tmp_path / "bad.yaml"
        file.write_text(text)
        output = checkout.run("granularity", "config", "check", "-f", "config/config.yaml", "-f", str(file), code=1)
        assert output.startswith(f"error: {file}: ") and words in output, trap
        assert len(output.splitlines()) == 1, output
        output = checkout.snakemake("-n", "--configfile", str(file), code=1)
        assert f"{file}: " in output and words in output, trap
        assert "Traceback" not in output and "rule " not in output, output
        refusals["real commands"] += 2
    after = [path for path in sorted(checkout.folder.rglob("[!.]*")) if "__pycache__" not in path.parts]
    assert [path for path in after if ".snakemake" not in path.parts and path not in before] == []


BY_SNAKEMAKE = {
    "python/object/apply": 'name: !!python/object/apply:os.system ["touch pwned"]\n',
    "a list": "- name\n",
    "tabs": "cluster:\n\titerations: 3\n",
}


@pytest.mark.workflow
@pytest.mark.parametrize("trap", BY_SNAKEMAKE)
def test_what_snakemake_itself_refuses(trap, tmp_path_factory, tmp_path):
    """Before the workflow sees the file: in its own words, with status 1, and nothing in the file is run."""
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    file = tmp_path / "bad.yaml"
    file.write_text(BY_SNAKEMAKE[trap])
    output = checkout.snakemake("-n", "--configfile", str(file), code=1)
    assert "Config file" in output and "Traceback" not in output
    assert not checkout.path("pwned").exists()
    words = [sys.executable, "-m", "granularity", "config", "check", "-f", str(file)]
    checked = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 1 and checked.stderr.startswith(f"error: {file}: ")
