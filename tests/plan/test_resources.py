"""What jobs ask a scheduler for."""

from itertools import pairwise
from pathlib import Path

import pytest

from granularity.plan import commands
from granularity.plan.commands import memory_mb, minutes, threads, uses_gpu
from granularity.plan.graph import Plan, plans
from granularity.plan.rules import Rules
from granularity.stages import STAGES
from support import default_run, writing

PHOTOS = {"source": "imagenet", "root": "photos", "ranks": ["synset"], "target": "synset"}
IMAGES = 1_331_167

OF_ONE = [name for name, stage in STAGES.items() if not stage.of_study]


def planned(**sections) -> Plan:
    return Plan(default_run.config(**{"duplicates": {"by": "pixels"}, **sections}))


def photos(**sections) -> Plan:
    spaces = sections.pop("label_spaces", {"manual": [], "kmeans": [100]})
    return planned(samples=PHOTOS, conditions=[{"train_size": "all"}], label_spaces=spaces, **sections)


def job_of(plan: Plan, stage: str, **values):
    """The first job of a stage."""
    return plan.jobs(stage, **values)[0]


def counted(folder: Path, **summary) -> None:
    """A sample table that says how many images there are."""
    with writing.create(folder, "samples", ("granularity.stages.samples.stage",), {}, {}) as out:
        out.summary |= summary


def test_another_attempt_asks_for_twice_as_much():
    plan = planned()
    for stage in OF_ONE:
        job = job_of(plan, stage)
        asked = [(memory_mb(plan, job, n), minutes(plan, job, n)) for n in (1, 2, 3)]
        for first, second in pairwise(asked):
            assert second == pytest.approx((2 * first[0], 2 * first[1]), abs=1)


def test_tiny_jobs_stay_small():
    plan = planned()
    for stage in OF_ONE:
        for job in plan.jobs(stage):
            assert memory_mb(plan, job) <= 3000
            assert 15 <= minutes(plan, job) <= 240
            assert threads(plan, job) == 1


def test_more_images_take_more_of_everything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = photos()
    for stage in OF_ONE:
        found = commands.images(plan, job_of(plan, stage))
        assert found == (0 if stage in ("theory", "verdicts") else IMAGES)
    stages = ("pixels", "cluster", "pretrain", "report")
    before = {stage: (memory_mb(plan, job_of(plan, stage)), minutes(plan, job_of(plan, stage))) for stage in stages}
    counted(tmp_path / "results/digits/train-all/samples", images={"train": 8, "val": 2})
    for stage in stages:
        assert commands.images(plan, job_of(plan, stage)) == 10
        assert memory_mb(plan, job_of(plan, stage)) < before[stage][0]
        assert minutes(plan, job_of(plan, stage)) < before[stage][1]
    assert commands.images(plan, job_of(plan, "samples")) == IMAGES


def test_a_training_takes_as_long_as_it_has_to_do():
    recipe = {"epochs": 90}
    large = {"device": "cuda", "pixels": {"size": 256, "mode": "RGB"}, "jobs": {"pretrain": "run"}}
    plan = photos(pretrain=recipe, **large)
    two = photos(pretrain=recipe, **large | {"jobs": {"pretrain": "space"}})
    one_run = minutes(plan, job_of(plan, "pretrain"))
    runs = len(job_of(two, "pretrain").options["runs"])
    assert runs > 1
    assert minutes(two, job_of(two, "pretrain")) - 30 == pytest.approx(runs * (one_run - 30), rel=0.001)
    assert one_run == pytest.approx(IMAGES * 90 * STAGES["pretrain"].needs.ms / 60_000, rel=0.05)
    on_cpu = photos(pretrain=recipe, **large | {"device": "auto"})
    assert minutes(on_cpu, job_of(on_cpu, "pretrain")) > 50 * one_run


def test_only_cuda_asks_for_gpus_and_only_where_they_are_used():
    plan = planned(device="cuda")
    stages = {stage for stage in OF_ONE if uses_gpu(plan, job_of(plan, stage))}
    assert stages == {"encoder", "embed", "cluster", "pretrain", "finetune", "measure", "theory"}
    for device in ("auto", "cpu"):
        plan = planned(device=device)
        assert not any(uses_gpu(plan, job_of(plan, stage)) for stage in OF_ONE)


def test_threads_are_for_many_images():
    plan = photos()
    assert threads(plan, job_of(plan, "samples")) == threads(plan, job_of(plan, "pixels")) == 8
    assert threads(plan, job_of(plan, "embed")) == 16
    assert threads(plan, job_of(plan, "pretrain")) == 1  # other jobs train other networks


@pytest.mark.parametrize(("cores", "each"), [(None, 8), (64, 8), (12, 4), (2, 1)])
def test_draws_share_the_cores(cores, each):
    encoder = {"model": "ViT-B-32", "pretrained": "openai"}
    cells = plans(photos(seeds={"draws": 3}, encoder=encoder).config)
    asked = Rules(cells, cores=cores).threads("pixels")
    assert asked({"cell": cells[0].config.name} | job_of(cells[0], "pixels").values) == each


def test_an_encoder_trained_here_holds_its_pictures_and_a_published_one_its_weights(tmp_path):
    file = tmp_path / "tiny.json"
    file.write_text('{"vision_cfg": {"image_size": 8}}')
    tiny, unknown = planned(encoder={"model": str(file)}), planned(encoder={"model": "ViT-B-32"})
    assert memory_mb(unknown, job_of(unknown, "encoder")) > 1000 + memory_mb(tiny, job_of(tiny, "encoder"))
    published = planned(encoder={"model": "ViT-L-14", "pretrained": "openai"})
    assert not published.jobs("encoder")
    job = job_of(published, "embed")
    assert memory_mb(published, job) > 5000 + memory_mb(tiny, job_of(tiny, "embed"))
    images = 897 + published.conditions[0].images
    assert minutes(published, job) == pytest.approx(30 + images / 60, abs=1)


def test_a_transfer_is_planned_for_the_images_that_it_reads():
    data = {"samples": {"validation": 500}, "train_size": 100}
    transfers = [{"name": "here"}, {"name": "there", "data": data}]
    plan = photos(device="cuda", transfers=transfers, jobs={"finetune": "family"})
    here, there = (job_of(plan, "finetune", transfer=name) for name in ("here", "there"))
    assert (commands.images(plan, here), commands.images(plan, there)) == (IMAGES, 600)
    assert minutes(plan, there) < 40 < minutes(plan, here)


def test_jobs_on_a_gpu_have_cpus_for_the_processes_that_decode_for_them():
    for form, readers in (("raw", 0), ("jpeg", 8)):
        plan = photos(device="cuda", pixels={"size": 256, "mode": "RGB", "format": form}, jobs={"processes": 2})
        for stage, processes in (("pretrain", 2), ("finetune", 2), ("measure", 1)):
            assert threads(plan, job_of(plan, stage)) == processes * (1 + readers)
            assert commands.gpus(plan, job_of(plan, stage)) == processes
    plan = photos(device="cpu", pixels={"size": 256, "mode": "RGB", "format": "jpeg"})
    assert threads(plan, job_of(plan, "pretrain")) == 1
