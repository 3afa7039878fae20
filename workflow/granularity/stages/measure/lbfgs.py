"""L-BFGS for many independent problems side by side: each evaluation serves all problems that are still running.

Neither SciPy nor torch offers this: problems joined in one function would share a step length and a stopping rule.

The direction is that of the compact representation (Byrd, Nocedal and Schnabel 1994, theorem 2.3), whose small systems
are solved for all problems at once. As in Hager and Zhang (2005), a step is accepted for sufficient decrease or, if
rounding hides it, for a suitable slope. The problems are convex, so any step has curvature; no other condition is set.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from granularity.base import interrupt

MEMORY = 10  # pairs of steps and gradient changes that approximate the curvature
MOST_STEPS = 1000
MOST_TRIES = 12  # since a loss last fell by more than rounding: then nothing more can be gained
DECREASE = 1e-4  # share of the decrease promised by the slope that a step must give
NOISE = {torch.float32: 3e-7, torch.float64: 1e-14}  # of a loss, relative

# Products of steps and of changes with changes, [2, MEMORY, MEMORY], of an empty memory: pairs of zeros, with ones on
# the diagonal so that their weights can be solved for.
NOTHING = np.stack([np.eye(MEMORY), np.zeros((MEMORY, MEMORY))])


class Layout:
    """Which rows of a matrix belong to which problem. `number`: the caller's number of each problem, int64 [P];
    `owner`: for each row the index of its problem in `number`, int64 [K].
    """

    def __init__(self, number: np.ndarray, size: np.ndarray, device: torch.device):
        self.number = number
        self.owner = torch.from_numpy(np.repeat(np.arange(len(size)), size)).to(device)
        self._indicator = (self.owner == torch.arange(len(size), device=device)[:, None]).double()

    def sums(self, values: torch.Tensor) -> np.ndarray:
        """Sum over the rows of each problem, in a fixed order even on a GPU: [K, ...] to float64 [P, ...]."""
        return (self._indicator @ values.double()).cpu().numpy()

    def dots(self, a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
        """Return the dot product of two vectors of each problem, each [K, F]: float64 [P]."""
        return self.sums((a * b).sum(1))

    def rows(self, values: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Repeat the value of each problem for each of its rows: [P, ...] to [K, ...]."""
        return torch.from_numpy(values).to(self.owner.device, dtype)[self.owner]


# Losses float64 [P], bounds on their distance from their minima [P], gradients [K, F].
Evaluate = Callable[[torch.Tensor], tuple[np.ndarray, np.ndarray, torch.Tensor]]


def minimise(
    problems: Callable[[Layout], Evaluate], start: torch.Tensor, sizes: Sequence[int], tolerance: float
) -> torch.Tensor:
    """Minimise convex functions, each of some rows of a matrix; problems that are done are no longer evaluated.

    `problems` returns the function for the rows of a layout's problems; `sizes` has each problem's number of rows in
    `start`, [K, F], whose precision is used throughout. A problem is done once its bound is below `tolerance` times its
    loss; or once no step gains anything, as in float32 close to the minimum; or after `MOST_STEPS`.

    Returns the rows at the minima, [K, F].
    """
    size, number = np.asarray(sizes), np.arange(len(sizes))
    layout = Layout(number, size, start.device)
    evaluate = problems(layout)
    loss, bound, gradient = evaluate(start)
    # The state of each row; `history`: steps [:, :MEMORY] and changes of the gradient [:, MEMORY:].
    rows = {"number": torch.arange(len(start), device=start.device), "x": start, "gradient": gradient}
    rows["direction"] = -gradient
    rows["history"] = start.new_zeros(len(start), 2 * MEMORY, start.shape[1], dtype=torch.float32)
    # The state of each problem.
    each = {"number": number, "size": size, "loss": loss, "done": bound <= tolerance * loss}
    each |= {"slope": -layout.dots(gradient, gradient)}
    each |= {name: np.ones(len(size)) for name in ("length", "curvature")}
    each |= {name: np.zeros(len(size), dtype=np.int64) for name in ("steps", "tries")}
    each["products"] = np.tile(NOTHING, (len(size), 1, 1, 1))
    minima = start.clone()
    while True:
        interrupt.stop_if_requested()
        over = each["done"] | (each["tries"] > MOST_TRIES) | (each["steps"] >= MOST_STEPS)
        if over.any():
            gone = torch.from_numpy(np.repeat(over, each["size"])).to(start.device)
            minima[rows["number"][gone]] = rows["x"][gone]
            if over.all():
                return minima
            each, rows = {k: v[~over] for k, v in each.items()}, {k: v[~gone] for k, v in rows.items()}
            layout = Layout(each["number"], each["size"], start.device)
            evaluate = problems(layout)
        _step(evaluate, layout, each, rows, tolerance)


