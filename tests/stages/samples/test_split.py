"""Which images train and validate: fixed, stratified, nested."""

import pytest

from granularity.base.errors import GranularityError
from granularity.stages.samples import stage
from granularity.stages.samples.sources import digits as digits_source
from support.sampling import section


@pytest.fixture(scope="module")
def all_digits():
    return digits_source.read(section()).frame


def assign(frame, train_size, seed=0, validation=400):
    kept, _ = stage.assign(frame, section(validation=validation), train_size, seed)
    return kept.reset_index(drop=True)


def ids(frame, part):
    return set(frame.loc[frame["split"] == part, "sample_id"])


def test_training_subsets_nest_and_the_validation_images_stay(all_digits):
    frame = all_digits
    smaller, middle, whole = (assign(frame, size) for size in (30, 700, "all"))
    assert ids(smaller, "val") == ids(middle, "val") == ids(whole, "val")
    assert len(ids(whole, "val")) == 400
    assert ids(smaller, "train") < ids(middle, "train") < ids(whole, "train")
    assert [len(ids(part, "train")) for part in (smaller, middle, whole)] == [30, 700, 1397]
    assert not ids(whole, "train") & ids(whole, "val")


@pytest.mark.parametrize("size", [50, 300, 900])
def test_both_splits_are_stratified_by_the_finest_rank(all_digits, size):
    frame = all_digits
    share = frame["digit"].value_counts(normalize=True)
    for part, count in (("train", size), ("val", 400)):
        kept = assign(frame, size)
        counts = kept.loc[kept["split"] == part, "digit"].value_counts().reindex(share.index, fill_value=0)
        assert counts.sum() == count
        assert (counts - share * count).abs().max() <= 2.5  # a random draw would miss by 5 to 20


def test_another_seed_splits_otherwise(all_digits):
    frame = all_digits
    assert ids(assign(frame, 300), "val") != ids(assign(frame, 300, seed=1), "val")


@pytest.mark.parametrize(("validation", "count"), [(0.25, 449), (1, 1), (1000, 1000)])
def test_validation_is_a_count_or_a_share(all_digits, validation, count):
    assert len(ids(assign(all_digits, "all", validation=validation), "val")) == count


def test_an_extra_split_is_not_validated_on(all_digits):
    frame = all_digits.assign(split=["train", "train", "test"] * 599)
    kept, _ = stage.assign(frame, section(validation=100, extra_splits=["test"]), "all", 0)
    assert kept["split"].value_counts().to_dict() == {"train": 1098, "test": 599, "val": 100}


def test_images_of_a_published_split_are_stratified_and_depend_on_no_other_split(all_digits):
    frame = all_digits.assign(split=["train", "train", "val", "test"] * 449 + ["train"])
    kept, more = (
        stage.assign(frame, section(extra_splits=extra), 100, 0)[0].query("split == 'train'")
        for extra in ([], ["test"])
    )
    assert ids(kept, "train") == ids(more, "train") == ids(stage.assign(frame, section(), 100, 0)[0], "train")
    assert (kept["digit"].value_counts() - 100 * all_digits["digit"].value_counts(normalize=True)).abs().max() <= 2.5
    fewer = frame[frame["split"] != "test"].reset_index(drop=True)
    assert ids(stage.assign(fewer, section(), 100, 0)[0], "train") == ids(kept, "train")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{}", "no such image"], "line 2: 'no such image' is not a training image of this draw; remove the line"),
        (["{}", "{}"], "line 2: '.*' appears twice; remove the line"),
        ([], r"train_size = all: .* and 0 for training"),
    ],
)
def test_a_subset_lists_training_images_once(all_digits, tmp_path, lines, said):
    (file := tmp_path / "subset.txt").write_text(
        "".join(f"{line}\n" for line in lines).replace("{}", all_digits["sample_id"][0])
    )
    with pytest.raises(GranularityError, match=said):
        stage.assign(all_digits, section(validation=1, subset=file), "all", 0)


@pytest.mark.parametrize(("train_size", "validation"), [(1798, 1), ("all", 1797), ("all", 0.0001)])
def test_impossible_splits_are_refused(all_digits, train_size, validation):
    with pytest.raises(GranularityError, match=f"train_size = {train_size}: there are 1797 images"):
        assign(all_digits, train_size, validation=validation)
