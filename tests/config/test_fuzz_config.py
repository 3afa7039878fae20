"""Bad configurations by the hundred: each is refused, a line a mistake, and nothing is written.

The mistakes of type and spelling are made from the schema itself, so an option that is added later is tried as well.
"""

import datetime
import types
import typing
from pathlib import Path

import pytest
import yaml

from granularity.base.errors import GranularityError
from granularity.base.section import Section
from granularity.cli.of_stages import parse
from granularity.config import files
from granularity.config import options as cfg
from granularity.stages import STAGES
from support.checkout import Checkout

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def refused(folder, text, what, *, lines=1):
    """The lines of the message that a configuration file of this text gives."""
    file = folder / "bad.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(GranularityError) as caught:
        files.load(file)
    found = str(caught.value).splitlines()
    assert [path.name for path in folder.iterdir()] == ["bad.yaml"]
    assert len(found) == lines and all(line.startswith(f"{file}: ") and line.isprintable() for line in found), (
        what,
        found,
    )
    assert not any("pydantic" in line or "Traceback" in line for line in found)
    return found


# ---------------------------------------------------------------- every key: wrong types, misspelt


class Leaf(typing.NamedTuple):
    path: tuple
    annotation: typing.Any


# What an entry of a list must have beside the key that is tried.
REQUIRED = {("networks", 0): {"name": "n"}, ("transfers", 0): {"name": "t"}, ("transfers", 0, "data"): {"samples": {}}}
REQUIRED |= {("conditions", 0, "primary", 0): {"arm": "target"}, ("label_spaces", "file", 0): {"path": "labels.csv"}}


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


# Values that no option takes but those of some types.
WRONG = [
    (set(), [datetime.date(2020, 2, 2), {1: 2}, [[[1]]], [None]]),
    ({"dict"}, [{"no such": [1]}]),
    ({"NoneType"}, [None]),
    ({"bool"}, [True, [True]]),
    ({"list"}, [[], ["x"]]),
    ({"str", "Path", "Literal"}, ["nonsense", ""]),
    ({"int", "float", "bool"}, [3, 2.5]),
]


def wrong_values(annotation):
    names = kinds(annotation)
    found = [value for takers, values in WRONG if not names & takers for value in values]
    found += [float("nan"), float("inf")] if names & {"int", "float"} else []
    return found + ([10**12] if "int" in names else []) + (["nonsense"] if "Literal" in names else [])


def nested(path, value):
    """A mapping in which the value stands at a path."""
    if isinstance(value, dict):
        value = REQUIRED.get(path, {}) | value
    for depth in range(len(path), 0, -1):
        part = path[depth - 1]
        value = [value] if part == 0 else {**REQUIRED.get(path[: depth - 1], {}), part: value}
    return value


LEAVES = list(leaves())
SECTIONS = sorted({leaf.path[0] for leaf in LEAVES})


@pytest.mark.parametrize("section", SECTIONS)
def test_a_value_of_a_wrong_type_at_every_key(section, tmp_path):
    for leaf in LEAVES:
        for value in wrong_values(leaf.annotation) if leaf.path[0] == section else ():
            (line,) = refused(tmp_path, yaml.safe_dump(nested(leaf.path, value)), "wrong type or range")
            assert f": {'.'.join(map(str, leaf.path))}" in line, f"{value!r}: {line}"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_misspelt(section, tmp_path):
    keys = {leaf.path for leaf in LEAVES}
    for *above, key in (path for path in keys if path[0] == section):
        for wrong in (key + "s", key[:-1], key.upper()):
            if wrong and (*above, wrong) not in keys:
                (line,) = refused(tmp_path, yaml.safe_dump(nested((*above, wrong), 3)), "misspelt")
                assert "unknown key" in line and key in line and ".".join(map(str, above)) in line


def test_every_one_of_several_mistakes_has_its_line(tmp_path):
    text = "clustr: {}\nname: 3\nseeds: {base: x, pretrain: 0}\n"
    found = refused(tmp_path, text, "several mistakes", lines=4)
    for key in ("clustr = {}: unknown key; did you mean 'cluster'?", "name = 3", 'seeds.base = "x"', "seeds.pretrain"):
        assert sum(f": {key}" in line for line in found) == 1


