"""What jobs ask a scheduler for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from granularity.config.options import Config
from granularity.plan import jobs, resources
from granularity.plan.resources import memory_mb, minutes, threads, uses_gpu
from granularity.store import artifacts

CONDITION = {"condition": "train-300"}
PHOTOS = {"source": "imagenet", "root": "photos", "ranks": ["synset"], "target": "synset"}


def configured(**sections) -> Config:
    return Config.model_validate(sections)


def photos(**sections) -> Config:
    conditions = [{"train_size": "all"}]
    return configured(samples=PHOTOS, conditions=conditions, label_spaces={"manual": []}, **sections)


def test_every_kind_of_artifact_has_its_needs():
    assert set(resources.NEEDS) == set(jobs.PATHS)


@pytest.mark.parametrize("kind", resources.NEEDS)
def test_another_attempt_asks_for_twice_as_much(kind):
    values = CONDITION | {"clustering": "whole-30"}
    asked = [(memory_mb(Config(), kind, values, n), minutes(Config(), kind, values, 3, n)) for n in (1, 2, 3)]
    for first, second in pairwise(asked):
        assert second == pytest.approx((2 * first[0], 2 * first[1]), abs=1)


def test_tiny_jobs_stay_small():
    for kind in resources.NEEDS:
        values = CONDITION | {"clustering": "superclass-30"}
        assert memory_mb(Config(), kind, values) <= 3000
        assert 15 <= minutes(Config(), kind, values, 14) <= 240
        assert threads(Config(), kind, values) == 1


def test_more_images_take_more_of_everything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = photos()
    values = {"condition": "train-all", "clustering": "whole-100"}
    expected = {kind: resources.images(config, kind, values) for kind in resources.NEEDS}
    assert expected == {kind: 0 if kind.startswith("theory") else 1_331_167 for kind in expected}
    before = {kind: (memory_mb(config, kind, values), minutes(config, kind, values)) for kind in expected}
    table = tmp_path / "results" / "digits" / "train-all" / "samples"
    with artifacts.create(table, "samples", "granularity.stages.samples.stage", {}, {}) as out:
        out.summary["images"] = {"train": 8, "val": 2}
    for kind in ("pixels", "clusters", "pretrain", "report"):  # counted now
        assert resources.images(config, kind, values) == 10
        assert memory_mb(config, kind, values) < before[kind][0]
        assert minutes(config, kind, values) < before[kind][1]
    assert resources.images(config, "samples", values) == 1_331_167


def test_a_training_takes_as_long_as_it_has_to_do():
    config = photos(pretrain={"epochs": 90}, device="cuda", pixels={"size": 256, "mode": "RGB"})
    values = {"condition": "train-all"}
    one, two = (minutes(config, "pretrain", values, trainings) for trainings in (1, 2))
    assert two - 30 == pytest.approx(2 * (one - 30), abs=1)
    assert one == pytest.approx(1_331_167 * 90 * resources.NEEDS["pretrain"].ms / 60_000, rel=0.05)
    on_cpu = config.model_copy(update={"device": "cpu"})
    assert minutes(on_cpu, "pretrain", values) > 50 * one


def test_only_cuda_asks_for_gpus_and_only_where_they_are_used():
    kinds = {kind for kind in resources.NEEDS if uses_gpu(configured(device="cuda"), kind)}
    assert kinds == {"encoder", "embedding", "clusters", "pretrain", "finetune", "probe", "theory_runs"}
    for device in ("auto", "cpu"):
        assert not any(uses_gpu(configured(device=device), kind) for kind in resources.NEEDS)


def test_threads_are_for_many_images():
    values = {"condition": "train-all"}
    assert threads(photos(), "samples", values) == threads(photos(), "pixels", values) == 8
    assert threads(photos(), "embedding", values) == 1  # on a CPU they decide the last bits


def test_larger_pictures_take_more_memory_up_to_what_a_training_keeps():
    values = {"condition": "train-all"}
    small, large = photos(), photos(pixels={"size": 256, "mode": "RGB"})
    for kind, most in {"pixels": 2 * 4096 * 256**2 * 3, "pretrain": 2**31, "probe": 2**31}.items():
        more = memory_mb(large, kind, values) - memory_mb(small, kind, values)
        assert 0.9 * most / 1e6 < more <= most / 1e6, kind


def test_an_encoder_trained_here_holds_its_pictures_and_a_published_one_its_weights(tmp_path):
    tiny = tmp_path / "tiny.json"
    tiny.write_text('{"vision_cfg": {"image_size": 8}}')
    tiny = configured(encoder={"model": str(tiny)})
    unknown = configured(encoder={"model": "ViT-B-32"})
    assert memory_mb(unknown, "encoder", CONDITION) > 1000 + memory_mb(tiny, "encoder", CONDITION)
    published = configured(encoder={"model": "ViT-L-14", "pretrained": "openai"})
    assert memory_mb(published, "embedding", CONDITION) > 5000 + memory_mb(tiny, "embedding", CONDITION)
    assert minutes(published, "embedding", CONDITION) == pytest.approx(30 + 1197 / 60, abs=1)


def test_a_probe_holds_an_output_for_every_class(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "results" / "digits" / "train-all" / "samples"
    ranks = ["family", "synset"]
    samples = PHOTOS | {"ranks": ranks}
    with artifacts.create(table, "samples", "granularity.stages.samples.stage", {}, {}) as out:
        out.summary |= {"images": {"train": 500_000}, "classes": {"family": 1000, "synset": 10_000}}
    all_of_them, few = (
        configured(samples=samples, conditions=[{"train_size": "all"}], label_spaces={"manual": []}, probe=probe)
        for probe in ({}, {"ranks": ["family"]})
    )
    values = {"condition": "train-all"}
    more = memory_mb(all_of_them, "probe", values) - memory_mb(few, "probe", values)
    assert more == pytest.approx(500_000 * 9000 * 40 / 1e6, abs=1)
    assert minutes(all_of_them, "probe", values) == pytest.approx(10 * minutes(few, "probe", values), rel=0.1)


def test_several_processes_take_more_memory_and_less_time():
    values = {"condition": "train-all"}
    one, four = (photos(device="cuda", jobs={"processes": n}) for n in (1, 4))
    for kind in ("pretrain", "finetune"):
        assert memory_mb(four, kind, values) == pytest.approx(4 * memory_mb(one, kind, values), abs=4)
        assert minutes(four, kind, values) - 30 == pytest.approx((minutes(one, kind, values) - 30) / 4, abs=1)
    assert memory_mb(four, "probe", values) == memory_mb(one, "probe", values)
