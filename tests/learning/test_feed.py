"""Images read ahead: the same bytes with any number of readers, in any part of a batch, from any step on."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from granularity.base.errors import GranularityError
from granularity.base.seeds import seed_of
from granularity.data.shards import Shards
from granularity.learning import feed, views
from granularity.learning.dataset import Data
from granularity.learning.evaluation import predict
from granularity.learning.loop import Batches
from granularity.learning.options import Augment
from granularity.learning.order import WINDOW, order
from granularity.store.artifacts import Artifact
from support import tasks
from support.photographs import folder_of
from support.tiny_chain import harmed
from support.trainings import CPU, MODEL, made_space, pretraining, recipe

SIZE = 20
CROPS = {
    "random crop": Augment(crop=16, flip=True),
    "the centre": Augment(flip=True),
    "resized crop": Augment(crop=16, flip=True, scale=(0.08, 1)),
    "torchvision's policy": Augment(crop=16, policy={"name": "RandAugment", "num_ops": 2}),
    "timm's policy": Augment(crop=16, scale=(0.3, 1), policy={"name": "rand-m9-mstd0.5"}),
}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("photographs")
    options = {"source": "folder", "root": str(folder_of(root / "images")), "ranks": ["kind"], "target": "kind"}
    tasks.run("samples", root / "samples", options | {"validation": 12, "train_size": "all"})
    for form in ("jpeg", "raw"):
        tasks.run("pixels", root / form, {"size": SIZE, "mode": "RGB", "format": form}, samples=root / "samples")
    made_space(root / "target", root / "samples", "manual", {"rank": "kind"})
    return {name: root / name for name in ("samples", "jpeg", "raw", "target")}


@pytest.fixture(scope="module")
def data(photographs) -> Data:
    return Data(Artifact.open(photographs["samples"]), Artifact.open(photographs["jpeg"]), CPU)


@pytest.fixture
def readers(monkeypatch):
    monkeypatch.setattr(feed, "PIECE", 3)
    return lambda number: monkeypatch.setenv("GRANULARITY_READERS", str(number))


def batches(data: Data) -> Batches:
    return Batches(len(data.train), 10, seed=3)


def fed(data: Data, options: Augment, steps=range(6), part: slice = slice(None), seed: int = 3) -> list[torch.Tensor]:
    given = data.feed(batches(data), 6, options, seed, part)
    return [given(step) for step in steps]


# ---------------------------------------------------------------- the same bytes


@pytest.mark.parametrize("name", CROPS)
def test_batches_do_not_depend_on_readers_parts_or_where_one_begins(data, readers, name):
    options = CROPS[name]
    readers(0)
    expected = fed(data, options)
    assert expected[0].shape == (10, 3, *[options.crop or SIZE] * 2)
    assert all(batch.is_contiguous(memory_format=torch.channels_last) for batch in expected)
    assert len({batch.numpy().tobytes() for batch in expected}) == 6
    for number in (1, 3):
        readers(number)
        assert all(map(torch.equal, fed(data, options), expected))
    assert all(map(torch.equal, fed(data, options, range(4, 6)), expected[4:]))  # 4 and 5: the second epoch
    parts = [fed(data, options, part=part) for part in (slice(0, 3), slice(3, 10))]
    assert all(
        torch.equal(torch.cat(both), whole) for both, whole in zip(zip(*parts, strict=True), expected, strict=True)
    )
    assert torch.equal(fed(data, options, [5, 2])[1], expected[2])


def test_another_seed_draws_otherwise(data, readers):
    readers(0)
    options = CROPS["random crop"]
    assert not torch.equal(fed(data, options, [0], seed=3)[0], fed(data, options, [0], seed=4)[0])


def test_reading_draws_nothing_that_the_training_would(data, readers):
    """Dropout and the like draw what they would have drawn."""
    for number in (0, 2):
        readers(number)
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        fed(data, CROPS["torchvision's policy"], [0])
        fed(data, CROPS["timm's policy"], [0])
        found = torch.rand(1).item(), random.random(), np.random.rand()
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        assert found == (torch.rand(1).item(), random.random(), np.random.rand())


@pytest.mark.parametrize("options", [Augment(), Augment(flip=True, pad=2, crop=18)])
def test_squares_read_ahead_are_those_of_the_memory(photographs, readers, options, monkeypatch):
    """Whether a GPU has room for all of them does not show in the bytes."""
    raw = Data(Artifact.open(photographs["samples"]), Artifact.open(photographs["raw"]), CPU)
    expected = fed(raw, options)
    centres = list(raw.centres(raw.val, options, 5))
    monkeypatch.setattr(Data, "_is_near", False)
    for number in (0, 2):
        readers(number)
        assert all(map(torch.equal, fed(raw, options), expected))
        assert all(map(torch.equal, raw.centres(raw.val, options, 5), centres))


def test_squares_take_resized_crops_and_policies_too(photographs, readers):
    raw = Data(Artifact.open(photographs["samples"]), Artifact.open(photographs["raw"]), CPU)
    for name in ("resized crop", "torchvision's policy"):
        readers(0)
        expected = fed(raw, CROPS[name])
        readers(2)
        assert all(map(torch.equal, fed(raw, CROPS[name]), expected))


# ---------------------------------------------------------------- what is seen


def test_a_random_crop_is_a_window_of_the_whole_rectangle(photographs):
    shards = Shards(Artifact.open(photographs["jpeg"]))
    row = int(shards.width.argmax())
    whole = np.asarray(shards.load(row))
    found = {views.training_view(shards.load(row), Augment(crop=16), SIZE, 0, step, 5).tobytes() for step in range(300)}
    height, width, _ = whole.shape
    windows = {whole[y : y + 16, x : x + 16].tobytes() for y in range(height - 15) for x in range(width - 15)}
    assert found <= windows
    assert len(found) > 100  # and not those of the centre alone


def test_resized_crops_have_the_areas_and_shapes_asked_for():
    boxes = [views._box(80, 50, (0.2, 0.5), (0.5, 2.0), np.random.default_rng(i)) for i in range(500)]
    areas = np.array([(right - left) * (bottom - top) for left, top, right, bottom in boxes]) / 4000
    shapes = np.array([(right - left) / (bottom - top) for left, top, right, bottom in boxes])
    assert 0.18 < areas.min() < 0.22 and 0.48 < areas.max() < 0.52
    assert 0.45 < shapes.min() < 0.6 and 1.7 < shapes.max() < 2.2
    assert all(0 <= left < right <= 80 and 0 <= top < bottom <= 50 for left, top, right, bottom in boxes)
    assert views._box(400, 10, (1, 1), (0.75, 4 / 3), np.random.default_rng(0)) == (193, 0, 206, 10)


def test_evaluation_sees_the_centre(data, photographs, readers):
    shards = Shards(Artifact.open(photographs["jpeg"]))
    mean, std = (np.asarray(one).reshape(3, 1, 1) for one in data.moments)
    for number in (0, 2):
        readers(number)
        seen = predict(lambda images: images, data, data.val, Augment(crop=16, flip=True, scale=(0.5, 1)))
        for row, image in zip(data.val, seen, strict=True):
            whole = np.asarray(shards.load(int(row)))
            top, left = (whole.shape[0] - 16) // 2, (whole.shape[1] - 16) // 2
            expected = (whole[top : top + 16, left : left + 16].transpose(2, 0, 1) / 255 - mean) / std
            np.testing.assert_allclose(image, expected, atol=1e-5)
    squares = torch.cat(list(data.centres(data.val, Augment(), 5)))
    assert torch.equal(squares, data.images(data.val))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Augment(pad=2, crop=16), "augment.pad: .*not padded"),
        (Augment(crop=21), "augment.crop: 21 px do not fit"),
        (Augment(policy={"name": "Nonsense"}), "augment.policy: Nonsense: neither"),
        (Augment(policy={"name": "RandAugment", "nonsense": 3}), "augment.policy: RandAugment: .*nonsense"),
        (Augment(policy={"name": "Resize", "size": 9}), "augment.policy: Resize: does not work on RGB images"),
        (Augment(policy={"name": "ToImage"}), "augment.policy: ToImage: does not work"),
    ],
)
def test_what_cannot_be_done_is_a_line(data, readers, options, why):
    for number in (0, 1):
        readers(number)
        with pytest.raises(GranularityError, match=f"^{why}[^\n]*$"):
            fed(data, options, [0])


def test_blocks_stay_together_and_every_image_is_seen_once():
    found = order(100_003, 5, 1, block=16)
    assert np.array_equal(np.sort(found), np.arange(100_003))
    window = found[: WINDOW * 16] // 16
    assert len(np.unique(window)) <= WINDOW + 1
    assert not np.array_equal(found, np.sort(found))
    assert not np.array_equal(found, order(100_003, 5, 2, block=16))
    expected = np.random.default_rng(seed_of(5, "order", 1)).permutation(50)
    assert np.array_equal(order(50, 5, 1), expected)


# ---------------------------------------------------------------- trainings


OPTIONS = {"recipe": recipe(batch_size=16, augment={"crop": 16, "flip": True, "scale": [0.3, 1]}), "model": MODEL}


def train(photographs: dict[str, Path], output: Path, **over) -> Artifact:
    options = OPTIONS | {"runs": [pretraining("target").name]} | over
    inputs = {"samples": photographs["samples"], "pixels": photographs["jpeg"], "hierarchy": [photographs["target"]]}
    return tasks.run("pretrain", output, options, **inputs)


def test_a_training_does_not_depend_on_readers_or_kills(photographs, tmp_path, readers, kill_at, checkpoint_always):
    digests = set()
    for number in (0, 1, 3):
        readers(number)
        digests.add(train(photographs, tmp_path / str(number)).digest)
    assert len(digests) == 1
    kill_at(feed.Feed, "__call__", 5)
    with pytest.raises(kill_at.Killed):
        train(photographs, tmp_path / "killed")
    calls = kill_at(feed.Feed, "__call__", None)
    assert train(photographs, tmp_path / "killed").digest in digests
    assert [step for _, step in calls][:2] == [4, 5]


@pytest.mark.parametrize("number", [0, 2])
def test_a_corrupt_image_ends_the_training_with_one_line(photographs, tmp_path, readers, number):
    readers(number)
    with harmed(photographs["jpeg"]):
        file = photographs["jpeg"] / "shards/00000.jpegs"
        file.chmod(0o644)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
        with pytest.raises(GranularityError, match=r"^.*00000\.jpegs: the image of row \d+ is corrupt [^\n]*$"):
            train(photographs, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.workflow
def test_the_command_trains_in_two_processes_with_readers_each(photographs, tmp_path):
    """Each reads its share of every batch; what they make does not depend on how."""
    options = {"recipe": OPTIONS["recipe"].model_dump(mode="json"), "model": MODEL.model_dump(mode="json")}
    options |= {"runs": [pretraining("target").name], "processes": 2}
    roles = {"samples": "samples", "pixels": "jpeg", "hierarchy": "target"}
    words = [word for role, name in roles.items() for word in (f"--{role}", str(photographs[name]))]
    digests = set()
    for number in (0, 2):
        command = [sys.executable, "-m", "granularity.machine.launch", "2", "pretrain", *words, "--device", "cpu"]
        command += ["--threads", "2", "--options", json.dumps(options), "--output", str(tmp_path / f"{number}/out")]
        environment = os.environ | {"GRANULARITY_READERS": str(number)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        digests.add(Artifact.open(tmp_path / f"{number}/out").digest)
    assert len(digests) == 1


SCRIPT = """
import sys
from pathlib import Path
from granularity.base import interrupt
from granularity.learning import feed
from granularity.learning.options import Recipe
from test_feed import train