def _step(evaluate: Evaluate, layout: Layout, each: dict, rows: dict, tolerance: float) -> None:
    """Try one step of every problem."""
    x, direction = rows["x"], rows["direction"]
    tried = torch.addcmul(x, layout.rows(each["length"], x.dtype)[:, None], direction)
    loss, bound, slopes = evaluate(tried)
    noise = NOISE[x.dtype]
    promised, rise = each["length"] * each["slope"], loss - each["loss"]
    flat = rise <= noise * np.abs(each["loss"])
    flat &= layout.dots(slopes, direction) <= (2 * DECREASE - 1) * each["slope"]
    accepted = np.isfinite(loss) & ((rise <= DECREASE * promised) | flat)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = promised / (2 * (promised - rise))  # share of the length at which a parabola has its minimum
    shorter = each["length"] * np.clip(np.where(np.isfinite(share), share, 0.1), 0.1, 0.5)
    each["length"] = np.where(accepted, 1.0, shorter)
    fell = accepted & (each["loss"] - loss > noise * np.abs(each["loss"]))
    each["tries"] = np.where(fell, 0, each["tries"] + 1)
    each["loss"] = np.where(accepted, loss, each["loss"])
    each["done"] = accepted & (bound <= tolerance * loss)
    if not accepted.any():
        return
    products = _remember(layout, each, rows, accepted, tried, slopes)
    each["steps"] = each["steps"] + accepted
    weights = layout.rows(_weights(each, products)[:, None], torch.float32)
    newest = -torch.bmm(weights, rows["history"])[:, 0].to(x.dtype)
    newest -= slopes / layout.rows(each["curvature"], x.dtype)[:, None]
    slope = layout.dots(newest, slopes)
    if (slope >= 0).any():  # rounding has spoilt the memory
        newest = torch.where(layout.rows(slope < 0)[:, None], newest, -slopes)
        slope = layout.dots(newest, slopes)
    moved = layout.rows(accepted)[:, None]
    for name, new in (("x", tried), ("gradient", slopes), ("direction", newest)):
        rows[name] = torch.where(moved, new, rows[name])
    each["slope"] = np.where(accepted, slope, each["slope"])


def _remember(
    layout: Layout, each: dict, rows: dict, accepted: np.ndarray, tried: torch.Tensor, slopes: torch.Tensor
) -> np.ndarray:
    """Replace the oldest pairs of the problems that moved; return products of the gradient with the memory, float64 [P,
    2, MEMORY].
    """
    place, moved = each["steps"] % MEMORY, layout.rows(accepted)
    index, at = moved.nonzero()[:, 0], layout.rows(place)[moved]
    step, change, history = tried - rows["x"], slopes - rows["gradient"], rows["history"]
    history[index, at], history[index, at + MEMORY] = step[index].float(), change[index].float()
    vectors = torch.stack([change, slopes], 2).float()
    products = layout.sums(torch.bmm(history, vectors).flatten(1)).reshape(-1, 2, MEMORY, 2)
    problems = np.flatnonzero(accepted)
    new, at = products[problems, :, :, 0], place[problems]
    each["products"][problems, :, :, at] = new
    each["products"][problems, 1, at] = new[:, 1]
    curved, squared = new[np.arange(len(problems)), :, at].T
    each["curvature"][problems[curved > 0]] = squared[curved > 0] / curved[curved > 0]
    if (curved <= 0).any():  # rounding has spoilt the memory: start it anew
        spoilt = np.isin(np.arange(len(place)), problems[curved <= 0])
        each["products"][spoilt], products[spoilt], history[layout.rows(spoilt)] = NOTHING, 0, 0
    return products[..., 1]


def _weights(each: dict, products: np.ndarray) -> np.ndarray:
    """Return the memory's weights in minus the direction, besides gradient / curvature: float64 [P, 2 MEMORY]."""
    gamma = 1 / each["curvature"][:, None, None]
    age = (each["steps"][:, None] - 1 - np.arange(MEMORY)) % MEMORY
    steps, changes = each["products"][:, 0], each["products"][:, 1]
    # Products of step i with change j, if i is not younger than j.
    inverse = np.linalg.inv(np.where(age[:, :, None] >= age[:, None, :], steps, 0.0))
    of_changes = inverse @ products[:, 0, :, None]
    right = (np.eye(MEMORY) * steps + gamma * changes) @ of_changes - gamma * products[:, 1, :, None]
    return np.concatenate([inverse.transpose(0, 2, 1) @ right, -gamma * of_changes], 1)[..., 0]
