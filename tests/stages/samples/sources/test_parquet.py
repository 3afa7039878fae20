"""Image data sets in Parquet, in the layouts of the Hugging Face hub.

Layouts: https://huggingface.co/docs/hub/datasets-file-names-and-splits and, for the metadata, what
`datasets.Features.arrow_schema` writes.
"""

import os
from pathlib import Path

import huggingface_hub.constants
import huggingface_hub.errors
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from granularity.base.errors import GranularityError
from granularity.data.images import Images
from granularity.stages.samples import source
from granularity.stages.samples.sources import parquet
from granularity.store.artifact import Artifact
from support import data_sets
from support.sampling import make, section

DATA = os.environ.get("GRANULARITY_DATA")
NAMES = ["zebra", "ant", "moth"]  # a publisher's order, not the alphabet's


def write(file: Path, labels, names=NAMES, **more) -> None:
    data_sets.parquet(file, labels, names, **more)


def params(root: Path | None, **over):
    over = {"ranks": ["label"], "target": over.get("ranks", ["label"])[0], **over}
    return section(source="parquet", root=root, **over)


def run(root: Path | None, output: Path, threads: int = 1, **over) -> Artifact:
    make(params(root, **over), output / "samples", threads=threads)
    return Artifact.open(output / "samples", "samples")


@pytest.mark.parametrize("threads", [1, 2])
def test_shards_go_through_the_stage(tmp_path, threads):
    root = tmp_path / "data set"
    write(root / "data/train-00001-of-00002-0123456789abcdef.parquet", [0, 1], first=13)
    write(root / "data/train-00000-of-00002-0123456789abcdef.parquet", [2, 0, 1], first=10)
    write(root / "data/validation-00000-of-00001.parquet", [1], first=90)
    artifact = run(root, tmp_path, threads)
    frame = artifact.table("samples.parquet")
    assert frame["sample_id"].tolist() == [f"train/{i:08d}" for i in range(5)] + ["validation/00000000"]
    assert frame["split"].tolist() == ["train"] * 5 + ["val"]
    assert frame["label"].tolist() == ["moth", "zebra", "ant", "zebra", "ant", "ant"]
    assert list(frame["label"].cat.categories) == NAMES
    assert frame["file"].iloc[[0, 3]].str.slice(0, 16).tolist() == ["data/train-00000", "data/train-00001"]
    assert frame["row"].tolist() == [0, 1, 2, 0, 1, 0]
    images = Images(artifact)
    assert [images.load(i, "L").getpixel((0, 0)) for i in range(6)] == [10, 11, 12, 13, 14, 90]


@pytest.mark.parametrize(
    "files",
    [
        ["train.parquet", "test.parquet"],
        ["plain_text/train-00000-of-00001.parquet", "plain_text/test-00000-of-00001.parquet"],
        ["default/train/0000.parquet", "default/test/0000.parquet"],
        ["train/0000.parquet", "test/0000.parquet"],
    ],
)
def test_layouts(tmp_path, files):
    for i, file in enumerate(files):
        write(tmp_path / file, [i, 2], image="img")
    write(tmp_path / ".cache/huggingface/train.parquet", [0])  # a stray copy, as of a download that was broken off
    found = parquet.read(params(tmp_path))
    assert found.frame["split"].tolist() == ["test", "test", "train", "train"]
    assert found.frame["label"].tolist() == ["ant", "moth", "zebra", "moth"]
    assert found.frame["file"].unique().tolist() == files[::-1]


def test_a_test_split_without_labels_is_left_out(tmp_path):
    write(tmp_path / "train.parquet", [0, 1, 2])
    write(tmp_path / "test.parquet", [-1, -1])
    assert source.find(params(tmp_path)).frame["split"].tolist() == ["train"] * 3


