"""Which images train and validate: fixed, stratified, nested."""

from __future__ import annotations

import pytest

from granularity.base.errors import GranularityError
from granularity.stages.samples import split
from granularity.stages.samples.sources import digits as digits_source
from granularity.store.artifacts import Artifact
from support.sampling import make, section, table_of


@pytest.fixture(scope="module")
def all_digits():
    found = digits_source.read(section())
    return found.frame, found.images


def assign(frame, train_size, seed=0, validation=400):
    kept, _ = split.assign(frame, section(validation=validation), train_size, seed)
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
    make(section(validation=60), tmp_path / "again", 120, threads=2)
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
