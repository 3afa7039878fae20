"""Bad input files: each costs one line that names the file, little time and memory, and leaves nothing.

Data sets in folders, tables and Parquet files; WordNet, taxonomies, encoders and weights, as downloads and hands
damage them, and weights that are programs.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from support import tiny_chain
from support.data_sets import STRUCT
from support.refusals import CHAIN, UNSAFE, as_samples, harms, pickled, picture, reader, refused

CLASS = {"ranks": ["species"], "target": "species"}


def write(file: Path, data: bytes | str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return file


def images(root: Path, *folders: str, count: int = 5) -> None:
    for at, folder in enumerate(folders):
        for i in range(count):
            write(root / folder / f"{i}.png", picture(20 * at + i))


def parquet(columns: Mapping, metadata: str | None = None) -> bytes:
    stream = pa.BufferOutputStream()
    table = pa.table(columns)
    pq.write_table(table.replace_schema_metadata({"huggingface": metadata}) if metadata else table, stream)
    return stream.getvalue().to_pybytes()


# ---------------------------------------------------------------- one file: what it should be, and what it may be


class Kind(NamedTuple):
    """A file that is read.

    Attributes:
        lay: puts what belongs around it, and its bytes, into a folder; returns the file and the words of a command.
        odd: its bytes, by what is wrong with them.
        named: what the message names, where that is not the file.
    """

    lay: Callable[[Path, bytes | str], tuple[Path, list]]
    odd: Mapping[str, bytes | str]
    named: Mapping[str, str] = {}


TABLE = "path,split,kind,species\n" + "".join(
    f"{i}.png,{'val' if i > 5 else 'train'},k{i % 2},s{i % 4}\n" for i in range(10)
)
ODD_TABLES = {name: data for name, data in harms(TABLE.encode(), "tables").items() if "truncated" not in name}


def a_table(folder: Path, data):
    for i in range(10):
        write(folder / f"{i}.png", picture(i))
    options = {"source": "table", "root": folder, "labels": "t.csv", "ranks": ["kind", "species"], "target": "kind"}
    return write(folder / "t.csv", data), as_samples(**options)


def hub(names=("a", "b", "c"), metadata="") -> bytes:
    images, labels = [{"bytes": picture(i), "path": None} for i in range(12)], [i % 3 for i in range(12)]
    info = {"info": {"features": {"label": {"_type": "ClassLabel", "names": list(names)}}}}
    return parquet({"img": pa.array(images, STRUCT), "label": pa.array(labels)}, metadata or json.dumps(info))


ODD_HUB = {
    "a class twice": hub(names=("a", "a", "b")),
    "metadata that are no JSON": hub(metadata="{"),
    "metadata of another form": hub(metadata='{"info": []}'),
    **harms(hub(), "hub"),
}


def hub_images(folder: Path, data):
    options = {"source": "parquet", "root": folder, "ranks": ["label"], "target": "label"}
    return write(folder / "train.parquet", data), as_samples(**options)


def noun(offset: int, word: str, *above: int) -> str:
    pointers = "".join(f" @ {one:08d} n 0000" for one in above)
    return f"{offset:08d} 03 n 01 {word} 0 {len(above):03d}{pointers} | a gloss  \n"


LIVING, CAT, DOG = 4258, 100, 200
WORDNET = noun(LIVING, "living_thing") + noun(CAT, "cat", LIVING) + noun(DOG, "dog", LIVING)
ODD_WORDNET = {
    "a circle": noun(LIVING, "living_thing") + noun(CAT, "cat", DOG) + noun(DOG, "dog", CAT),
    "a noun that is missing": WORDNET + noun(300, "cow", 999),
    "no living thing": noun(CAT, "cat") + noun(DOG, "dog"),
    "a synset that is missing": WORDNET.replace(noun(DOG, "dog", LIVING), ""),
    "a count of pointers too large": WORDNET.replace("cat 0 001", "cat 0 009"),
    "letters beyond ASCII": WORDNET.replace("cat", "kätzchen"),
    **harms(WORDNET.encode(), "wordnet"),
}


def a_wordnet(folder: Path, data):
    images(folder / "data", f"n{CAT:08d}", f"n{DOG:08d}")
    options = {"ranks": ["synset"], "target": "synset", "wordnet": folder / "dict"}
    file = write(folder / "dict" / "data.noun", data)
    return file, as_samples(source="folder", root=folder / "data", **options)


TAXONOMY = "species,kind\ncat,pet\ndog,pet\n"
ODD_TAXONOMIES = {
    "one column": "species\ncat\ndog\n",
    "a class twice": TAXONOMY + "cat,wild\n",
    "a class missing": "species,kind\ncat,pet\n",
    "no coarser class": TAXONOMY.replace("dog,pet", "dog,"),
    "a reserved name": TAXONOMY.replace("kind", "split"),
    "latin-1": TAXONOMY.replace("pet", "Tür").encode("latin-1"),
    **harms(TAXONOMY.encode(), "taxonomy"),
}


def a_taxonomy(folder: Path, data):
    images(folder / "data", "cat", "dog")
    file = write(folder / "taxonomy.csv", data)
    return file, as_samples(source="folder", root=folder / "data", taxonomy=file, **CLASS)


ENCODER = (Path(__file__).parents[2] / "config/encoders/digits-tiny.json").read_text()


def edited(change) -> str:
    values = json.loads(ENCODER)
    change(values)
    return json.dumps(values)


ODD_ENCODERS = {
    "a list": "[]",
    "no vision": edited(lambda v: v.pop("vision_cfg")),
    "a width of text": edited(lambda v: v.update(embed_dim="many")),
    "an image of no size": edited(lambda v: v["vision_cfg"].update(image_size=0)),
    "an unknown key": edited(lambda v: v["vision_cfg"].update(no_such_key=3)),
    "an unknown network": edited(lambda v: v["vision_cfg"].update(timm_model_name="no_such_network")),
    **harms(ENCODER.encode(), "encoders"),
}


def an_encoder(folder: Path, data):
    file = write(folder / "odd.json", data)
    options = {"model": str(file), "captions": {"epochs": 1, "batch_size": 20}}
    return file, ["encoder", "--samples", CHAIN / "samples", "--options", json.dumps(options), "--device", "cpu"]


KINDS = {
    "table": Kind(a_table, ODD_TABLES),
    "parquet images": Kind(hub_images, ODD_HUB),
    "wordnet": Kind(a_wordnet, ODD_WORDNET, {"a synset that is missing": "n00000200"}),
    "taxonomy": Kind(a_taxonomy, ODD_TAXONOMIES),
    "encoder": Kind(an_encoder, ODD_ENCODERS),
}


@pytest.mark.parametrize(("kind", "odd"), [(name, odd) for name, kind in KINDS.items() for odd in kind.odd])
def test_a_bad_file_is_one_line(kind, odd, chain, tmp_path):
    about = KINDS[kind]
    file, words = about.lay(tmp_path / "data", about.odd[odd])
    refused(kind, words, about.named.get(odd, file), tmp_path)


# ---------------------------------------------------------------- folders


ODD_FOLDERS = {
    "a link to nothing": lambda root: (root / "cat" / "gone.png").symlink_to(root / "nothing.png"),
    "a link to the folder above": lambda root: (root / "cat" / "up").symlink_to(root),
    "a link to itself": lambda root: (root / "cat" / "here").symlink_to("."),
    "an image beside the classes": lambda root: write(root / "lone.png", picture(50)),
    "no images": lambda root: [path.unlink() for path in root.rglob("*.png")],
    "one image": lambda root: [path.unlink() for path in sorted(root.rglob("*.png"))[1:]],
}


@pytest.mark.parametrize("odd", ODD_FOLDERS)
def test_odd_folders(odd, tmp_path):
    images(tmp_path / "data", "cat", "dog")
    ODD_FOLDERS[odd](tmp_path / "data")
    named = "conditions.train_size" if odd == "one image" else tmp_path / "data"
    refused("folders", as_samples(source="folder", root=tmp_path / "data", **CLASS), named, tmp_path)


# ---------------------------------------------------------------- weights


def weights(folder: Path) -> dict[str, bytes]:
    """Weights that are none, by the name of their file: libraries go by its suffix."""
    good = (CHAIN / "encoder/open_clip_model.safetensors").read_bytes()
    found = {f"{name}.safetensors": data for name, data in harms(good, "weights").items()}
    save_file({"x": np.zeros(3, np.float32)}, folder / "other")
    found["of another network.safetensors"] = (folder / "other").read_bytes()
    found["a header without end.safetensors"] = (1 << 60).to_bytes(8, "little") + good
    (folder / "other").unlink()
    found["a program.pt"] = found["a program.bin"] = found["a program.safetensors"] = pickled(folder)
    found["an old program.pt"] = f"cposix\nsystem\n(S'touch {folder}/pwned'\ntR.".encode()
    np.savez(folder / "other.npz", x=np.array([{}], dtype=object))
    found["objects.npz"] = (folder / "other.npz").read_bytes()
    (folder / "other.npz").unlink()
    return found


def test_weights_of_encoders_and_initial_weights_are_not_run(chain, tmp_path):
    command = [str(word) for word in reader(chain, "pretrain")]
    at = command.index("--options") + 1
    options, model = json.loads(command[at]), tiny_chain.TINY["encoder"]["model"]
    for name, data in weights(tmp_path).items():
        file = write(tmp_path / name, data)
        embed = ["embed", "--samples", CHAIN / "samples", "--device", "cpu", "--options"]
        words = [[*embed, json.dumps({"model": model, "pretrained": str(file)})]]
        if name.endswith(".safetensors"):
            initial = json.dumps(options | {"init": {"timm": str(file)}})
            words.append([*command[:at], initial, *command[at + 1 :]])
        for one in words:
            assert not UNSAFE.search(refused("weights", one, file, tmp_path))
        assert not (tmp_path / "pwned").exists(), name
        file.unlink()


@pytest.mark.parametrize("name", ["open_clip_config.json", "open_clip_model.safetensors"])
def test_a_folder_of_an_encoder_without_its_files(name, chain, tmp_path):
    for file in (CHAIN / "encoder").iterdir():
        write(tmp_path / "encoder" / file.name, file.read_bytes())
    (tmp_path / "encoder" / name).unlink()
    options = {"model": f"local-dir:{tmp_path / 'encoder'}", "pretrained": None}
    command = ["embed", "--samples", CHAIN / "samples", "--options", json.dumps(options), "--device", "cpu"]
    refused("encoders", command, tmp_path / "encoder", tmp_path)