def test_every_label_column_is_a_rank(tmp_path):
    for split in ("train", "test"):
        kinds = pa.array(["x", "x", "w"] if split == "train" else ["x", "v", "v"])
        others = {"score": pa.array([0.5, 1.0, 2.0]), "size": pa.array([1, 2, 3]), "sha256": pa.array(list("abc"))}
        write(tmp_path / f"{split}.parquet", [0, 1, 2], kind=kinds, **others)
    found = parquet.read(params(tmp_path))
    assert found.ranks == ["label", "kind"]
    assert found.frame["kind"].tolist() == ["x", "v", "v", "x", "x", "w"]
    assert list(found.frame["kind"].cat.categories) == ["v", "w", "x"]


def test_wordnet_ids_are_synsets(tmp_path):
    write(tmp_path / "train.parquet", [1, 0], ["n02124075", "n01440764"])
    found = parquet.read(params(tmp_path, ranks=["synset"]))
    assert found.ranks == ["synset"]
    assert found.frame["synset"].tolist() == ["n01440764", "n02124075"]
    write(tmp_path / "train.parquet", [1, 0], ["n02124075", "n01440764"], synset=pa.array(["lion", "tiger"]))
    assert parquet.read(params(tmp_path)).ranks == ["label", "synset"]
    write(tmp_path / "train.parquet", [1, 0], ["n02124075", "cat"])
    assert parquet.read(params(tmp_path)).ranks == ["label"]


README = """---
license: mit
dataset_info:
{}features:
  - name: image
    dtype: image
  - name: label
    dtype:
      class_label:
        names:
          '0': zebra
          '1': ant
          '10': b
{}
  splits:
  - name: train
---
# A data set
"""


@pytest.mark.parametrize("config", ["", "- config_name: other\n  features: []\n- config_name: data\n  "])
def test_class_names_of_the_readme(tmp_path, config):
    """Where the files have none: `Features._to_yaml_list` numbers them."""
    rest = "\n".join(f"          '{i}': c{i}" for i in range(2, 10))
    text = README.format(config or "  ", rest)
    (tmp_path / "README.md").write_text(text)
    write(tmp_path / "data/train.parquet", [10, 1, 2], features=False)
    assert parquet.read(params(tmp_path)).frame["label"].tolist() == ["b", "ant", "c2"]
    write(tmp_path / "data/train.parquet", [1, 2, 0])  # what the file says comes first
    assert parquet.read(params(tmp_path)).frame["label"].tolist() == ["ant", "moth", "zebra"]


@pytest.mark.parametrize("readme", [None, "no header", "---\ndataset_info: 3\n---\n"])
def test_numbers_without_names_are_refused(tmp_path, readme):
    if readme is not None:
        (tmp_path / "README.md").write_text(readme)
    write(tmp_path / "train.parquet", [1, 0], features=False)
    with pytest.raises(GranularityError, match=r"train\.parquet: column 'label' has numbers without names"):
        parquet.read(params(tmp_path))


@pytest.mark.parametrize("label", [3, -1, None, 2**40])
def test_a_label_without_a_name_is_named(tmp_path, label):
    write(tmp_path / "a.parquet", [0])
    write(tmp_path / "b-00000-of-00002.parquet", [0, 1])
    write(tmp_path / "b-00001-of-00002.parquet", pa.array([0, label], pa.int64()))
    message = r"b-00001-of-00002\.parquet: no known label for 1 images, such as 'b/00000003' \(row 1\)"
    with pytest.raises(GranularityError, match=message):
        run(tmp_path, tmp_path / "out", train="a", val="b")


def test_files_that_do_not_fit_together_are_refused(tmp_path):
    write(tmp_path / "test.parquet", [0, 1])
    write(tmp_path / "train.parquet", [0, 1], NAMES[::-1])
    with pytest.raises(
        GranularityError, match=r"train\.parquet: has other label columns or class names than .*test\.p"
    ):
        parquet.read(params(tmp_path))
    write(tmp_path / "train.parquet", [0, 1], kind=pa.array(["x", "y"]))
    with pytest.raises(GranularityError, match=r"train\.parquet: has other label columns"):
        parquet.read(params(tmp_path))


