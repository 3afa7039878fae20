"""Encoders, and the initial weights of networks, that nobody vouches for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.odd_files import JSONS, KINDS
from support.refusals import CHAIN, UNSAFE, pickled, picture, reader, refused


@pytest.mark.parametrize("name", ["open_clip_config.json", "open_clip_model.safetensors"])
def test_a_folder_of_an_encoder_that_holds_no_files(name, chain, tmp_path):
    folder = tmp_path / "encoder"
    folder.mkdir()
    for file in (CHAIN / "encoder").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / name).unlink()
    options = {"model": f"local-dir:{folder}", "pretrained": None}
    command = ["embed", "--samples", CHAIN / "samples", "--options", json.dumps(options), "--device", "cpu"]
    for kind, make in KINDS.items():
        make(folder / name)
        refused("encoders", command, folder, tmp_path)
        (folder / name).rmdir() if kind == "a folder" else (folder / name).unlink()


@pytest.mark.parametrize("bad", JSONS)
def test_configurations_of_encoders(bad, chain, tmp_path):
    file = tmp_path / "encoder.json"
    file.write_text(JSONS[bad], encoding="latin-1")
    command = ["--samples", CHAIN / "samples", "--device", "cpu", "--options"]
    refused("encoders", ["encoder", *command, json.dumps({"model": str(file)})], file, tmp_path)
    file = file.rename(tmp_path / "open_clip_config.json")
    options = {"model": f"local-dir:{tmp_path}", "pretrained": None}
    refused("encoders", ["embed", *command, json.dumps(options)], file, tmp_path)


def weights(tmp_path: Path) -> dict[str, bytes]:
    save_file({"x": np.zeros(3, np.float32)}, tmp_path / "other")
    other = (tmp_path / "other").read_bytes()
    header = b'{"x":' + b"[" * 5000
    return {
        "nothing": b"",
        "cut off": other[:-4],
        "of another network": other,
        "a program": pickled(tmp_path),
        "an old program": b"cposix\nsystem\n(S'touch pwned'\ntR.",
        "a deep header": len(header).to_bytes(8, "little") + header,
        "a header without end": (1 << 60).to_bytes(8, "little") + other,
        "a picture": picture(1),
    }


def test_initial_weights(chain, tmp_path):
    """Of a network: those of `init.timm`."""
    command = [str(word) for word in reader(chain, "pretrain")]
    place = command.index("--options") + 1
    options = json.loads(command[place])
    file = tmp_path / "weights.safetensors"
    command[place] = json.dumps(options | {"init": {"timm": str(file)}})
    for data in weights(tmp_path).values():
        file.write_bytes(data)
        assert not UNSAFE.search(refused("initial weights", command, file, tmp_path))
    file.unlink()
    for kind, make in KINDS.items():
        make(file)
        refused("initial weights", command, file, tmp_path)
        file.rmdir() if kind == "a folder" else file.unlink()
