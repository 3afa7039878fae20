"""What holds of every world: its tables of claims and figures, batches, divergence, and settings that are refused."""

import pandas as pd
import pytest

from granularity.base import extensions
from granularity.base.errors import GranularityError
from granularity.claims import claim
from granularity.look.papers.experiments import untested
from granularity.stages.theory import engine, simulation
from granularity.stages.theory.worlds import ORDER
from granularity.stages.theory.worlds.mask_reconstruction import identities
from granularity.store.artifact import Artifact
from support.worlds import PARITY, judge, studied, train

OF_STUDIES = ("staircase", "sibling_labels", "stairs", "one_bit", "fixed_images")
SHORT = {  # of every arm of the size quick
    "label_granularity": {"steps": 5, "finetune_steps": 3, "width": 200, "per_subclass": 1, "patches": 32},
    "neural_collapse": {"steps": 3, "per_cluster": 4, "hidden": 8, "horizon": 0.2, "settle": 20.0},
    "feature_emergence": {"steps": 12, "n": 300, "test": 100, "batch": 50, "student_steps": 5, "m": 10},
    "feature_contamination": {"steps": 2, "batch": 20, "m": 32},
    "mask_reconstruction": {"d": 24, "m": 2, "pretrain_steps": 4, "finetune_steps": 4, "test_samples": 400, "batch": 50}
    | {"samples": 60, "probe_steps": 2, "few": 20},
    "staircase": {"steps": 8, "batch": 16, "d": 12, "D": 12, "m": 5, "n": 100, "test": 50},
    "sibling_labels": {"steps": 8, "batch": 16, "m": 32},
    "stairs": {"steps": 8, "batch": 16, "d": 12, "m": 5, "test": 50},
    "one_bit": {"steps": 8, "batch": 16, "d": 12, "m": 5, "test": 50},
    "fixed_images": {"steps": 12, "coarse_steps": 2},
}
SMALL = {  # one setting
    "label_granularity": {"d": 24, "k": 4, "steps": 10},
    "neural_collapse": {"per_cluster": 6, "d_in": 5, "hidden": 7, "steps": 10},
    "feature_emergence": {"d": 12, "D": 12, "m": 5, "n": 100, "test": 50, "batch": 20, "steps": 10},
    "feature_contamination": {"d": 24, "d_core": 8, "d_bg": 6, "m": 16, "batch": 20, "steps": 10},
    "mask_reconstruction": {"k": 4, "d": 16, "m": 3, "samples": 60, "test_samples": 40, "batch": 20, "distractors": 1.0}
    | {"pretrain_steps": 8, "finetune_steps": 5, "granularity": 4},
}


@pytest.fixture(scope="module", autouse=True)
def loaded():
    with studied(*PARITY, *(f"{name}/{name}.py" for name in ("sibling_labels", "fixed_images", "residual_signal"))):
        yield


def shortened(arm, cut):
    """An arm with fewer steps and samples: only keys that its experiment has, and none that it has switched off."""
    known = arm.model_dump()
    if getattr(arm, "experiment", "") == "digits":
        cut = cut | {"n": arm.n}
    return arm.model_copy(update={"seeds": 1} | {key: value for key, value in cut.items() if known[key]})


@pytest.mark.parametrize("name", [*ORDER, *OF_STUDIES])
def test_every_claim_of_every_arm_is_evaluated_and_every_figure_drawn(name, tmp_path, monkeypatch):
    world = extensions.find("world", name)
    monkeypatch.setattr(identities, "DRAWN", 2000)
    some = world.SIZES["quick"][:20] if name == "staircase" else world.SIZES["quick"]
    monkeypatch.setitem(world.SIZES, "tiny", [shortened(arm, SHORT[name]) for arm in some])
    assert len({arm.name for arm in world.SIZES["quick"]}) == len(world.SIZES["quick"])
    judge(name, [train(name, tmp_path / "trained")], tmp_path / "judged")
    found = pd.read_csv(tmp_path / "judged" / "checks.csv")
    rows = pd.read_parquet(tmp_path / "judged" / "runs.parquet")
    if name in OF_STUDIES:
        assert set(found["id"]) == set(world.SAID["predictions"])
        assert {one.verdict for one in world.judge(rows.iloc[:0])} == {claim.NOT_TESTED}
    else:
        measured = found[found["measured"].notna()]
        assert len(measured) and measured["arms"].notna().all()
        assert measured["command"].str.contains(f"granularity simulate {name} --size tiny --arm ").all()
        assert found["conditions"].str.contains("NOT met").any()
        assert set(found.loc[found["kind"] == "identity", "id"])
    assert (known := sorted((tmp_path / "judged" / "figures").glob("*.svg")))
    if name == "mask_reconstruction":  # all are drawn by the same functions
        world.figures(rows, tmp_path / "again")
        assert all(path.read_bytes() == (tmp_path / "again" / path.name).read_bytes() for path in known)


def test_published_numbers_stand_beside_the_claims():
    found = {row["id"]: row["published"] for row in untested(extensions.find("world", "feature_emergence"))}
    assert (found["P1"], found["P2"], found["P3"], found["P6"]) == ("100", "52.2", "0.848", "41")


def _one(name, /, **more):
    world = extensions.find("world", name)
    return world, [world.Settings(**SMALL[name] | more)], "cpu"


