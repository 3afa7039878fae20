"""World 3's two further data models: clusters on a hypercube, and a teacher and student on real digits.

`clusters`: x = sum over i <= k of eps_i M_i + g, with fair signs eps_i, y = prod eps_i, g ~ N(0, sigma_r^2 (k/d) I_d),
M_i the first k axes; ReLU, hinge loss, SGD on all parameters, epochs in random order.

`digits` (for section 6): a teacher is trained on labelled digits L with a regulariser R = sum_j pbar_j ln pbar_j + the
mean entropy over U, with pbar the mean softmax over unlabelled Gaussian inputs U. Its arg max then labels both L and U,
and a student learns a mixture of both. Networks have one hidden layer, f(x) = A (W x + b)^2 + c, and use Adam.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from granularity.stages.theory import engine, nets
from granularity.stages.theory.engine import Rows, State, Trial
from granularity.stages.theory.worlds.feature_emergence.learners import batches, embed, gradient, spread
from granularity.stages.theory.worlds.feature_emergence.settings import Settings

NEAR = 0.9  # cosine from which a neuron covers a centre
CLUSTER_MARKS = 12  # recorded steps


def centres(k: int, d: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Return the 2^k corners (2^k, d), and their labels (2^k,) +-1."""
    bits = torch.arange(2**k, device=device).unsqueeze(1) // 2 ** torch.arange(k, device=device) % 2
    signs = bits.float() * 2 - 1
    return torch.cat([signs, signs.new_zeros(2**k, d - k)], 1), signs.prod(1)


