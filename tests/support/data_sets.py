"""Small data sets in the layouts of their publishers; where these are described, the tests of each source say."""

import gzip
import hashlib
import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from scipy.io import savemat

from support.sampling import save


def grey(value: int, kind: str = "PNG") -> bytes:
    """An image file of one grey value."""
    stream = io.BytesIO()
    Image.new("L", (2, 2), value).save(stream, kind)
    return stream.getvalue()


def grey_of(file: str) -> int:
    """Each image gets a grey of its own, so that reading back another one shows."""
    return sum(map(ord, file)) * 7 % 200


def fill(root: Path, *files: str) -> None:
    for file in files:
        save(root / file, Image.new("L", (3, 3), grey_of(file)), format="JPEG")


# ---------------------------------------------------------------- ImageNet


def devkit(folder: Path, wnids: dict[int, str]) -> None:
    """meta.mat: a struct array, one per synset, of which the last is no class but above the others."""
    rows = wnids | {1001: "n00001740"}
    fields = ("ILSVRC2012_ID", "WNID", "words", "children")
    synsets = np.empty((len(rows), 1), dtype=[(field, object) for field in fields])
    for row, (key, wnid) in enumerate(rows.items()):
        synsets[row, 0] = (float(key), wnid, "tench, Tinca tinca", np.empty((0, 0)))
    folder.mkdir(parents=True, exist_ok=True)
    savemat(folder / "meta.mat", {"synsets": synsets})


def thousand(root: Path, each: int = 1) -> None:
    """ImageNet-1k of few training images a class, all the same file; n00000000 to n00000999 in alphabetical order."""
    save(root / "image.JPEG")
    for number in range(1000):
        folder = root / "train" / f"n{number:08d}"
        folder.mkdir(parents=True)
        for image in range(each):
            (folder / f"{image}.JPEG").hardlink_to(root / "image.JPEG")


