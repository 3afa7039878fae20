"""Study: the right arm of the U, on images that are drawn once. Extends the world `label_granularity`.

There are n images of each subclass. Labels merge the k subclasses of a superclass into g groups or, if g > k, cut each
into equal parts that only memory can distinguish ("split"); or they are random within a superclass. All networks have
equally many neurons, and the same rule for biases. Predictions, bands and arms: predictions.yaml.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from granularity.base import strict_yaml
from granularity.claims import preregistered
from granularity.claims.claim import Claim
from granularity.stages.theory import engine, nets
from granularity.stages.theory import figures as draw
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.statements import Runs
from granularity.stages.theory.worlds import label_granularity
from granularity.stages.theory.worlds.label_granularity import model
from granularity.stages.theory.worlds.label_granularity.measures import members

EXTENDS, NAME = "world", "fixed_images"
SAID = strict_yaml.read(Path(__file__).with_name("predictions.yaml"))
COLUMNS = ("error",)
HELD_OUT = 64  # hard samples of each subclass
STEPS = (10, 30, 100, 200)  # recorded
_ARMS = SAID["arms"]


class Settings(label_granularity.Settings):
    """Labels, and how many images; the last `coarse_steps` train on superclasses."""

    WORLD: ClassVar[str] = NAME

    labels: Literal["split", "random"] = "split"
    coarse_steps: engine.Count = 20

    def rules(self) -> Iterator[tuple[bool, str]]:
        yield from super().rules()
        k, g, n = self.k, self.g, self.per_subclass
        equal = k * n % g == 0 and (self.labels == "random" or k % g == 0 or g % k == 0)
        yield equal, f"g: must merge {k} subclasses of {n} images, or cut them into equal parts, but {g} does not"
        for key in ("fixed", "neurons", "features", "stop_loss", "finetune_steps"):
            yield (
                getattr(self, key) == type(self).model_fields[key].default,
                f"{key}: has no effect in this world; remove it",
            )

    def slots(self) -> list[tuple[int, int]]:
        """Return (class, feature) of every neuron: the features of its superclass."""
        features = [[s, *range(2 + s * self.k, 2 + (s + 1) * self.k)] for s in (0, 1)]
        return [(c, v) for c in range(self.classes) for v in features[c // self.g] for _ in range(self.n_act)]

    def shape(self) -> tuple:
        return (*super().shape(), self.coarse_steps)


def _arms(block: dict[str, Any], setting: dict[str, Any]) -> Iterator[Settings]:
    setting = setting | {key: block[key] for key in ("seeds", "k", "d") if key in block}
    further = "".join(f", {key} = {block[key]}" for key in ("k", "d") if key in block)
    for labels, n, g in product(block["labels"], block["n"], block["g"]):
        if g <= setting["k"] * n:  # each superclass has equal numbers of neurons and step sizes for any g
            fields = {"labels": labels, "per_subclass": n, "g": g, "n_act": 16 // g, "eta": 0.2 * g}
            yield Settings(name=f"{labels}, n = {n}, g = {g}{further}", **setting | fields)


SIZES = {size: [a for one in blocks for a in _arms(one, _ARMS["setting"])] for size, blocks in _ARMS["sizes"].items()}


def draw_labels(cfg: Settings, generator: torch.Generator) -> Tensor:
    """Return labels (N,), equally many images each; images of a subclass are exchangeable, so parts need no draw."""
    s, c = model.subclasses(cfg, cfg.per_subclass, generator.device)
    if cfg.labels == "split":
        parts = max(1, cfg.g // cfg.k)
        return s * cfg.g + (c * parts + torch.arange(len(s), device=s.device) % parts) % cfg.g
    ids = [torch.randperm(len(s) // 2, generator=generator, device=s.device) % cfg.g for _ in range(2)]
    return s * cfg.g + torch.cat(ids)


def simulate(runs: Sequence[Trial], device: torch.device) -> Rows:
    """Train a group of runs; measure hard samples with one distractor (`plain`: none) and the neurons' purity.

    A margin is a share of both responses. Purity: weighted cosine of weights with the neuron's subclass feature.
    """
    cfg, settings = runs[0].settings, [run.settings for run in runs]
    beta, clip, start, level = (engine.column(runs, key, device, 2) for key in ("beta", "clip", "sigma_0", "level"))
    rates = [engine.column(runs, key, device, 3) for key in ("eta", "finetune_eta")]

    def drawn(purpose: str, function: Any, *given: Any, **kind: Any) -> Tensor:
        streams = [run.generator(purpose, device) for run in runs]
        return engine.stacked(lambda setting, stream: function(setting, *given, stream, **kind), settings, streams)

    def samples(*given: Any, **kind: Any) -> Tensor:
        return model.draw_samples(*given, **kind)[0]

    x, y = drawn("images", samples, cfg.per_subclass), drawn("labels", draw_labels)
    tests = {words: drawn("hard", samples, HELD_OUT, hard=True, distractors=n) for words, n in (("plain_", 0), ("", 1))}
    truth = model.subclasses(cfg, HELD_OUT, device)[0].expand(len(runs), 1, -1)
    cls, feature = torch.tensor(cfg.slots(), device=device).T
    index, fine, superclasses = feature.expand(len(runs), -1).unsqueeze(2), feature > 1, members(cls // cfg.g, 2)

    def step(state: State, t: int) -> tuple[State, State]:
        coarse = t >= cfg.steps - cfg.coarse_steps
        merged = cfg.g if coarse else 1
        F, _, fires = model.forward(state["w"], state["b"], x, members(cls // merged, 2 * cfg.g // merged))
        loss, residual = nets.softmax_residual(F.transpose(1, 2), y // merged)
        dw = model.weight_step(fires, residual.transpose(1, 2), x, cls // merged, rates[coarse])
        return {"w": state["w"] + dw, "b": state["b"] - model.bias_step(dw, beta, x, clip)}, {"loss": loss}

    def measure(state: State, t: int, end: bool) -> State:
        along = state["w"].gather(2, index).squeeze(2).clamp_min(0)[:, fine]
        measures = {"purity": (along**2 / state["w"].norm(dim=2)[:, fine]).sum(1) / along.sum(1)}
        for words, hard in tests.items():
            F = model.forward(state["w"], state["b"], hard, superclasses)[0]
            right, wrong = F.gather(1, truth).squeeze(1), F.gather(1, 1 - truth).squeeze(1)
            measures[f"{words}error"] = ((right < wrong).float() + 0.5 * (right == wrong).float()).mean(1)
            measures[f"{words}margin"] = ((right - wrong) / (right + wrong).clamp_min(1e-9)).mean(1)
        return measures

    state = {"w": drawn("weights", model.draw_weights), "b": (-start * level).expand(-1, len(cls)).contiguous()}
    return engine.train(runs, state, step, measure, steps=cfg.steps, record=STEPS)[0]


# ---------------------------------------------------------------- what is judged


def grid(table: pd.DataFrame, measure: str, labels: str = "split", **where: Any) -> pd.DataFrame:
    """Return a measure of the arms with k = 4, d = 64 (rows: n, g; columns: seeds), at the end or as in `where`."""
    where = {"labels": labels, "k": 4, "d": 64} | (where or {"step": table["steps"].max()})
    rows = table[np.logical_and.reduce([table[key] == value for key, value in where.items()])]
    return rows.pivot(index=["per_subclass", "g"], columns="seed", values=measure)


def formula(n: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return sqrt(1 - 1/min(g, k)), what labels tell of subclasses beyond superclasses, times the expected purity."""
    cfg = Settings(**_ARMS["setting"])
    patches, images = cfg.signal * (1 - cfg.signal / cfg.patches), n * cfg.k / np.maximum(g, cfg.k)
    return np.sqrt((1 - 1 / np.minimum(g, cfg.k)) / (1 + cfg.sigma_z**2 * cfg.d / (patches * images)))


