"""Near duplicates: against all pairs one by one; of many copies one twin each; what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageEnhance

from granularity.base.errors import GranularityError
from granularity.config.options import Config
from granularity.plan.graph import Plan
from granularity.stages.duplicates import stage
from support import tasks

ALL, SIDE = 90, 16
SPLITS = ["train"] * 54 + ["val"] * 24 + ["other"] * 12


@pytest.fixture(scope="module")
def given(tmp_path_factory, make_samples, make_array) -> dict[str, Path]:
    """Images in noisy groups, of which some lie across splits and classes, and embeddings of the same groups."""
    folder, rng = tmp_path_factory.mktemp("duplicates"), np.random.default_rng(0)
    group, order = rng.integers(0, 36, ALL), rng.permutation(ALL)
    ranks = {"kind": ["a"] * ALL, "class": [f"c{one}" for one in rng.integers(0, 2, ALL)]}
    split = [SPLITS[row] for row in order]
    samples = make_samples(folder / "samples", split, ranks, "kind")
    patterns = rng.integers(40, 216, (36, SIDE, SIDE, 1))
    images = (patterns[group] + rng.integers(-25, 26, (ALL, SIDE, SIDE, 1))).astype(np.uint8)
    vectors = rng.normal(size=(36, 8))[group] + 0.4 * rng.normal(size=(ALL, 8))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    pixels = make_array(folder / "pixels", "pixels", samples, images)
    return {"samples": samples, "pixels": pixels, "embed": make_array(folder / "embed", "embed", samples, vectors)}


def findings(given: dict[str, Path], output: Path, **options) -> pd.DataFrame:
    return tasks.run("duplicates", output, options, **given).table("findings.parquet").astype({"finding": str})


def one_by_one(given: dict[str, Path], keep) -> list[tuple]:
    """Finding, image, nearest twin, cosine, bits and number of twins, of every pair of images that `keep` takes."""
    frame, vectors = pd.read_parquet(given["samples"] / "samples.parquet"), np.load(given["embed"] / "embedding.npy")
    hashes = []
    for image in np.load(given["pixels"] / "pixels.npy"):
        grey = Image.fromarray(image[..., 0])
        wide, high = (np.asarray(grey.resize(size, Image.Resampling.LANCZOS)) for size in ((9, 8), (8, 9)))
        places = [(y, x) for y in range(8) for x in range(8)]
        hashes.append(
            [wide[y, x + 1] > wide[y, x] for y, x in places] + [high[y + 1, x] > high[y, x] for y, x in places]
        )
    made = []
    for row, one in frame.iterrows():
        found: dict[str, list] = {}
        for other, twin in frame.iterrows():
            cosine = float(vectors[row] @ vectors[other])
            bits = sum(a != b for a, b in zip(hashes[row], hashes[other], strict=True))
            if row == other or not keep(cosine, bits):
                continue
            if one["split"] == twin["split"] and other < row:
                same = one["class"] == twin["class"]
                found.setdefault("near_duplicate" if same else "near_conflicting_duplicate", []).append(
                    (cosine, bits, other)
                )
            elif one["split"] != "train" and twin["split"] == "train":
                found.setdefault("near_in_both_splits", []).append((cosine, bits, other))
        for name in (name for name in stage.FINDINGS if name in found):
            cosine, bits, other = max(found[name], key=lambda pair: pair[0])
            made.append((name, f"image {row}", f"image {other}", round(cosine, 4), bits, len(found[name])))
    return made


KEPT = {
    "pixels": ({"bits": 24}, lambda cosine, bits: bits <= 24),
    "embedding": ({"cosine": 0.85}, lambda cosine, bits: cosine >= 0.85),
    "both": ({"bits": 28, "cosine": 0.8}, lambda cosine, bits: bits <= 28 and cosine >= 0.8),
}


@pytest.mark.parametrize("by", KEPT)
def test_findings_are_those_of_all_pairs_one_by_one(given, tmp_path, monkeypatch, by):
    for name, value in (("HASHED", 1000), ("ROWS", 32), ("QUERIES", 24), ("NUMBERS", 64)):
        monkeypatch.setattr(stage, name, value)
    options, keep = KEPT[by]
    table = findings(given, tmp_path / "out", by=by, **options)
    columns = ["finding", "sample_id", "twin_sample_id", "cosine", "bits", "twins"]
    wanted = one_by_one(given, keep)
    assert list(table[columns].round({"cosine": 4}).itertuples(index=False, name=None)) == [
        (*one[:3], pytest.approx(one[3], abs=2e-4), *one[4:]) for one in wanted
    ]
    assert {one[0] for one in wanted} == {*stage.FINDINGS} and max(one[5] for one in wanted) > 1
    frame = pd.read_parquet(given["samples"] / "samples.parquet").set_index("sample_id")
    for start in ("", "twin_"):
        for column in ("split", "class"):
            assert (table[start + column] == frame.loc[table[f"{start}sample_id"], column].astype(str).to_numpy()).all()


def test_of_many_copies_each_has_one_twin_and_all_are_counted(tmp_path, make_samples, make_array):
    copies, others = 2000, 500
    split = ["train"] * (copies - 1) + ["val"] * (others + 1)
    samples = make_samples(tmp_path / "samples", split, {"class": ["a"] * len(split)}, "class")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (len(split), 9, 9, 3)).astype(np.uint8)
    images[:copies] = images[0]
    given = {"samples": samples, "pixels": make_array(tmp_path / "pixels", "pixels", samples, images)}
    table = findings(given, tmp_path / "out", by="pixels").query("bits == 0")
    inside, across = (table[table["finding"] == name] for name in ("near_duplicate", "near_in_both_splits"))
    assert len(inside) == copies - 2 and inside["twins"].sum() == (copies - 1) * (copies - 2) // 2
    assert {*inside["twin_sample_id"], *across["twin_sample_id"]} == {"image 0"}
    assert across[["sample_id", "twins"]].values.tolist() == [[f"image {copies - 1}", copies - 1]]
    assert table["cosine"].isna().all()


def test_an_image_saved_again_smaller_or_brighter_is_found_and_another_one_is_not(tmp_path, make_samples, make_array):
    rng, side = np.random.default_rng(1), 48
    photos = [Image.fromarray(rng.integers(0, 256, (6, 6, 3)).astype(np.uint8)).resize((side, side)) for _ in range(40)]
    smaller = photos[0].resize((24, 24)).resize((side, side))
    brighter = ImageEnhance.Brightness(photos[1]).enhance(1.2)
    photos[2].save(tmp_path / "again.jpg", quality=30)
    made = [smaller, brighter, Image.open(tmp_path / "again.jpg")]
    images = np.stack([np.asarray(one) for one in [*photos, *made]])
    split = ["train"] * 40 + ["val"] * 3
    samples = make_samples(tmp_path / "samples", split, {"class": ["a"] * 43}, "class")
    given = {"samples": samples, "pixels": make_array(tmp_path / "pixels", "pixels", samples, images)}
    table = findings(given, tmp_path / "out", by="pixels")
    assert table[["sample_id", "twin_sample_id"]].values.tolist() == [
        [f"image {40 + i}", f"image {i}"] for i in range(3)
    ]


def test_what_is_not_asked_is_not_planned_and_what_is_asked_takes_what_is_there():
    def jobs(**duplicates):
        plan = Plan(Config.model_validate({"duplicates": duplicates, "label_spaces": {"kmeans": []}}))
        return plan.jobs("duplicates"), plan

    assert jobs()[0] == []
    found, plan = jobs(by="both")
    assert [job.values["condition"] for job in found] == [one.name for one in plan.conditions]
    assert all(job.inputs["embed"] and job.inputs["pixels"] for job in found)


def test_bad_input_is_one_line(given, tmp_path):
    with pytest.raises(GranularityError, match=r"^duplicates: by is 'no'; choose pixels, embedding or both$"):
        tasks.run("duplicates", tmp_path / "out", samples=given["samples"], pixels=given["pixels"])
    with pytest.raises(GranularityError, match=r"^duplicates: by is 'both', which needs --embed$"):
        tasks.run("duplicates", tmp_path / "out", {"by": "both"}, samples=given["samples"], pixels=given["pixels"])


def test_no_process_has_both_faiss_and_torch(given, tmp_path):
    tasks.without_torch("duplicates", tmp_path / "made", '{"by": "both"}', **given)
