"""Images as trainings see them: the same with any number of readers, in any part of a batch, from any step on."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import granularity
from granularity.base.errors import GranularityError
from granularity.data.shards import Shards
from granularity.learning.data import feed
from granularity.learning.data.augment import _box, augment, centre_crop, training_view
from granularity.learning.data.dataset import Data
from granularity.learning.data.order import Batches
from granularity.learning.options import Augment
from granularity.learning.training.evaluation import predict
from granularity.store.artifact import Artifact
from support import tasks
from support.photographs import folder_of
from support.tiny_chain import harmed
from support.trainings import CPU, MODEL, made_space, pretraining, recipe

SIZE = 20
CROPS = {
    "random crop": Augment(crop=16, flip=True),
    "the centre": Augment(flip=True),
    "resized crop": Augment(crop=16, flip=True, scale=(0.08, 1)),
    "policy": Augment(crop=16, policy="RandAugment", policy_args={"magnitude": 20}),
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


# ---------------------------------------------------------------- what is seen


def test_a_random_crop_is_a_window_of_the_whole_rectangle(photographs):
    shards = Shards(Artifact.open(photographs["jpeg"]))
    row = int(shards.width.argmax())
    whole = np.asarray(shards.load(row))
    views = (training_view(shards.load(row), Augment(crop=16), SIZE, 0, step, 5) for step in range(300))
    found = {view.tobytes() for view in views}
    height, width, _ = whole.shape
    windows = {whole[y : y + 16, x : x + 16].tobytes() for y in range(height - 15) for x in range(width - 15)}
    assert found <= windows
    assert len(found) > 100  # and not those of the centre alone


def test_resized_crops_have_the_areas_and_shapes_asked_for():
    boxes = [_box(80, 50, (0.2, 0.5), np.random.default_rng(i)) for i in range(500)]
    areas = np.array([(right - left) * (bottom - top) for left, top, right, bottom in boxes]) / 4000
    shapes = np.array([(right - left) / (bottom - top) for left, top, right, bottom in boxes])
    assert 0.18 < areas.min() < 0.22 and 0.48 < areas.max() < 0.52
    assert 0.7 < shapes.min() < 0.8 and 1.25 < shapes.max() < 1.4
    assert all(0 <= left < right <= 80 and 0 <= top < bottom <= 50 for left, top, right, bottom in boxes)
    assert _box(400, 10, (1, 1), np.random.default_rng(0)) == (193, 0, 206, 10)


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


SCRIPT = """
import sys
from pathlib import Path
from granularity.base import interrupt
from granularity.learning.data import feed
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
    folders = [str(Path(granularity.__file__).parents[1]), str(Path(__file__).parents[1]), str(Path(__file__).parent)]
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
    if number == signal.SIGTERM:
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
    for reader in multiprocessing.active_children():
        reader.kill()
    sum(range(1_000_000))  # an error is not raised here, in the midst of other work
    with pytest.raises(GranularityError, match=r"^a process of this job has ended .*GRANULARITY_READERS"):
        for step in range(1, 6):
            given(step)


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


# ---------------------------------------------------------------- augmentation and the order of images


IMAGES = torch.arange(2 * 3 * 6 * 6, dtype=torch.float32).reshape(2, 3, 6, 6)


@pytest.mark.parametrize(
    ("pad", "crop", "side"), [(0, None, 6), (2, None, 6), (0, 4, 4), (2, 9, 9), (1, 8, 8), (2, 1, 1)]
)
@pytest.mark.parametrize("flip", [False, True])
def test_pad_and_crop_give_windows_of_the_padded_image(pad, crop, side, flip):
    padded = torch.nn.functional.pad(IMAGES, [pad] * 4)
    found = augment(IMAGES, Augment(flip=flip, pad=pad, crop=crop), 0, 3)
    assert found.shape == (2, 3, side, side)
    for image, whole in zip(found, padded, strict=True):
        places = range(whole.shape[-1] - side + 1)
        windows = [whole[:, y : y + side, x : x + side] for y in places for x in places]
        mirrored = [window.flip(2) for window in windows] if flip else []
        assert any(torch.equal(image, window) for window in windows + mirrored)


def test_every_window_and_both_sides_are_drawn():
    one = torch.arange(9.0).reshape(1, 1, 3, 3).expand(4000, 1, 3, 3)
    found = augment(one, Augment(flip=True, crop=2), 0, 0).reshape(4000, 4)
    kinds, counts = torch.unique(found, dim=0, return_counts=True)
    assert len(kinds) == 2 * 4
    assert counts.min() > 400  # of 500


def test_augmentation_is_a_function_of_seed_and_step():
    options = Augment(flip=True, pad=2)
    many = torch.rand(50, 1, 6, 6)
    first = augment(many, options, 1, 2)
    torch.manual_seed(123)
    assert torch.equal(augment(many, options, 1, 2), first)
    assert not torch.equal(augment(many, options, 1, 3), first)
    assert not torch.equal(augment(many, options, 2, 2), first)


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("name", ["AugMix", "AutoAugment", "RandAugment", "TrivialAugmentWide"])
def test_a_policy_alters_each_image_by_seed_step_and_place(name, mode):
    noise = np.random.default_rng(0).integers(256, size=(12, 12, 3), dtype=np.uint8)
    image, options = Image.fromarray(noise).convert(mode), Augment(policy=name)
    drawn, found = torch.get_rng_state(), set()
    for _ in range(2):
        found |= {(i, training_view(image, options, 12, 0, *divmod(i, 3)).tobytes()) for i in range(9)}
        assert torch.equal(torch.get_rng_state(), drawn)
    assert len(found) == 9 and len({view for _, view in found}) > 4


@pytest.mark.parametrize(("crop", "side", "start"), [(None, 6, 0), (4, 4, 1), (5, 5, 0), (9, 6, 0)])
def test_evaluation_of_squares_sees_the_centre(crop, side, start):
    found = centre_crop(IMAGES, Augment(pad=2, crop=crop))
    assert torch.equal(found, IMAGES[:, :, start : start + side, start : start + side])


def test_an_epoch_holds_every_image_at_most_once_and_whole_batches_only():
    batches = Batches(23, 5, seed=0)
    assert batches.per_epoch == 4
    epochs = [torch.cat([batches(step) for step in range(4 * e, 4 * e + 4)]).tolist() for e in range(3)]
    assert all(len(epoch) == len(set(epoch)) == 20 for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert set(epochs[0]) | set(epochs[1]) | set(epochs[2]) == set(range(23))
    fresh = Batches(23, 5, seed=0)
    assert [fresh(step).tolist() for step in (7, 2)] == [batches(step).tolist() for step in (7, 2)]
    assert Batches(23, 5, seed=1)(0).tolist() != batches(0).tolist()