def packed(root: Path, synsets: tuple[str, ...]) -> None:
    """ImageNet-21k: an archive of three images for each synset, as in the publisher's archive of archives."""
    root.mkdir(parents=True)
    for synset in synsets:
        images = {f"{synset}_{i}.JPEG": grey(int(synset[-3:]) // 2 + i) for i in range(3)}
        shard(root / f"{synset}.tar", images)


# ---------------------------------------------------------------- iNaturalist

FIELDS = ("kingdom", "phylum", "class", "order", "family", "genus", "specific_epithet")
# Real species. Two genera are called Prunella and two epithets vulgaris; Chordata holds two supercategories.
SPECIES = {
    "Plants": ["Plantae Tracheophyta Magnoliopsida Lamiales Lamiaceae Prunella vulgaris"],
    "Birds": [
        "Animalia Chordata Aves Passeriformes Prunellidae Prunella modularis",
        "Animalia Chordata Aves Passeriformes Sturnidae Sturnus vulgaris",
    ],
    "Reptiles": ["Animalia Chordata Reptilia Squamata Lacertidae Lacerta agilis"],
}


def categories_of(species: dict[str, list[str]] = SPECIES) -> list[dict]:
    """As in 2021."""
    made = []
    for supercategory, lines in species.items():
        for line in lines:
            values, number = dict(zip(FIELDS, line.split(), strict=True)), len(made)
            name = {"id": number, "name": " ".join(line.split()[-2:]), "common_name": f"Common {number}"}
            folder = {"image_dir_name": f"{number:05d}_{line.replace(' ', '_')}"}
            made.append({**name, "supercategory": supercategory, **values, **folder})
    return made


def annotations_of(split: str, categories: list[dict], each: int, first: int = 0) -> dict:
    """An annotation file; the images are not in the order of their ids, nor the annotations in that of the images."""
    images, annotations = [], []
    for category in categories:
        for number in range(each):
            key = first + len(images)
            folder = category.get("image_dir_name", category["id"])
            about = {"width": 4, "rights_holder": "Ana\u00efs", "latitude": None, "longitude": float("nan")}
            images.append({"id": key, "file_name": f"{split}/{folder}/{key}-{number}.jpg", **about})
            annotations.append({"id": key, "image_id": key, "category_id": category["id"]})
    about = {"info": {"year": 2021}, "licenses": [{"id": 0, "name": "CC0", "url": ""}]}
    return {**about, "images": images[::-1], "categories": categories, "annotations": annotations}


def inaturalist(root: Path, split: str, data: dict) -> None:
    """The annotation file and its images, each of a grey of its own."""
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{split}.json").write_text(json.dumps(data))
    for image in data["images"]:
        save(root / image["file_name"], Image.new("L", (4, 4), image["id"] % 200))


# ---------------------------------------------------------------- CIFAR, MNIST, SVHN


def pickled(file: Path, content: object) -> list[str]:
    """A file, and what torchvision lists of it: its name and MD5."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps(content, protocol=2))
    return [file.name, hashlib.md5(file.read_bytes()).hexdigest()]


def cifar10(root: Path, names: list[str]) -> list[list[str]]:
    """CIFAR-10 of an image of each class in every batch; returns the names and MD5 of its files."""
    pixels = np.random.default_rng(0).integers(0, 256, (len(names), 3072)).astype(np.uint8)
    batches = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    content = {name: {"data": pixels, "labels": [*range(len(names))]} for name in batches}
    return [pickled(root / name, one) for name, one in {**content, "batches.meta": {"label_names": names}}.items()]


def svhn(root: Path, pixels: np.ndarray, labels: list[int]) -> list[list[str]]:
    """SVHN of the same images [32, 32, 3, N] in both splits; returns the names and MD5 of its files."""
    root.mkdir(parents=True, exist_ok=True)
    files = [root / f"{split}_32x32.mat" for split in ("train", "test")]
    for file in files:
        savemat(file, {"X": pixels, "y": np.array(labels, np.uint8)[:, None]})
    return [[file.name, hashlib.md5(file.read_bytes()).hexdigest()] for file in files]


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()


def mnist(root: Path, prefix: str = "", zipped: bool = True, labels=(3, 1, 4), mark: str = "-") -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 4, 5))
    root.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test" if prefix else "t10k"):
        for what, values in (("images-idx3", images), ("labels-idx1", np.array(labels))):
            name, data = f"{prefix}{split}-{what}-ubyte".replace("-idx", f"{mark}idx"), idx(values)
            (root / (name + ".gz" * zipped)).write_bytes(gzip.compress(data) if zipped else data)
    return images


# ---------------------------------------------------------------- WILDS, DomainNet, PACS


def iwildcam(root: Path, each: int = 1) -> list[str]:
    """So many images in each split; returns their paths."""
    splits = [split for split in ("train", "id_val", "val", "test") for _ in range(each)]
    rows = [f"{i},{split},{20 - i},7,1,{i % 2},now,{i}.jpg" for i, split in enumerate(splits)]
    files = [f"train/{i}.jpg" for i in range(len(splits))]
    fill(root, *files)
    header = ",split,location_remapped,location,sequence_remapped,y,datetime,filename\n"
    (root / "metadata.csv").write_text(header + "\n".join(rows) + "\n")
    (root / "categories.csv").write_text("category_id,name,y\n10,empty,0\n11,fox,1\n12,yeti,99999\n13,unicorn,99999\n")
    return files


def domains(root: Path, lists: str, images: str = "", splits=(), each: int = 1) -> None:
    """DomainNet and PACS: so many images of two classes in each split, and their lists; `lists` is what these are
    called, `images` the folder of the images."""
    for split in splits:
        domain, _, part = split.rpartition("_")
        names = [f"{domain}/{one}/{domain}_{part}_{i}.jpg" for one in ("zebra", "ant") for i in range(each)]
        fill(root / images, *names)
        file = root / lists.format(split)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{name} {i // each}\n" for i, name in enumerate(names)))


# ---------------------------------------------------------------- shards

STRUCT = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def parquet(file: Path, labels, names, first=0, image="image", column="label", features=True, **more) -> None:
    """One file of the Hugging Face hub; its images are of one grey value each: first, first + 1, ..."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = [{"bytes": grey(first + i), "path": None if i % 2 else "same.png"} for i in range(len(labels))]
    columns = {image: pa.array(pixels, STRUCT), column: pa.array(labels), **more}
    described = {image: {"_type": "Image"}, column: {"names": names, "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": described}})} if features else None
    table = pa.table({name: values for name, values in columns.items() if len(values) == len(labels)})
    pq.write_table(table.replace_schema_metadata(metadata), file, row_group_size=2)


def shard(file: Path, members: dict[str, bytes | str | int | dict] | list[tuple]) -> None:
    """A tar archive, such as one of WebDataset."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            if isinstance(content, dict):
                content = json.dumps(content)
            data = content if isinstance(content, bytes) else str(content).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def pairs(labels, extension="cls", first=0) -> dict:
    """Samples a0, a1, ... with images of one grey value each: first, first + 1, ..."""
    members = {}
    for i, label in enumerate(labels):
        members |= {f"a{i}.png": grey(first + i), f"a{i}.{extension}": label}
    return members
