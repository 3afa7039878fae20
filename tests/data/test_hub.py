"""Which commit of the hub files are of."""

import pytest

from granularity.data.hub import commit

ONE, OTHER = "a" * 40, "b" * 40


def left(folder, **commits):
    """What a download with --local-dir leaves."""
    place = folder / ".cache" / "huggingface" / "download" / "data"
    place.mkdir(parents=True)
    for name, one in commits.items():
        (place / f"{name}.parquet.metadata").write_text(f"{one}\netag\n1700000000.0\n")
    return folder


def test_of_the_hubs_cache(tmp_path):
    folder = tmp_path / "datasets--org--beasts" / "snapshots" / ONE / "data"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    assert commit(folder) == commit(folder / "train.parquet") == commit(tmp_path / "link") == ONE


@pytest.mark.parametrize(
    ("commits", "found"),
    [({"x": ONE, "y": ONE}, ONE), ({"x": ONE, "y": OTHER}, None), ({"x": "main"}, None), ({}, None)],
)
def test_of_a_local_download(commits, found, tmp_path):
    assert commit(left(tmp_path, **commits)) == found


def test_a_folder_of_ones_own(tmp_path):
    (tmp_path / "snapshots" / "monday").mkdir(parents=True)
    assert commit(tmp_path) is None and commit(tmp_path / "snapshots" / "monday") is None