interrupt.install()
call = feed.Feed.__call__

def slow(self, step):
    import time
    if step == 4:
        print("here", flush=True)
    if step >= 4:
        time.sleep(float(sys.argv[3]))
    return call(self, step)

feed.Feed.__call__ = slow
root = Path(sys.argv[1])
train({name: root / name for name in ("samples", "jpeg", "raw", "target")}, Path(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_readers_end_with_their_training_and_leave_signals_to_it(photographs, tmp_path, number):
    """SIGTERM goes to all processes of a job: readers go on, and the training saves its work and ends."""
    command = [sys.executable, "-c", SCRIPT, photographs["samples"].parent, tmp_path / "out", "0.5"]
    folders = [str(Path(feed.__file__).parents[2]), str(Path(__file__).parents[1]), str(Path(__file__).parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "GRANULARITY_READERS": "2"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert process.stdout.readline() == "here\n", process.stderr.read()
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(found) >= 2
    if number == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, number)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == (-9 if number == signal.SIGKILL else 143), errors
    assert "Traceback" not in errors
    deadline = time.monotonic() + 30
    while any(is_alive(int(pid)) for pid in found):
        assert time.monotonic() < deadline, "a reader is left"
        time.sleep(0.05)
    digest = train(photographs, tmp_path / "clean").digest
    assert train(photographs, tmp_path / "out").digest == digest


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_reader_that_is_killed_is_a_line(data, readers):
    readers(2)
    given = data.feed(batches(data), 6, Augment(crop=16), 3)
    given(0)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    for pid in children:
        if "python" in Path(f"/proc/{pid}/cmdline").read_text() and is_alive(int(pid)):
            os.kill(int(pid), signal.SIGKILL)
    sum(range(1_000_000))  # an error is not raised here, in the midst of other work
    with pytest.raises(GranularityError, match=r"^a process that reads images has ended .*GRANULARITY_READERS"):
        for step in range(1, 6):
            given(step)


@pytest.mark.parametrize("value", ["", "-1", "two", "1001"])
def test_a_number_of_readers_that_is_none(monkeypatch, value):
    monkeypatch.setenv("GRANULARITY_READERS", value)
    with pytest.raises(GranularityError, match=r"GRANULARITY_READERS: .* must be a number of processes"):
        feed.readers(CPU)


def test_pieces_fit_the_shared_memory(monkeypatch):
    class Small:
        f_bavail, f_frsize = 64, 2**20

    monkeypatch.setattr(os, "statvfs", lambda path: Small)
    assert feed._piece(224 * 224 * 3, 16) * 224 * 224 * 3 * 16 * (feed.AHEAD + 1) <= 2**25
    assert feed._piece(2**30, 16) == 1


def test_a_feed_that_is_forgotten_has_no_readers(data, readers):
    readers(2)
    mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    before = set(mine.read_text().split())
    given = data.feed(batches(data), 6, Augment(crop=16), 3)
    given(0)
    assert len(set(mine.read_text().split()) - before) == 2
    del given
    gc.collect()
    assert not [pid for pid in set(mine.read_text().split()) - before if is_alive(int(pid))]