def test_missing_and_left_over_files_are_named(tmp_path):
    with pytest.raises(GranularityError, match="contains no Parquet files"):
        parquet.read(params(tmp_path / "nowhere"))
    steps = {
        "split 'train' lacks file number 1 of 3": ["train-00000-of-00003", "train-00002-of-00003"],
        "split 'train' has files of two versions; download": ["train-00001-of-00003", "train-00000-of-00001"],
        r"contains several data sets; .*/b'\]": ["b/train"],
    }
    for message, files in steps.items():
        for name in files:
            write(tmp_path / f"{name}.parquet", [0])
        with pytest.raises(GranularityError, match=message):
            parquet.read(params(tmp_path))


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """huggingface_hub's cache without a network: cached(revision, commit) makes a snapshot and gives its folder."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub" / "datasets--org--beasts"

    def snapshot(revision: str, commit: str) -> Path:
        file = repository / "refs" / revision
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(commit * 40)
        folder = repository / "snapshots" / (commit * 40)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    return snapshot


def place(folder: Path, name: str, *args, **over) -> None:
    """As huggingface_hub does: the file is a blob, and the snapshot has a link to it."""
    blob = folder.parents[1] / "blobs" / f"{folder.name[0]}-{name.replace('/', '-')}"
    write(blob, *args, **over)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(blob)


def test_a_data_set_of_the_hub(tmp_path, cached):
    folder = cached("main", "a")
    place(folder, "data/train-00000-of-00001.parquet", [0, 1], first=10)
    place(folder, "data/test-00000-of-00001.parquet", [2], first=20)
    artifact = run(None, tmp_path, hub="org/beasts")
    assert artifact.table("samples.parquet")["label"].tolist() == ["moth", "zebra", "ant"]
    assert artifact.params["revision"] == "a" * 40
    images = Images(artifact)
    assert [images.load(i, "L").getpixel((0, 0)) for i in range(3)] == [20, 10, 11]


def test_the_hubs_own_conversion_is_the_way_out(cached):
    (cached("main", "a") / "README.md").write_text("a script makes this data set")
    place(cached("refs/convert/parquet", "c"), "default/train/0000.parquet", [1])
    found = parquet.read(params(None, hub="org/beasts"))
    assert (found.frame["label"].tolist(), found.root.name) == (["ant"], "c" * 40)
    with pytest.raises(GranularityError, match="org/beasts@main: contains no Parquet files"):
        parquet.read(params(None, hub="org/beasts@main"))


@pytest.mark.parametrize("hub", ["org/nothing", "org/beasts@nothing", "org/no such//name"])
def test_what_the_hub_does_not_give_is_one_line(cached, hub):
    place(cached("main", "a"), "train.parquet", [0])
    with pytest.raises(GranularityError, match=rf"^samples\.hub: {hub}: cannot be downloaded [^\n]*$"):
        parquet.read(params(None, hub=hub))


@pytest.mark.skipif(DATA is None, reason="needs real images: set GRANULARITY_DATA (see docs/development.md)")
@pytest.mark.parametrize(
    ("name", "rank", "classes", "counts"),
    [
        ("cifar10", "label", 10, {"test": 10000, "train": 50000}),
        ("tiny-imagenet", "synset", 200, {"train": 20000, "val": 4000}),
    ],
)
def test_real_data(name, rank, classes, counts):
    root = Path(DATA, name)
    found = parquet.read(params(root, ranks=[rank]), 2)
    assert found.ranks == [rank]
    assert found.frame["split"].value_counts(sort=False).to_dict() == counts
    assert len(found.frame[rank].cat.categories) == found.frame[rank].nunique() == classes
    for split, count in counts.items():
        part = found.frame[found.frame["split"] == split]
        assert part["row"].tolist() == list(range(count))
        images = pq.ParquetFile(root / f"{split}.parquet").read(columns=["img.path"])["img"].combine_chunks()
        folders = [path.split("/")[0] for path in images.field("path").to_pylist()]
        assert part[rank].tolist() == folders  # the publisher's paths name the class, too