def draw_clusters(cfg: Settings, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return inputs (count, d) and labels (count,) +-1."""
    device = generator.device
    corners, labels = centres(cfg.k, cfg.d, device)
    which = torch.randint(2**cfg.k, (count,), generator=generator, device=device)
    noise = torch.randn(count, cfg.d, generator=generator, device=device)
    return corners[which] + cfg.sigma_r * (cfg.k / cfg.d) ** 0.5 * noise, labels[which]


def coverage(w: Tensor, corners: Tensor) -> State:
    """Return how well neurons (B, m, d) cover the centres (2^k, d)."""
    unit = torch.nn.functional.normalize(w, dim=2)
    cos = unit @ torch.nn.functional.normalize(corners, dim=1).T
    measures = {"covered": (cos.amax(1) > NEAR).to(w.dtype).mean(1), "lowest_best": cos.amax(1).amin(1)}
    return measures | {"near_share": (cos.amax(2) > NEAR).to(w.dtype).mean(1)}


def clusters(runs: Sequence[Trial], device: torch.device) -> Rows:
    """Train on clusters from w ~ N(0, 0.01 / d), b = 0, a ~ N(0, 1/m), with the settings' `rate`, `batch`, `steps`."""
    cfg = runs[0].settings

    def normal(run: Trial) -> State:
        source = run.generator("clusters init", device)
        w = torch.randn(cfg.m, cfg.d, generator=source, device=device) * 0.1 / cfg.d**0.5
        a = torch.randn(1, cfg.m, generator=source, device=device) / cfg.m**0.5
        return {"w": w, "a": a, "b": torch.zeros(cfg.m, device=device)}

    def data(name: str, count: int) -> State:
        drawn = (draw_clusters(run.settings, count, run.generator(f"clusters {name}", device)) for run in runs)
        return engine.collated({"x": x, "y": y} for x, y in drawn)

    train, test = data("train", cfg.n), data("test", cfg.test)
    net, order = engine.collated(map(normal, runs)), batches(runs, device, "clusters order")
    rate = engine.column(runs, "rate", device)
    corners, _ = centres(cfg.k, cfg.d, device)

    def direction(state: State, t: int) -> tuple[Tensor, State]:
        inputs, signs = (engine.picked(part, order[:, t]) for part in (train["x"], train["y"]))
        return gradient(state, inputs, signs.unsqueeze(2), nets.RELU)

    def measure(state: State, t: int, end: bool) -> State:
        g = nets.two_layer(test["x"], state["w"], state["a"], nets.RELU, state["b"])[0].squeeze(2)
        return coverage(state["w"], corners) | {"test_acc": 100 * (g * test["y"] > 0).float().mean(1)}

    marks, step = range(0, cfg.steps + 1, max(1, cfg.steps // CLUSTER_MARKS)), engine.sgd(direction, rate)
    rows, end = engine.train(runs, net, step, measure, steps=cfg.steps, record=marks, phase="clusters")
    if cfg.picture and runs[0].seed == 0:
        for at, state in ((0, net), (cfg.steps, end)):
            rows += embed(runs[0], state["w"][0], corners, at)
    return rows


# ---------------------------------------------------------------- digits

TRAIN, TEST, CLASSES, PIXELS = 1297, 500, 10, 64
SIZES = (2, 4, 6, 9, 16, 32, 100)  # hidden units of the U-curve
BATCH, RATE, BETAS, EPSILON = 128, 1e-2, (0.9, 0.999), 1e-8  # of Adam
SQUARE = nets.Activation(torch.square, lambda z: 2 * z)
PARTS = ("w", "b", "a", "c")
Pair, Measure = tuple[Tensor, Tensor], Callable[[State], State]
MARKS = (0, 50, 100, 200, 400, 600, 800, 1000, 1250, 1500, 1750, 2000)


@cache
def bundled() -> tuple[Tensor, Tensor]:
    """Return all 1797 digits, (1797, 64) float64, and their labels, int64."""
    from sklearn.datasets import load_digits

    bundle = load_digits()
    return torch.from_numpy(bundle.data.astype("float64")), torch.from_numpy(bundle.target.astype("int64"))


def draw_digits(run: Trial, device: torch.device) -> State:
    """Return L, U (1297, 64), L_test, U_test (500, 64), standardised by training pixels; labels, labels_test int64."""
    x, y = (part.to(device) for part in bundled())
    source = run.generator("digits", device)
    order = torch.randperm(len(x), generator=source, device=device)
    x, y = x[order].float(), y[order]
    x = (x - x[:TRAIN].mean()) / x[:TRAIN].std()
    u = torch.randn(TRAIN + TEST, PIXELS, generator=source, device=device)
    if run.settings.gaussian == "matched":
        u = x[:TRAIN].mean(0) + x[:TRAIN].std(0) * u
    sets = {"L": x[:TRAIN], "L_test": x[TRAIN:], "labels": y[:TRAIN], "labels_test": y[TRAIN:]}
    return sets | {"U": u[:TRAIN], "U_test": u[TRAIN:]}


def initial(sources: Sequence[torch.Generator], sizes: Sequence[int], device: torch.device) -> State:
    """Return W ~ N(0, 1/64), A ~ N(0, 1/m), zero biases, zero-padded to the widest network; and Adam's moments."""
    width = max(sizes)

    def make(source: torch.Generator, size: int) -> State:
        w = torch.randn(size, PIXELS, generator=source, device=device) / PIXELS**0.5
        a = torch.randn(CLASSES, size, generator=source, device=device) / size**0.5
        w, a = torch.nn.functional.pad(w, (0, 0, 0, width - size)), torch.nn.functional.pad(a, (0, width - size))
        return {"w": w, "a": a, "b": torch.zeros_like(w[:, 0]), "c": torch.zeros_like(a[:, 0])}

    net = engine.collated(map(make, sources, sizes))
    return net | {f"{moment} {key}": torch.zeros_like(net[key]) for moment in ("first", "second") for key in PARTS}


def forward(net: State, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return nets.two_layer(x, net["w"], net["a"], SQUARE, net["b"], net["c"])


def regulariser(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return R (B,), and minus its gradient in the logits (B, n, C), times n."""
    p = torch.softmax(logits, 2)
    log_p = torch.log_softmax(logits, 2)
    mean = p.mean(1, keepdim=True)
    log_mean = mean.clamp_min(1e-30).log()
    value = (mean * log_mean).sum((1, 2)) - (p * log_p).sum(2).mean(1)
    slope = log_mean - log_p  # the constants 1 cancel in softmax's projection
    return value, -p * (slope - (p * slope).sum(2, keepdim=True))


def _gradient(net: State, x: Tensor, of: Callable[..., tuple[Tensor, Tensor]], *labels: Tensor) -> tuple[Tensor, State]:
    """Return a loss of the logits (B,), and minus its gradient in the weights."""
    logits, h, z = forward(net, x)
    loss, residual = of(logits, *labels)
    return loss, nets.two_layer_gradient(x, SQUARE.slope(z), h, net["a"], residual)


def adam(state: State, down: State, t: int) -> State:
    """Do one update of Adam; `down` is minus the gradient. Moments are stored with the weights."""
    new = {}
    for key in PARTS:
        first = BETAS[0] * state["first " + key] + (1 - BETAS[0]) * down[key]
        second = BETAS[1] * state["second " + key] + (1 - BETAS[1]) * down[key].square()
        scale = (second / (1 - BETAS[1] ** (t + 1))).sqrt() + EPSILON
        new |= {"first " + key: first, "second " + key: second}
        new[key] = state[key] + RATE * first / (1 - BETAS[0] ** (t + 1)) / scale
    return state | new


def fit(
    runs: Sequence[Trial], purpose: str, sizes: Sequence[int], data: Pair, steps: int, measure: Measure, u: Any = None
) -> tuple[Rows, State]:
    """Train one network per run on data x (B, n, 64), y (B, n), with R on u if given; `purpose` names the phase."""
    x, y = data
    device = x.device
    sources = [run.generator(purpose, device) for run in runs]

    def step(state: State, t: int) -> tuple[State, State]:
        rows = engine.stacked(lambda g: torch.randint(x.shape[1], (BATCH,), generator=g, device=device), sources)
        loss, down = _gradient(state, engine.picked(x, rows), nets.softmax_residual, engine.picked(y, rows))
        if u is not None:
            extra, more = _gradient(state, u, regulariser)
            loss, down = loss + extra, {key: down[key] + more[key] for key in PARTS}
        return adam(state, down, t), {"loss": loss}

    def measured(state: State, t: int, end: bool) -> State:
        return measure(state)

    start = initial(sources, sizes, device)
    return engine.train(runs, start, step, measured, steps=steps, record=MARKS, phase=purpose)


def hits(net: State, x: Tensor, y: Tensor) -> Tensor:
    """Return the accuracy in per cent (B,)."""
    return 100 * (forward(net, x)[0].argmax(2) == y).float().mean(1)


def select(losses: Sequence[float]) -> int:
    """Return the size at the first local minimum of test loss over `SIZES`, where the classical U-curve ends."""
    rises = [one <= other for one, other in itertools.pairwise(losses)]
    return SIZES[[*rises, True].index(True)]


def digits(runs: Sequence[Trial], device: torch.device) -> Rows:
    """Train on digits. Phases: "U-curve, SIZE" (if the size is not set), "teacher", "student, mixture" and "student,
    digits alone" (both labelled by the teacher), "student, true labels" (digits only)."""
    cfg = runs[0].settings
    s = engine.collated(draw_digits(run, device) for run in runs)
    rows, digits = [], (s["L"], s["labels"])

    def plain(net: State) -> State:
        loss = nets.softmax_residual(forward(net, s["L_test"])[0], s["labels_test"])[0]
        return {"test_loss": loss, "test_acc": hits(net, s["L_test"], s["labels_test"])}

    sizes, by_rule = [cfg.teacher] * len(runs), None
    if cfg.teacher is None:
        curve = []
        for size in SIZES:
            results, net = fit(runs, f"U-curve, {size}", [size] * len(runs), digits, cfg.steps, plain)
            rows += [row | {"size": float(size)} for row in results]
            curve.append(plain(net)["test_loss"].tolist())
        sizes = [select(losses) for losses in zip(*curve, strict=True)]
        by_rule = torch.tensor(sizes, dtype=torch.float32)
    results, teacher = fit(runs, "teacher", sizes, digits, cfg.steps, plain, s["U"])
    rows += results
    for name in ("L", "U", "L_test", "U_test"):
        s["says " + name] = forward(teacher, s[name])[0].argmax(2)
    counts = torch.nn.functional.one_hot(s["says U"], CLASSES).sum(1).float()
    used = (teacher["w"].abs().sum(2) > 0).sum(1).float()
    facts = {"count_ratio": counts.amax(1) / counts.amin(1), "teacher_size": used}
    rows += spread(runs, "labels", facts | ({} if by_rule is None else {"teacher_by_rule": by_rule}))

    mine = round((1 - cfg.alpha) * TRAIN) if cfg.mixture == "kept" else TRAIN
    rest = TRAIN - mine if cfg.mixture == "kept" else min(TRAIN, round(TRAIN * cfg.alpha / (1 - cfg.alpha)))
    mixed = tuple(torch.cat([s[k][:, :mine], s[g][:, :rest]], 1) for k, g in (("L", "U"), ("says L", "says U")))

    def parts(net: State) -> State:
        on_l, on_u = hits(net, s["L_test"], s["says L_test"]), hits(net, s["U_test"], s["says U_test"])
        results = {"L_acc": on_l, "U_acc": on_u, "whole_acc": (1 - cfg.alpha) * on_l + cfg.alpha * on_u}
        return results | {"test_acc": hits(net, s["L_test"], s["labels_test"])}

    students = {"mixture": mixed, "digits alone": (s["L"], s["says L"]), "true labels": digits}
    for name, data in students.items():
        rows += fit(runs, f"student, {name}", [cfg.student] * len(runs), data, cfg.student_steps, parts)[0]
    return rows
