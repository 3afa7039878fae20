"""Which commit of the hub files are of."""

import pytest

from granularity.data.hub import commit

ONE, OTHER = "a" * 40, "b" * 40


def test_of_the_hubs_cache(tmp_path):
    folder = tmp_path / "datasets--org--beasts" / "snapshots" / ONE / "data"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    assert commit(folder) == commit(folder / "train.parquet") == commit(tmp_path / "link") == ONE
    (tmp_path / "snapshots" / "monday").mkdir(parents=True)
    assert commit(tmp_path / "snapshots" / "monday") is None


@pytest.mark.parametrize(("commits", "found"), [([ONE, ONE], ONE), ([ONE, OTHER], None), (["main"], None), ([], None)])
def test_of_what_a_download_to_a_folder_leaves(commits, found, tmp_path):
    place = tmp_path / ".cache" / "huggingface" / "download" / "data"
    place.mkdir(parents=True)
    for number, one in enumerate(commits):
        (place / f"{number}.parquet.metadata").write_text(f"{one}\netag\n1700000000.0\n")
    assert commit(tmp_path) == found