def test_the_file_that_holds_the_mistake_is_named(tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("cluster: {iterations: 3}\n")
    bad.write_text("cluster: {restarts: none}\n")
    with pytest.raises(GranularityError, match=r"bad\.yaml: cluster\.restarts"):
        files.load(good, bad)


# ---------------------------------------------------------------- contradictions


OF = {"ranks": ["kind"], "target": "kind"}
PICTURES = {"source": "folder", "root": "."}
FOLDER = {"samples": PICTURES}
OF_PICTURES = {"samples": {**PICTURES, **OF}, "conditions": [{"train_size": 300}]}
PHOTOS = {"encoder": {"captions": {"template": "a photo of a {}"}}}
KMEANS, RANDOM = {"label_spaces": {"kmeans": [10]}}, {"label_spaces": {"random": [90]}}
ONE, LARGE = [{"train_size": 300}], {"batch_size": 51}


def declared(**fields) -> dict:
    primary = [{"arm": "manual-digit", **fields}]
    return {"conditions": [{"train_size": 300, "spaces": ["manual-digit"], "primary": primary}]}


def one_network(**keys):
    return {"networks": [{"name": "n", **keys}]}


def one_transfer(**keys):
    return {"transfers": [{"name": "t", **keys}]}


def merging(name):
    return {"conditions": [{"train_size": 300, "merged": [name]}]}


CONTRADICTIONS = [
    ("label_spaces.kmeans: 301 is more", {"label_spaces": {"kmeans": [301]}, "conditions": ONE}),
    ("label_spaces.nested.0: 'topdown' is not a tree", {"label_spaces": {"nested": ["topdown"]}}),
    (
        "label_spaces.nested: 'topdown-9' is already the name of",
        {"label_spaces": {"nested": ["topdown-9", "topdown-9-2"]}},
    ),
    ("label_spaces.manual: 'genus' is not", {"label_spaces": {"manual": ["genus"]}, "conditions": ONE}),
    ("label_spaces.several.0: 'nearest-3-3' must be like", {"label_spaces": {"several": ["nearest-3-3"]}}),
    ("label_spaces.wordnet: needs samples.wordnet", {"label_spaces": {"wordnet": [2]}}),
    ("conditions: a train_size is given twice", {"conditions": [{"train_size": 300}, {"train_size": 300}]}),
    ("conditions.0.spaces: there is no label space", {"conditions": [{"train_size": 300, "spaces": ["kmeans-7"]}]}),
    ("conditions.0.primary.0.arm: there is no label space 'kmeans-7'", declared(arm="kmeans-7")),
    ("conditions.0.primary.0.against: there is no label space 'random-10'", declared(against="random-10")),
    (
        "conditions.0.primary.0.arm: there is no label space 'manual-digit'",
        declared() | {"networks": [{"name": "once", "spaces": ["target"]}, {"name": "labels"}]},
    ),
    (
        "conditions.0.primary: concerns the first network, 'main', which no transfer finetunes",
        declared() | {"networks": [{"name": "main"}, {"name": "side"}], "transfers": [{"name": "t", "of": ["side"]}]},
    ),
    ("conditions.0.merged: there is no label space 'kmeans-7'", merging("kmeans-7")),
    (
        "conditions.0.merged: no network is trained on label spaces and finetuned on the same images",
        merging("target")
        | {"transfers": [{"name": "t", "data": {"samples": {"source": "digits"}, "train_size": 200}}]},
    ),
    (
        "conditions.0.merged: 'kmeans-10' does not hold the target",
        merging("kmeans-10") | KMEANS,
    ),
    (
        "conditions.0.merged: 'random-90' does not hold the target",
        merging("random-90") | RANDOM,
    ),
    (
        "measures.0.of: finetuned: no transfer to the same images keeps networks",
        {"measures": [{"name": "probe", "of": ["backbones", "finetuned"]}]},
    ),
    (
        "measures.0.of: checkpoints: no network keeps an epoch",
        {"measures": [{"name": "probe", "of": ["checkpoints"]}], "networks": [{"name": "a", "keep": [0]}]},
    ),
    ("networks.0.name: 'a_merged' has an ending reserved", {"networks": [{"name": "a_merged"}]}),
    ("smallest: determines the number of backbones together with spread", declared(smallest=0.5)),
    (
        "primary.0.smallest: finding 0.5 points takes at least 44 backbones per label space, not 8",
        declared(smallest=0.5, spread=1),
    ),
    ("pretrain.micro_batch: 7 does not divide batch_size = 30", {"pretrain": {"batch_size": 30, "micro_batch": 7}}),
    ("pretrain.batch_size: 301", {"pretrain": {"batch_size": 301}, "conditions": ONE}),
    ("finetune.batch_size: 301", {"finetune": {"batch_size": 301}, "conditions": ONE}),
    ("jobs.processes: 200 cannot share", {"jobs": {"processes": 200}, "finetune": {"batch_size": 200}}),
    (
        "jobs.processes: 3 cannot share the 5 micro-batches evenly (pretrain)",
        {"jobs": {"processes": 3}, "pretrain": {"batch_size": 30, "micro_batch": 6}},
    ),
    (
        "jobs.processes: 2 cannot share a normalisation under compile; set micro_batch (finetune)",
        {"jobs": {"processes": 2}, "finetune": {"compile": True}},
    ),
    ("pretrain.warmup_epochs: 2.4 are more than epochs = 2; lower", {"pretrain": {"epochs": 2}}),
    (
        "finetune.hold_epochs: 9 and warmup_epochs = 2.4 are more than epochs = 10",
        {"pretrain": {"hold_epochs": 9}, "finetune": {"epochs": 10}},
    ),
    ('pretrain.augment.policy = "RandomErasin"', {"pretrain": {"augment": {"policy": "RandomErasin"}}}),
    ("pretrain.final_lr: 1.0 is more", {"pretrain": {"final_lr": 1.0}}),
    ("finetune.nesterov: needs", {"finetune": {"nesterov": True, "optimizer": "adam"}}),
    ("pretrain.augment.crop: 40 px", {"pretrain": {"augment": {"crop": 40}}}),
    ("samples.target: 'genus'", {"samples": {"ranks": ["loops", "digit"], "target": "genus"}}),
    ("samples.root: source 'folder' needs", {"samples": {"source": "folder"}}),
    ("samples.extra_splits: remove the splits to train", {"samples": {"extra_splits": ["train"]}}),
    ("samples.root: there is no folder", {"samples": {"source": "folder", "root": "no/such"}, **PHOTOS}),
    (
        "encoder.captions.template: 'a handwritten digit: {}' is for",
        {**OF_PICTURES, **KMEANS, "encoder": {"batch_size": 8}},
    ),
    ("encoder.model: config/encoders/digits-tiny.json is for", {**FOLDER, **PHOTOS, **KMEANS, "pixels": {"size": 32}}),
    ("encoder.model: there is no folder", {"encoder": {"model": "local-dir:gone", "pretrained": None}}),
    ("model.name: must be the name of an architecture", {"model": {"name": "hf-hub:a/b"}}),
    ("encoder.pretrained: 'hf-hub:a/b' carries", {"encoder": {"model": "hf-hub:a/b"}}),
    ("encoder.captions.template: needs exactly", {"encoder": {"captions": {"template": "{} and {}"}}}),
    ("model.args.pretrained: must not be set here; name initial weights", {"model": {"args": {"pretrained": True}}}),
    ("seeds.finetune: 1000 on each of 1000", {"seeds": {"pretrain": 1000, "finetune": 1000}}),
    ("name: results/theory is reserved", {"name": "theory"}),
    ("pretrain.freeze_backbone: there is no", {"pretrain": {"freeze_backbone": True}}),
    ("pretrain.optimizer_args.lr: must not be set here", {"pretrain": {"optimizer_args": {"lr": 1}}}),
    ("studies: there is no study 'atlantis'", {"studies": ["atlantis"]}),
    ("extensions: gone.py: there is no such", {"extensions": ["gone.py"]}),
    ("networks: a name is given twice: ['a', 'a']", {"networks": [{"name": "a"}, {"name": "a"}]}),
    ("networks: a name is given twice: ['n_lr-1'", one_network(grid={"lr": [1, 1]})),
    ("networks.0.grid.lrr: unknown key", one_network(grid={"lrr": [1]})),
    ("networks.0.grid: a key has no values", one_network(grid={"lr": []})),
    ("networks.0.recipe.lrr: unknown key; did you mean 'lr'?", one_network(recipe={"lrr": 1})),
    ("networks.0.recipe.lr: input should be greater than 0", one_network(recipe={"lr": -1})),
    ("networks.0.spaces: there is no label space 'kmeans-7'", one_network(spaces=["kmeans-7"])),
    ("networks.0.keep: there is no epoch 31", one_network(keep=[31])),
    ("networks.0.objective.name: there is no", one_network(objective="guess")),
    ("networks.0.objective.options.x: ", one_network(objective={"name": "distil", "options": {"x": 1}})),
    ("networks.0.init: must be scratch, timm:FILE", one_network(init="guess")),
    ("networks.0.init.timm: there is no file 'gone'", one_network(init="timm:gone")),
    (
        "networks.0.init: results/x: contains no backbone of a run",
        one_network(init={"results": "results/x", "run": "x"}),
    ),
    ("networks.0.init.timm: cannot be combined with results", one_network(init={"timm": "x", "run": "x"})),
    ("transfers.0.of: there is no network 'z'", one_transfer(of=["z"])),
    ("transfers.0.from_epoch: the network 'resnet18' does not keep epoch 3", one_transfer(from_epoch=3)),
    ("transfers.0.data.samples.source: there is no such source", one_transfer(data={"samples": {"source": "cifa"}})),
    ("transfers.0.data.samples.souce: unknown key", one_transfer(data={"samples": {"souce": "folder"}})),
    ("transfers.0.recipe.batch_size: 51 is more", one_transfer(recipe=LARGE, data={"samples": {}, "train_size": 50})),
    ("measures.0.measure: there is no measure 'x'", {"measures": [{"name": "x"}]}),
    ("measures.0.of: a value is given twice", {"measures": [{"of": ["backbones", "backbones"]}]}),
    ("measures.0.options.x: ", {"measures": [{"options": {"x": 1}}]}),
    (
        "measures.0.splits: there is no split 'v2'",
        {"samples": {"extra_splits": ["val"]}, "measures": [{"splits": ["v2", "val", "val (published)"]}]},
    ),
]


@pytest.mark.parametrize(("words", "values"), CONTRADICTIONS, ids=[words for words, _ in CONTRADICTIONS])
def test_contradictions(words, values, tmp_path):
    (line,) = refused(tmp_path, yaml.safe_dump(values), "contradictions")
    assert words in line


RANKS = ["a/b", "..", "", " ", "$(touch pwned)", "a;b", "a\nb", "a b", "a'b", "-f", "a,b", "{unit}", "*", "~", "a\\b"]
RANKS += ["split", "sample_id", "train", "sha256", "ü" * 61]
NAMES = ["../evil", "", ".", "a/b", "a b", "$(id)", "a\n", "a;b", "-a", "ünfug", "a'", "{root}", "n" * 101]


@pytest.mark.parametrize(("key", "name"), [("rank", one) for one in RANKS] + [("name", one) for one in NAMES])
def test_names_that_would_be_none_of_folders_and_words_of_a_shell(key, name, tmp_path):
    samples = {"source": "folder", "root": ".", "ranks": ["kind", name], "target": "kind"}
    (line,) = refused(tmp_path, yaml.safe_dump({"name": name} if key == "name" else {"samples": samples}), "names")
    assert (": name" if key == "name" else "samples.ranks") in line


def test_ranks_of_every_script_are_taken():
    ranks = ["Überart", "вид", "種", "kind_2.b-c", "2nd"]
    samples = {"source": "folder", "root": ".", "ranks": ranks, "target": "種"}
    assert files.validate({"samples": samples, "conditions": ONE, **PHOTOS}).samples.ranks == ranks


# ---------------------------------------------------------------- YAML


TRAPS = {
    "tabs": ("cluster:\n\titerations: 3\n", "spaces, not tabs"),
    "a key twice": ("name: a\ndevice: cpu\nname: b\n", "line 3, column 1: the key 'name' appears twice"),
    "an alias in itself": (
        "model: {args: &a {x: *a}}\n",
        "line 1, column 22: its aliases expand to more than 1,000,000",
    ),
    "ten of ten of ten": (
        "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}' if i else 'x'] * 10)}]\n" for i in range(9)),
        "line 6, column 45: its aliases expand to more than 1,000,000",
    ),
    "an object of Python's": ('name: !!python/object/apply:os.system ["touch pwned"]\n', "constructor for the tag"),
    "a template": ("__use_yte__: true\nname: ?open('pwned', 'w').name\n", "templates run code"),
    "a list": ("- name\n", "not a list"),
    "two documents": ("name: a\n---\nname: b\n", "another document"),
    "nested JSON": ('{"name": ' + "[" * 50_000 + "]" * 50_000 + "}", "nested too deep"),
    "no end": ("cluster: [3\n", "not readable as YAML: line 2"),
    "no such date": ("name: 2020-99-99\n", "cannot be read as timestamp: 2020-99-99"),
    "a false integer": ("seeds: {base: !!int x}\n", "cannot be read as int: x"),
    "latin-1": ("name: ünfug\n".encode("latin-1"), "is no text in UTF-8"),
    "bytes": ("name: !!binary aGVsbG8=\n", "name: YAML reads it as Python's bytes"),
    "no as a word": ("samples: {check_images: no}\n", "samples.check_images = false: must not be true or false"),
    "an odd key": ('"a b": 1\n', "a b = 1: unknown key"),
    "a base to merge": ("shared: &b {iterations: 3}\ncluster: {<<: *b}\n", "shared = "),
    "null for a section": ("cluster:\n", "cluster = null"),
    "not a number": ("pretrain: {lr: .nan}\n", "pretrain.lr: nan is not a finite number"),
    "JSON's 1e999": ('{"pretrain": {"lr": 1e999}}', "pretrain.lr: inf is not a finite number"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_traps_of_yaml(trap, tmp_path):
    text, words = TRAPS[trap]
    (line,) = refused(tmp_path, text, "YAML")
    assert words in line and not (ROOT / "pwned").exists()


def test_a_file_as_snakemake_gives_it_is_read_again_more_strictly(tmp_path):
    """Snakemake's loader keeps the last of two equal keys; its mapping alone does not show it."""
    file = tmp_path / "twice.yaml"
    file.write_text("name: a\nname: b\n")
    with pytest.raises(GranularityError, match=r"twice\.yaml: .* the key 'name' appears twice"):
        files.validate({"name": "b"}, (file,))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"x": NaN}', '{"x": 1, "x": 2}', '{"no such": 3}', "{'x': 3}"])
def test_options_on_the_command_line(text):
    """Snakemake gives the stages their options as JSON; people who run a stage by hand mistype."""
    for stage in STAGES.values():
        with pytest.raises(GranularityError, match=r"^--options") as caught:
            parse(stage.model, text, "--options")
        assert len(str(caught.value).splitlines()) == 1


# ---------------------------------------------------------------- the real commands


THROUGH_SNAKEMAKE = {
    "misspelt": ("clustr: {}\n", "unknown key; did you mean 'cluster'?"),
    "a key twice": ("name: a\nname: b\n", "the key 'name' appears twice"),
}


@pytest.mark.workflow
def test_through_the_real_commands(tmp_path_factory, tmp_path):
    """Snakemake reads the file first, with a loader of its own; what it lets through, the workflow refuses."""
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    before = sorted(checkout.folder.rglob("[!.]*"))
    for text, words in THROUGH_SNAKEMAKE.values():
        file = tmp_path / "bad.yaml"
        file.write_text(text)
        output = checkout.run("granularity", "config", "check", "-f", str(file), code=1)
        assert output.startswith(f"error: {file}: ") and words in output and len(output.splitlines()) == 1, output
        output = checkout.snakemake("-n", "--configfile", str(file), code=1)
        assert f"{file}: " in output and words in output
        assert "Traceback" not in output and "rule " not in output, output
    after = [path for path in sorted(checkout.folder.rglob("[!.]*")) if "__pycache__" not in path.parts]
    assert [path for path in after if ".snakemake" not in path.parts and path not in before] == []