def ahead(table: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """Return by recorded step the error of two labels minus that of 2 x 4 random labels (rows: n; columns: seeds)."""
    pairs = {step: [grid(table, "error", labels, step=step) for labels in ("split", "random")] for step in STEPS}
    return {step: a.xs(1, level=1) - b.xs(4, level=1) for step, (a, b) in pairs.items() if len(a) and len(b)}


def judge(table: pd.DataFrame) -> list[Claim]:
    """Judge the preregistered predictions: differences of two arms, paired by seed, and statistics over all arms."""
    runs, values = Runs(table), dict.fromkeys(SAID["predictions"], ())
    for name, (measured, *pair) in _ARMS["differences"].items():
        measure, _, step = measured.partition(" @ ")
        one, two = (runs(arm, measure, **({"step": int(step)} if step else {})) for arm in pair)
        values[name] = one - two if len(one) and len(two) else ()
    if len(errors := grid(table, "error", "random")):
        n, g = (grid(table, "error").reset_index()[key].to_numpy() for key in ("per_subclass", "g"))
        images, plain = n * 4 / np.maximum(g, 4), grid(table, "plain_margin").mean(axis=1)
        score = pd.DataFrame({"formula": formula(n, g), "labels": g, "images": images}, plain.index)
        rank = score.corrwith(grid(table, "margin").mean(axis=1), method="spearman")
        values |= {f"order, {name}": [one] for name, one in rank.items()}
        values["one count"] = [plain[g >= 4].groupby(images[g >= 4]).agg(np.ptp).max()]
        impure = np.log(grid(table, "purity")[g == 4].to_numpy() ** -2 - 1)
        values["purity, growth"] = np.polyfit(np.log(n[g == 4]), impure, 1)[0]
        for labels, rows in {"split": grid(table, "error"), "random": errors}.items():
            whole = rows.mean(axis=1).groupby(level=0).filter(lambda one: len(one) > 2)
            best = np.array(whole.groupby(level=0).idxmin().tolist(), float)
            if len(best) > 1:
                values[f"growth, {labels}"] = [np.polyfit(*np.log(best).T, 1)[0]]
                values[f"optimum, {labels}"] = [np.mean(best[:, 1] == 4)]
        for step, gain in ahead(table).items():
            values[f"boundary, {step}"] = [float(gain.index[gain.mean(axis=1) > 0].max())]
    seeds, arms = table["seed"].nunique(), {name: one[1:] for name, one in _ARMS["differences"].items()}
    return preregistered.claims(SAID, values, dict.fromkeys(values, seeds), arms)


def figures(table: pd.DataFrame, folder: Path) -> None:
    """Draw error against g, split and random; margin against images per label; the gain of random labels over two."""

    def panel(series: dict[str, dict], xlabel: str, ylabel: str, title: str) -> Any:
        words = {"xlabel": xlabel, "ylabel": ylabel, "title": title, "log": "x", "dodge": 0.04, "legend": "best"}
        ticks = sorted({x for curve in series.values() for x in curve})
        return draw.panel(*(draw.Points(values, label) for label, values in series.items()), ticks=ticks, **words)

    def by_n(measure: str, labels: str = "split", per_label: bool = False) -> dict[str, dict]:
        rows = grid(table, measure, labels)
        curves = {
            n: {n * 4 / g if per_label else g: rows.loc[n, g] for g in part if g >= 4 * per_label}
            for n, part in rows.reset_index().groupby("per_subclass")["g"]
        }
        return {f"n = {n}": values for n, values in curves.items() if len(values) > 1 or (per_label and values)}

    error, g = "error on hard samples, one distractor", "labels per superclass, g"
    gains = {f"after {step} steps": dict(gain.iterrows()) for step, gain in ahead(table).items()}
    panels = [
        panel(by_n("error"), g, error, "subclasses, merged or split"),
        panel(by_n("error", "random"), g, error, "random within a superclass"),
        panel(by_n("plain_margin", "split", True), "images per label", "margin, no distractor", "subclasses, g >= 4"),
        panel(gains, "images per subclass, n", "error saved against two labels", "eight random labels"),
    ]
    draw.draw(folder, NAME, *panels, columns=2, width=8)
