"""Bad input files: what a command says of them, and the bytes of some."""

import io
import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from granularity import cli
from granularity.base.errors import GranularityError
from support.bounds import bounded

CHAIN = Path("results/tiny/train-60")
KEPT = re.compile(r"\.store(/(\.(locks|new|work(/[^/]+)?)|(run|measured)(/.*)?))?")
UNSAFE = re.compile("weights_only|trust_remote_code|allow_pickle")  # what libraries advise to load anything


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def refused(what: str, words: list, named: object, folder: Path) -> str:
    """The one line that a command gives; it names something (one of a tuple), and leaves nothing behind."""
    output = folder / "out" / "made"
    output.parent.mkdir()
    with bounded(), pytest.raises(GranularityError) as caught:
        cli.app([*map(str, words), "--output", str(output)], standalone_mode=False)
    message = str(caught.value)
    assert any(str(one) in message for one in (named if isinstance(named, tuple) else (named,))), (what, message)
    assert len(message.splitlines()) == 1 and message.isprintable(), message
    assert "Traceback" not in message
    # What a job had finished of its work before is kept for the next attempt.
    left = {name for name in listing(output.parent) if not KEPT.fullmatch(name)}
    assert left == set(), f"{what}: something is left behind"
    assert all(any(folder.iterdir()) for folder in output.parent.glob(".store/.work/*") if folder.is_dir())
    shutil.rmtree(output.parent)
    return message


def as_samples(**options) -> list:
    return ["samples", "--options", json.dumps({"validation": 0.4, **options}, default=str)]


def harms(data: bytes, seed: object) -> dict[str, bytes]:
    """What may become of a file on its way: each of these is not what it was."""
    return {
        "zero bytes": b"",
        "truncated": data[: random.Random(str(seed)).randrange(1, len(data) - 1)],
        "zeros": bytes(len(data)),
        "text": b"404: Not Found\n",
        "a web page": b"<!DOCTYPE html><html><body>Sign in</body></html>",
    }


def picture(shade: int, size: int = 6) -> bytes:
    stream, pixels = io.BytesIO(), np.random.default_rng(shade).integers(0, 255, (size, size, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def pickled(tmp_path: Path) -> bytes:
    """A checkpoint that touches a file when it is unpickled."""
    import torch

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/pwned",)

    torch.save({"state_dict": Evil()}, tmp_path / "evil.pt")
    data = (tmp_path / "evil.pt").read_bytes()
    (tmp_path / "evil.pt").unlink()
    return data


def reader(chain, kind: str, name: str = "") -> list:
    return next(step.words for step in chain if step.kind == kind and name in str(step.folder))