@pytest.mark.parametrize("name", ORDER)
def test_a_run_is_the_same_in_any_batch_and_what_was_not_run_is_not_tested(name):
    world, (cfg,), device = _one(name, seeds=2)
    pair, alone = (engine.run_table(world, [cfg.model_copy(update={"seeds": n})], device) for n in (2, 1))
    pd.testing.assert_frame_equal(pair[pair["seed"] == 0].reset_index(drop=True), alone, rtol=1e-4, atol=1e-6)
    pd.testing.assert_frame_equal(pair, engine.run_table(world, [cfg], device), check_exact=True)
    verdicts = [one.verdict for one in world.judge(alone)]
    assert verdicts.count(claim.NOT_TESTED) > 0.9 * len(verdicts)


def test_a_diverged_arm_fails_its_claims():
    world, (arm,), device = _one("label_granularity", name="A coarse", eta=1e38)
    tame = arm.model_copy(update={"name": "B coarse", "eta": 0.2})
    found = {one.quantity: one.verdict for one in world.judge(engine.run_table(world, [arm, tame], device))}
    assert found["A: F_y, normal"] == found["A: accuracy with 2 distractors, coarse"] == claim.FAILS


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("label_granularity", {"k": "40"}, r"k: 2 \+ 2k <= d must hold, but k = 40 needs d >= 82, not 64"),
        ("label_granularity", {"g": "3"}, "g: must divide k = 8, but 3 does not"),
        ("label_granularity", {"signal": "20"}, r"signal: s\* must lie below P / 2 = 16"),
        ("label_granularity", {"neurons": "five"}, "neurons: 'five' needs the fine labels"),
        ("label_granularity", {"features": "patches", "g": "2", "finetune_steps": "3"}, "finetune_steps: needs"),
        ("label_granularity", {"etta": "1"}, "etta = 1: unknown key; did you mean 'eta'"),
        ("label_granularity", {"eta": "-1"}, "eta = -1: input should be greater than 0"),
        ("label_granularity", {"eta": "[1"}, "--set eta: not readable"),
        ("neural_collapse", {"labels": "3"}, "labels: must divide clusters = 8 or be a multiple of it, but is 3"),
        ("neural_collapse", {"samples": "8"}, "samples: belongs to model = 'theorem', but model is 'mixture'"),
        ("neural_collapse", {"model": "theorem", "samples": "10"}, "samples: must be a multiple of 4"),
        ("feature_emergence", {"D": "200"}, "D: D <= d must hold, but D = 200"),
        ("feature_emergence", {"rule": "interval"}, "k: the interval rule needs a multiple of 3"),
        ("feature_emergence", {"labels": "count", "methods": "[rf]"}, "methods: only 'network' can have finer labels"),
        ("feature_emergence", {"labels": "table"}, "table: must be set with labels"),
        ("feature_emergence", {"labels": "table", "table": "[0, 1]"}, "table: must have 32 labels"),
        ("feature_emergence", {"coherence": "1"}, "coherence, input_noise: need parity"),
        ("feature_contamination", {"d": "60"}, "d: must be at least d_core"),
        ("feature_contamination", {"task": "granularity", "g": "3"}, "g: must divide subclasses = 4"),
        ("feature_contamination", {"objective": "softmax"}, "objective: can be set only for task 'granularity'"),
        ("mask_reconstruction", {"k": "40"}, "k: 2k <= d must hold, but k = 40 needs d >= 80, not 64"),
        ("mask_reconstruction", {"pretrain": "labels", "granularity": "3"}, "granularity: must divide k = 10"),
        ("mask_reconstruction", {"head": "block"}, "head: 'block' needs pretrain = none"),
        ("staircase", {"steps": "20"}, "table: must be set, with labels 'table'"),
        ("residual_signal", {"world": "label_granularity", "setting": "{gg: 1}"}, "setting: label_granularity: gg"),
    ],
)
def test_bad_settings_are_refused(name, overrides, message):
    with pytest.raises(GranularityError, match=message):
        simulation.settings_from(extensions.find("world", name), overrides)


def test_cutting_a_world_into_parts_changes_nothing(tmp_path, monkeypatch):
    world = extensions.find("world", "label_granularity")
    arms = [shortened(arm, SHORT["label_granularity"]) for arm in world.SIZES["quick"] if arm.d == 64][:4]
    monkeypatch.setitem(world.SIZES, "tiny", arms)
    monkeypatch.setattr(world, "figures", lambda table, folder: None)
    for name, parts in (("one", 1), ("two", 5)):  # of which one at least has no runs
        folders = [tmp_path / f"{name}-{part}" for part in range(parts)]
        for part, folder in enumerate(folders):
            train("label_granularity", folder, part=part, parts=parts)
        judge("label_granularity", folders, tmp_path / name)
    assert len({Artifact.open(tmp_path / name, "verdicts").digest for name in ("one", "two")}) == 1
    with pytest.raises(GranularityError, match="there is no world 'atlantis'; there are label_granularity"):
        train("atlantis", tmp_path / "x")
    with pytest.raises(GranularityError, match="there is no size 'huge'; there are quick, paper"):
        train("label_granularity", tmp_path / "x", "huge")
