"""What is made again: a result that lies there, held against what is asked for."""

import os
from pathlib import Path

import pytest

from granularity.config.options import Config
from granularity.data import listing
from granularity.plan import commands
from granularity.plan.fresh import REASONS, Results
from granularity.plan.graph import Plan
from granularity.stages import STAGES
from granularity.store import place
from granularity.store.artifact import ORIGIN, key_of
from support import default_run, minimal_results
from support.sampling import save

SMALL = {"conditions": [{"train_size": 300}], "encoder": {"model": "encoder.json"}}
PHOTOS = {"samples": {"source": "folder", "root": "photos", "ranks": ["kind"], "target": "kind"}}
PHOTOS |= {"conditions": [{"train_size": "all"}], "label_spaces": {"random": [2], "kmeans": []}}
FILES = "made from other files of yours"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("encoder.json").write_text("{}")
    for kind in ("cat", "dog"):
        save(Path(f"photos/{kind}/1.png"))


def made(config) -> Plan:
    plan = Plan(default_run.config(**config))
    minimal_results.write(plan)
    return plan


def outdated(plan: Plan, **over) -> dict[str, str]:
    """Why stages of a configuration have to be made again; over: what it has become since."""
    plan = Plan(Config.model_validate({**plan.config.model_dump(mode="json"), **over}))
    results = Results(plan)
    return {stage: why for stage in STAGES for job in plan.jobs(stage) if (why := results.outdated(job))}


def test_nothing_is_outdated_that_was_just_made_or_is_not_there():
    plan = made(SMALL)
    assert outdated(plan) == outdated(plan, name="other") == {}
    place.stamp_of(plan.folder(plan.jobs("pixels")[0])).unlink()
    assert outdated(plan, pixels={"format": "jpeg"}).keys() >= {"pretrain"} and "pixels" not in outdated(plan)


def test_other_options_seeds_and_devices():
    plan = made(SMALL)
    assert outdated(plan, seeds={"base": 9})["samples"] == "made with other parameters"
    (job,) = plan.jobs("embed")
    for machine, device, why in (
        ({"gpu": ["H100"]}, "cpu", REASONS["machine"]),
        ({"gpu": ["H100"]}, "cuda", None),
        ({"cpu": "x"}, "cuda", REASONS["machine"]),
        ({"cpu": "x"}, "cpu", None),
        ({"cpu": "x"}, "auto", None),
        ({"cpu": "x", "variables": {"MKL_CBWR": "AUTO"}}, "auto", REASONS["machine"]),
    ):
        plan = Plan(plan.config.model_copy(update={"device": device}))
        results = Results(plan)
        results.open(job).manifest["machine"] = machine
        assert results.outdated(job) == why, (machine, device)


@pytest.mark.parametrize("name", sorted({*ORIGIN} - {"kind", "schema_version"}))
def test_planning_and_keys_read_one_statement_of_what_a_result_is(name):
    """Whatever gives a result another key gives a reason to make it again, and the other way round."""
    plan = made(SMALL)
    (job,) = plan.jobs("embed")
    manifest = (results := Results(plan)).open(job).manifest
    assert key_of(results.task(job).origin) == manifest["key"]
    manifest[name] = {**manifest[name], "digest": "0", "other": ["0"]} if name != "seed" else 7
    assert [*results.differing(job)] == [name] and key_of(manifest) != manifest["key"]


@pytest.mark.parametrize("more", [0, listing.SMALL])
def test_a_file_counts_by_its_content_whatever_its_size_and_time(more):
    def put(text):
        Path("other").write_text(text + " " * more)
        os.utime("other", (0, 0))
        Path("other").replace("encoder.json")

    put("{}")
    plan = made(SMALL)
    for text, found in (("{}", {}), ("[]", {"encoder": FILES, "embed": FILES}), ("{}", {})):
        put(text)
        assert outdated(plan) == found


def test_a_data_set_is_walked_once(monkeypatch):
    plan, stats, walks = made(PHOTOS), listing.stats, []
    monkeypatch.setattr(listing, "stats", lambda folder: walks.append(folder) or stats(folder))
    for _ in range(3):
        assert outdated(plan) == {}
    assert len(walks) == 1
    save(Path("photos/cat/2.png"))
    forget()
    assert outdated(plan) == {"samples": FILES} and len(walks) == 2
    Path("photos/cat/2.png").unlink()
    forget()
    assert outdated(plan) == {} and len(walks) == 2


def forget() -> None:
    """As another process: one lists a data set once."""

    commands._names.cache_clear()
