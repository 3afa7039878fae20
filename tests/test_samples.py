"""Samples and pixels: which images there are, how they are split, and how their bytes are read."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from granularity.base.errors import GranularityError
from granularity.config.options import Condition, Pixels, Samples
from granularity.data.images import Images
from granularity.stages.pixels import stage as pixels
from granularity.stages.samples import split, stage
from granularity.stages.samples.sources import digits as digits_adapter
from granularity.store.artifacts import Artifact


def table_of(folder: Path):
    return Artifact.open(folder, "samples").table("samples.parquet")


def save(file: Path, image: Image.Image | None = None, **options) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    (image or Image.new("L", (4, 4), 7)).save(file, **options)


def sample_folder(root: Path, *ranks: str, validation=1, output: str = "samples", train_size="all") -> Path:
    params = Samples(source="folder", root=root, ranks=list(ranks), target=ranks[0], validation=validation)
    folder = root.parent / output
    stage.run(params, Condition(train_size=train_size), 0, folder)
    return folder


# ---------------------------------------------------------------- the digits


@pytest.fixture(scope="module")
def all_digits():
    found = digits_adapter.read(Samples())
    return found.frame, found.images


def test_digits_are_scikit_learns_in_its_order(all_digits):
    frame, pngs = all_digits
    truth = load_digits()
    assert len(frame) == len(pngs) == 1797
    assert frame["sample_id"].is_unique
    assert frame["sample_id"].iloc[[0, 1796]].tolist() == ["digits/0000", "digits/1796"]
    decoded = np.stack([np.asarray(Image.open(io.BytesIO(png))) for png in pngs])
    np.testing.assert_array_equal(decoded, np.round(truth.images * 255 / 16).astype(np.uint8))
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert [names.index(name) for name in frame["digit"]] == truth.target.tolist()


def test_loops_of_digits(all_digits):
    frame, _ = all_digits
    assert frame.groupby("loops")["digit"].agg(set).to_dict() == {
        "no closed loop": {"one", "two", "three", "five", "seven"},
        "one closed loop": {"zero", "four", "six", "nine"},
        "two closed loops": {"eight"},
    }


def assign(frame, train_size, seed=0, validation=400):
    kept, _ = split.assign(frame, Samples(validation=validation), Condition(train_size=train_size), seed)
    return kept.reset_index(drop=True)


def ids(frame, part):
    return set(frame.loc[frame["split"] == part, "sample_id"])


def test_training_subsets_nest_and_the_validation_images_stay(all_digits):
    frame, _ = all_digits
    smaller, middle, whole = (assign(frame, size) for size in (30, 700, "all"))
    assert ids(smaller, "val") == ids(middle, "val") == ids(whole, "val")
    assert len(ids(whole, "val")) == 400
    assert ids(smaller, "train") < ids(middle, "train") < ids(whole, "train")
    assert [len(ids(part, "train")) for part in (smaller, middle, whole)] == [30, 700, 1397]
    assert not ids(whole, "train") & ids(whole, "val")


@pytest.mark.parametrize("size", [50, 300, 900])
def test_both_splits_are_stratified_by_the_finest_rank(all_digits, size):
    frame, _ = all_digits
    share = frame["digit"].value_counts(normalize=True)
    for part, count in (("train", size), ("val", 400)):
        kept = assign(frame, size)
        counts = kept.loc[kept["split"] == part, "digit"].value_counts().reindex(share.index, fill_value=0)
        assert counts.sum() == count
        assert (counts - share * count).abs().max() <= 2.5  # a random draw would miss by 5 to 20


def test_rows_keep_the_order_they_came_in(all_digits):
    frame, _ = all_digits
    kept = assign(frame, 300)
    assert kept["sample_id"].is_monotonic_increasing
    assert kept.index.tolist() == list(range(700))
    assert kept.equals(assign(frame, 300))


def test_another_seed_splits_otherwise(all_digits):
    frame, _ = all_digits
    assert ids(assign(frame, 300), "val") != ids(assign(frame, 300, seed=1), "val")


@pytest.mark.parametrize(("validation", "count"), [(0.25, 449), (1, 1), (1000, 1000)])
def test_validation_is_a_count_or_a_share(all_digits, validation, count):
    assert len(ids(assign(all_digits[0], "all", validation=validation), "val")) == count


@pytest.mark.parametrize(("train_size", "validation"), [(1798, 1), ("all", 1797), ("all", 0.0001)])
def test_impossible_splits_are_refused(all_digits, train_size, validation):
    with pytest.raises(GranularityError, match=f"train_size = {train_size}: there are 1797 images"):
        assign(all_digits[0], train_size, validation=validation)


def test_the_same_table_has_the_same_bytes(tmp_path, digits):
    stage.run(Samples(validation=60), Condition(train_size=120), 0, tmp_path / "again", threads=2)
    assert Artifact.open(tmp_path / "again").digest == Artifact.open(digits).digest


def test_a_table_says_what_it_holds(digits):
    artifact = Artifact.open(digits, "samples")
    assert artifact.summary == {
        "images": {"train": 120, "val": 60},
        "classes": {"loops": 3, "digit": 10},
        "validation": "60 images held out, stratified by digit",
    }
    columns = ["sample_id", "split", "file", "row", "offset", "bytes", "sha256", "loops", "digit"]
    assert table_of(digits).columns.tolist() == columns


# ---------------------------------------------------------------- your own folder


def test_folder_levels_are_ranks(tmp_path):
    for name in ("animal/cat/1.png", "animal/cat/2.PNG", "animal/dog/1.png", "plant/rose/1.png", "plant/rose/x.txt"):
        save(tmp_path / "root" / name, format="PNG")
    table = table_of(sample_folder(tmp_path / "root", "kind", "species"))
    assert table["sample_id"].tolist() == [
        "animal/cat/1.png",
        "animal/cat/2.PNG",
        "animal/dog/1.png",
        "plant/rose/1.png",
    ]
    assert table["kind"].tolist() == ["animal", "animal", "animal", "plant"]
    assert table["species"].tolist() == ["cat", "cat", "dog", "rose"]
    assert Counter(table["split"]) == {"train": 3, "val": 1}


def test_train_and_val_folders_are_the_split(tmp_path):
    for name in ("train/cat/1.png", "train/cat/2.png", "train/dog/1.png", "val/cat/1.png", "val/eel/1.png"):
        save(tmp_path / "root" / name)
    table = table_of(sample_folder(tmp_path / "root", "species", validation=4)).set_index("sample_id")
    assert table["split"].to_dict() == {name: name.split("/")[0] for name in table.index}
    assert len(table) == 5
    assert table["species"].tolist() == ["cat", "cat", "dog", "cat", "eel"]
    smaller = table_of(sample_folder(tmp_path / "root", "species", train_size=1, output="smaller"))
    assert Counter(smaller["split"]) == {"train": 1, "val": 2}


def test_one_name_below_two_parents_is_two_classes(tmp_path):
    for name in ("bird/other/1.png", "bird/crow/1.png", "fish/other/1.png", "fish/eel/1.png"):
        save(tmp_path / "root" / name)
    table = table_of(sample_folder(tmp_path / "root", "kind", "species"))
    assert table["species"].tolist() == ["crow", "bird/other", "eel", "fish/other"]
    assert table["kind"].tolist() == ["bird", "bird", "fish", "fish"]


@pytest.mark.parametrize(
    "name", ["großer Bär", "日本語", 'it\'s "quoted"', "a b  c", "x,y;z", "{}", "$(echo)", "wide\u3000space\u202f"]
)
def test_names_that_people_give_survive(tmp_path, name):
    save(tmp_path / "root" / name / f"{name} 1.png")
    save(tmp_path / "root" / "plain" / "1.png")
    folder = sample_folder(tmp_path / "root", "class")
    table = table_of(folder).set_index("class")
    assert table.loc[name, "sample_id"] == f"{name}/{name} 1.png"
    pixels.run(Pixels(size=4), folder, tmp_path / "pixels")


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    save(tmp_path / "root" / "cat" / "1.png")
    try:
        os.rename(tmp_path / "root/cat/1.png", os.fsencode(tmp_path / "root/cat") + b"/\xff.png")
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    with pytest.raises(GranularityError, match=r"udcff\.png': its name is not UTF-8"):
        sample_folder(tmp_path / "root", "class")


def test_an_image_at_another_depth_is_refused(tmp_path):
    save(tmp_path / "root" / "cat" / "1.png")
    save(tmp_path / "root" / "dog" / "big" / "1.png")
    with pytest.raises(GranularityError, match=r"dog/big/1\.png: lies 2 folders below .* ask for 1"):
        sample_folder(tmp_path / "root", "species")


def test_a_folder_beside_the_splits_that_is_none_is_refused(tmp_path):
    for name in ("train/cat/1.png", "val/cat/1.png", "masks/cat/1.png"):
        save(tmp_path / "root" / name)
    with pytest.raises(GranularityError, match=r"root/masks: lies beside 'train', 'val', but is none of the splits"):
        sample_folder(tmp_path / "root", "species")


def test_a_folder_without_images_is_refused(tmp_path):
    (tmp_path / "root" / "cat").mkdir(parents=True)
    (tmp_path / "root" / "cat" / "notes.txt").write_text("no image")
    with pytest.raises(GranularityError, match=r"root: holds no images"):
        sample_folder(tmp_path / "root", "species")


def test_an_unreadable_image_is_named_as_unreadable(tmp_path):
    save(tmp_path / "root" / "cat" / "1.png")
    (tmp_path / "root" / "cat" / "2.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(GranularityError, match=r"cat/2\.png: cannot be read"):
        sample_folder(tmp_path / "root", "species")
    assert not (tmp_path / "samples").exists()


# ---------------------------------------------------------------- reading images


@pytest.fixture
def load(tmp_path):
    """Save one image beside a plain one, and read it back through a sample table."""

    def through(image: Image.Image, mode: str, name: str = "a.png", **options) -> Image.Image:
        save(tmp_path / "root" / "class" / name, image, **options)
        save(tmp_path / "root" / "class" / "z.png")
        return Images(Artifact.open(sample_folder(tmp_path / "root", "class"))).load(0, mode)

    return through


COLOURS = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [10, 20, 30]]], dtype=np.uint8)


def test_exif_rotation_is_applied(load):
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn me a quarter clockwise"
    upright = load(Image.fromarray(np.array([[1, 2, 3], [4, 5, 6]], dtype=np.uint8)), "L", exif=exif)
    np.testing.assert_array_equal(np.asarray(upright), [[4, 1], [5, 2], [6, 3]])


def test_palette_images_keep_their_colours(load):
    palette = Image.fromarray(COLOURS).quantize(4)
    assert palette.mode == "P"
    np.testing.assert_array_equal(np.asarray(load(palette, "RGB")), COLOURS)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_sixteen_bit_grey_is_scaled_not_clipped(load, name, mode):
    values = np.array([[0, 255, 256], [32768, 65280, 65535]], dtype=np.uint16)
    read = np.asarray(load(Image.fromarray(values), mode, name)).reshape(2, 3, -1)
    np.testing.assert_array_equal(read[..., 0], [[0, 0, 1], [128, 255, 255]])
    assert (read == read[..., :1]).all()


def test_cmyk_becomes_rgb(load):
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    read = np.asarray(load(red, "RGB", "a.jpg", quality=100)).astype(int)
    assert read.shape == (16, 16, 3)
    assert np.abs(read - [255, 0, 0]).max() <= 12


def test_grey_alpha_and_animation_give_the_mode_asked_for(load):
    assert load(Image.new("LA", (3, 3), (9, 0)), "RGB").mode == "RGB"
    assert load(Image.new("1", (3, 3), 1), "L").getpixel((0, 0)) == 255
    frames = [Image.new("L", (3, 3), value) for value in (5, 200)]
    assert load(frames[0], "L", "a.gif", save_all=True, append_images=frames[1:]).getpixel((0, 0)) == 5


@pytest.fixture
def two_images(tmp_path):
    for name in ("a.png", "b.png"):
        save(tmp_path / "root" / "class" / name, Image.fromarray(COLOURS))
    return tmp_path / "root" / "class" / "a.png"


def stages(file: Path):
    """Sample the folder of a file, then decode it."""
    folder = sample_folder(file.parents[1], "class")
    return lambda: pixels.run(Pixels(size=2, mode="RGB"), folder, file.parents[2] / "pixels")


def test_a_changed_file_is_named(two_images):
    decode = stages(two_images)
    save(two_images, Image.new("RGB", (2, 2)))
    with pytest.raises(GranularityError, match=rf"{re.escape(str(two_images))}: has changed since"):
        decode()
    assert not (two_images.parents[2] / "pixels").exists()


def test_a_missing_file_is_named(two_images):
    decode = stages(two_images)
    two_images.unlink()
    with pytest.raises(GranularityError, match=rf"{re.escape(str(two_images))}: cannot be read"):
        decode()


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.gif"])
@pytest.mark.parametrize("keep", [0, 0.02, 0.5, 0.9])
def test_a_truncated_file_is_named(two_images, keep, name):
    two_images = two_images.with_name(name)
    save(two_images, Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)))
    data = two_images.read_bytes()
    two_images.write_bytes(data[: int(keep * len(data))])
    decode = stages(two_images)
    with pytest.raises(GranularityError, match=rf"{re.escape(str(two_images))}: cannot be decoded"):
        decode()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("extension", "mode"), [("png", "RGB"), ("png", "P"), ("jpg", "CMYK"), ("gif", "P"), ("bmp", "RGB")]
)
def test_no_corruption_escapes_as_another_error(tmp_path, extension, mode):
    """Whatever bytes are broken, reading gives an image or the one error that names the file."""
    rng = np.random.default_rng(0)
    stream = io.BytesIO()
    noise = Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)).convert(mode)
    noise.save(stream, {"jpg": "JPEG"}.get(extension, extension))
    for i in range(60):
        data = bytearray(stream.getvalue())
        for place in rng.integers(0, len(data), 4):
            data[place] = rng.integers(256)
        file = tmp_path / "root" / "class" / f"{i:02d}.{extension}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data[: rng.integers(1, len(data) + 1)] if i % 2 else data)
    images = Images(Artifact.open(sample_folder(tmp_path / "root", "class")))
    refused = 0
    for index in range(len(images)):
        try:
            assert images.load(index, "L").mode == "L"
        except GranularityError as error:
            assert str(tmp_path / "root" / images.table["file"][index]) in str(error)
            refused += 1
    assert refused > 0


# ---------------------------------------------------------------- pixels


def test_pixels_hold_the_centre_square(tmp_path):
    wide = np.zeros((8, 24), dtype=np.uint8)
    wide[:, 8:16] = 200
    save(tmp_path / "root" / "c" / "a.png", Image.fromarray(wide))
    save(tmp_path / "root" / "c" / "b.png", Image.fromarray(wide.T.copy()))
    pixels.run(Pixels(size=4), sample_folder(tmp_path / "root", "c"), tmp_path / "pixels")
    array = Artifact.open(tmp_path / "pixels", "pixels").array("pixels.npy")
    assert (array.shape, array.dtype) == ((2, 4, 4, 1), np.uint8)
    assert (array >= 180).all()  # the filter reaches a little over the edge; a square off the centre holds zeros


def test_pixels_of_the_right_size_are_untouched_and_in_row_order(digits, digits_pixels):
    array = Artifact.open(digits_pixels).array("pixels.npy")
    numbers = table_of(digits)["sample_id"].str.removeprefix("digits/").astype(int)
    expected = np.round(load_digits().images[numbers] * 255 / 16).astype(np.uint8)
    np.testing.assert_array_equal(array[..., 0], expected)


@pytest.mark.parametrize(("threads", "chunk"), [(1, 1), (2, 7), (1, 180)])
def test_pixels_do_not_depend_on_threads_or_chunks(tmp_path, digits, digits_pixels, threads, chunk):
    pixels.run(Pixels(), digits, tmp_path / "pixels", threads, chunk)
    assert Artifact.open(tmp_path / "pixels").digest == Artifact.open(digits_pixels).digest


def test_decoding_resumes_where_it_was_killed(tmp_path, digits, digits_pixels, kill_at):
    kill_at(Images, "load", 75)
    with pytest.raises(kill_at.Killed):
        pixels.run(Pixels(), digits, tmp_path / "pixels", 1, 20)
    calls = kill_at(Images, "load", None)
    pixels.run(Pixels(), digits, tmp_path / "pixels", 1, 20)
    assert min(index for _, index, _ in calls) == 60  # three chunks of 20 were finished
    assert Artifact.open(tmp_path / "pixels").digest == Artifact.open(digits_pixels).digest
    assert [path.name for path in tmp_path.iterdir()] == ["pixels"]  # no working folder is left


def test_decoding_resumed_with_another_chunk_size_is_the_same(tmp_path, digits, digits_pixels, kill_at, monkeypatch):
    kill_at(Images, "load", 75)
    with pytest.raises(kill_at.Killed):
        pixels.run(Pixels(), digits, tmp_path / "pixels", 1, 20)
    monkeypatch.undo()
    pixels.run(Pixels(), digits, tmp_path / "pixels", 1, 33)
    assert Artifact.open(tmp_path / "pixels").digest == Artifact.open(digits_pixels).digest
