"""The engine alone, on a toy world: w <- w - eta (w - target), with loss w^2 / 2."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import ClassVar

import pandas as pd
import pytest
import torch

from granularity.base import extensions, interrupt
from granularity.stages.theory import engine
from granularity.store.code import import_closure


class Toy(engine.Settings):
    WORLD: ClassVar[str] = "toy"
    eta: float = 0.5
    steps: int = 4
    stop_loss: float | None = None
    blow_up_at: int = -1

    def shape(self):
        return (self.steps, self.stop_loss)

    def work(self):
        return 10.0


def simulate(runs, device):
    w = engine.stacked(lambda run: torch.rand(3, generator=run.generator("init")) + run.settings.base * 0, runs)
    eta = engine.column(runs, "eta", device, 2)
    at = engine.column(runs, "blow_up_at", device, 2)

    def step(state, t):
        new = torch.where(at == t, torch.full_like(state["w"], torch.inf), state["w"] * (1 - eta))
        loss = (state["w"] ** 2).sum(1) / 2
        return state | {"w": new}, {"loss": loss, "small": loss < 0.1}

    rows, _ = engine.train(
        runs,
        {"w": w, "fixed": torch.arange(3)},
        step,
        lambda state, t, end: {"norm": state["w"].norm(dim=1)},
        steps=runs[0].settings.steps,
        record=(0, 2),
        stop_loss=runs[0].settings.stop_loss,
    )
    return rows


WORLD = SimpleNamespace(simulate=simulate)


def test_a_diverged_run_is_reported_and_the_rest_goes_on():
    arms = [Toy(name="good", seeds=2), Toy(name="bad", seeds=2, blow_up_at=1)]
    table = engine.run_table(WORLD, arms, "cpu")
    bad = table[table["setting"] == "bad"]
    assert set(bad["outcome"]) == {"diverged at step 1"}
    assert bad.groupby("seed")["event"].last().tolist() == ["diverged"] * 2
    assert bad["norm"].iloc[-1] != bad["norm"].iloc[-1]  # no measure of what is not a number
    alone = engine.run_table(WORLD, arms[:1], "cpu")
    pd.testing.assert_frame_equal(table[table["setting"] == "good"].reset_index(drop=True), alone)


def test_more_seeds_and_settings_change_no_other_run():
    few = engine.run_table(WORLD, [Toy(name="a", seeds=1)], "cpu")
    many = engine.run_table(WORLD, [Toy(name="b", seeds=5, eta=0.1), Toy(name="a", seeds=4)], "cpu")
    same = many[(many["setting"] == "a") & (many["seed"] == 0)].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, few)


def test_streams_differ_by_purpose_seed_and_base():
    def first(run, purpose):
        return torch.rand(1, generator=run.generator(purpose)).item()

    runs = [engine.Trial(Toy(base=base), seed) for base in (0, 1) for seed in (0, 1)]
    drawn = [first(run, purpose) for run in runs for purpose in ("data", "init", "labels")]
    assert len(set(drawn)) == len(drawn)
    assert first(engine.Trial(Toy(eta=0.1), 0), "data") == first(engine.Trial(Toy(eta=0.9), 0), "data")


def test_a_world_is_planned_without_torch_and_digested_with_what_it_is_made_of():
    code = "import sys, granularity.stages.theory.options; from granularity.base import extensions as e; "
    code += "e.code('world', 'label_granularity'); assert not {'torch', 'matplotlib', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    rooms = "granularity.stages.theory"
    training = import_closure(f"{rooms}.stage", extensions.code("world", "label_granularity"))
    parts = ("stage", "engine", "nets", "runs", "figures", "worlds.label_granularity.model", "worlds.label_granularity")
    assert {*(f"{rooms}.{part}" for part in parts), "granularity.claims.claim"} <= training
    assert not [name for name in training if "neural_collapse" in name or "verdicts" in name]
    judging = import_closure("granularity.stages.verdicts.stage", extensions.code("world", "label_granularity"))
    assert f"{rooms}.worlds.label_granularity.claims" in judging and f"{rooms}.stage" not in judging


def test_a_warning_signal_stops_a_part_and_finished_groups_are_kept(tmp_path):
    arms = [Toy(name="a", seeds=1), Toy(name="b", seeds=1, steps=9)]  # a group each
    whole = engine.run_table(WORLD, arms, "cpu")

    def warned(runs, device):
        if runs[0].settings.name == "b":
            os.kill(os.getpid(), signal.SIGUSR1)
        return simulate(runs, device)

    handlers = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    interrupt.install()
    try:
        with interrupt.resumable(), pytest.raises(interrupt.Stopped):
            engine.run_table(SimpleNamespace(simulate=warned), arms, "cpu", store=tmp_path)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    (kept,) = tmp_path.glob("group-*.done")
    kept.write_bytes(kept.read_bytes()[:-9])  # and then it is damaged
    pd.testing.assert_frame_equal(engine.run_table(WORLD, arms, "cpu", store=tmp_path), whole)
