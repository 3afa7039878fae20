"""Every class has two views; labels need one of them, masks teach both (docs/theory/mask_reconstruction.md).

Orthonormal semantics v_{i,l} are, without loss of generality, the first 2k basis vectors: v_{i,l} is coordinate 2i + l.
Indices: B run, n sample, p patch, r kernel, i class, l view, j semantic 2i + l. Mask reconstruction (Section 3,
Appendix B) is averaged over masks, with the decoder fixed at 1/theta and no gradient through the teacher:

    -dL/dw_r = sum_p [Phi_r - (1/theta - 1) s(<w_r, x_p>)] s'(<w_r, x_p>) x_p

Fine-tuning and the supervised baseline (Lemma 1) use steps eta_2 on u (from 0) and eta_1 on w. With "block", u is fixed
and equals beta for a class's own kernels.
"""

from functools import partial

import torch
from torch import Tensor

from granularity.stages.theory import nets
from granularity.stages.theory.engine import State
from granularity.stages.theory.worlds.mask_reconstruction.settings import Settings

MAIN, DISTRACTOR, WEAK = (1.0, 1.3), (0.2, 0.4), 1.5  # strengths S of views; weak: rho to 1.5 rho


def draw_samples(cfg: Settings, count: int, generator: torch.Generator, mu: float | None = None) -> State:
    """Draw `count` samples from D (Definition 3.1); `mu` replaces the setting's share of single-view samples.

    "x" (N, P, d) float32; "y" (N,) int64; "weak" (N,) int64, the weak view of a single-view sample, -1 for others;
    "strength" (N, 2), S of the own views; "shows" (N, P) int64, the semantic of a patch, -1 for background; "z" (N, P),
    its strength in that patch, S/C_p. Distractors without room are dropped, at random.
    """
    k, P, C, device = cfg.k, cfg.patches, cfg.copies, generator.device
    uniform = partial(torch.rand, generator=generator, device=device)
    y = torch.randint(k, (count,), generator=generator, device=device)
    single = uniform(count) < (cfg.mu if mu is None else mu)
    view = torch.randint(2, (count,), generator=generator, device=device)
    weak = torch.where(single, view, -1)
    owner = torch.arange(2 * k, device=device) // 2
    of_class = owner == y.unsqueeze(1)
    present = of_class | (uniform(count, 2 * k) < cfg.distractors / k)
    faint = of_class & (torch.arange(2 * k, device=device) % 2 == weak.unsqueeze(1))
    u = uniform(count, 2 * k)
    main, distractor = (low + (high - low) * u for low, high in (MAIN, DISTRACTOR))
    strength = torch.where(of_class, main, distractor)
    strength = torch.where(faint, cfg.rho * (1 + (WEAK - 1) * u), strength)
    # own views first, then distractors in random order, then semantics that are not shown
    order = (uniform(count, 2 * k) - 2.0 * of_class + 2.0 * ~present).argsort(1)
    slots = P // C
    order = torch.nn.functional.pad(order[:, :slots], (0, max(0, slots - 2 * k)))
    taken = torch.arange(slots, device=device) < present.sum(1, keepdim=True)
    shows = torch.where(taken, order, -1).repeat_interleave(C, 1)
    shows = torch.nn.functional.pad(shows, (0, P - C * slots), value=-1)
    feature = shows >= 0
    z = strength.gather(1, shows.clamp_min(0)) / C * feature
    x = torch.randn(count, P, cfg.d, generator=generator, device=device)
    x *= torch.where(feature, cfg.feature_noise, cfg.background_noise).unsqueeze(2)
    x[:, :, : 2 * k] += cfg.gamma * uniform(count, P, 2 * k)
    x.scatter_add_(2, shows.clamp_min(0).unsqueeze(2), z.unsqueeze(2))
    own_strength = strength.gather(1, 2 * y.unsqueeze(1) + torch.arange(2, device=device))
    return {"x": x, "y": y, "weak": weak, "strength": own_strength, "shows": shows, "z": z}


def pretraining_labels(cfg: Settings, y: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    """Return labels (N,) int64 for supervised pretraining: merged classes, or 2y + stronger view or random bit."""
    if cfg.labels == "class":
        return y // (cfg.k // cfg.granularity)
    if cfg.labels == "view":
        return 2 * y + (strength[:, 1] > strength[:, 0])
    return 2 * y + torch.randint(2, y.shape, generator=generator, device=y.device)


def power(t: Tensor, n: int, found: Tensor | None = None) -> Tensor:
    """Return t^n for a whole n >= 1, by squaring, which is much faster than pow."""
    if n % 2:
        found = t if found is None else found * t
    return found if n == 1 else power(t * t, n // 2, found)


def smoothed(z: Tensor, q: int, width: float) -> tuple[Tensor, Tensor]:
    """Return s(z) and its slope, in few passes over memory."""
    t = (z / width).clamp_(0, 1)
    slope = power(t, q - 1)
    return t.mul_(slope).mul_(width / q).add_((z - width).clamp_min_(0)), slope


def products(x: Tensor, w: Tensor) -> Tensor:
    """Return <w_r, x_np> (B, N, P, R) for x (B, N, P, d) and w (B, R, d)."""
    B, N, P, _ = x.shape
    return torch.bmm(x.flatten(1, 2), w.transpose(1, 2)).view(B, N, P, -1)


def pieces(x: Tensor, kernels: int) -> int:
    """Return how many samples of x (B, N, P, d) to process at once: on a CPU, their activations fit into its cache."""
    return x.shape[1] if x.is_cuda else max(1, 2 * nets.PIECE // (x.shape[0] * x.shape[2] * kernels))


def encode(x: Tensor, w: Tensor, q: int, width: float) -> Tensor:
    """Return H(X) = (h_1..h_R), (B, N, R), for many samples."""
    size = pieces(x, w.shape[1])
    return torch.cat([smoothed(products(part, w), q, width)[0].sum(2) for part in x.split(size, 1)], 1)


def back(pull: Tensor, x: Tensor) -> Tensor:
    """Return mean_n sum_p pull_npr x_np: the descent direction (B, R, d) for pull (B, N, P, R)."""
    return torch.bmm(pull.flatten(1, 2).transpose(1, 2), x.flatten(1, 2)) / x.shape[1]


def masked(
    x: Tensor, w: Tensor, theta: Tensor, q: int, width: float, tau: Tensor, teacher: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return mean loss (B,) of x (B, N, P, d), averaged over masks, and minus its gradient; `teacher`: else tau w."""
    lost = 1 / theta - 1
    z, size = products(x, w), pieces(x, w.shape[1])
    aheads = z if teacher is None else products(x, teacher)
    differences, dropped = [], []
    for part, ahead in zip(z.split(size, 1), aheads.split(size, 1), strict=True):
        h, slope = smoothed(part, q, width)
        if teacher is None:
            ahead = part * tau.view(-1, 1, 1, 1)
        phi = smoothed(ahead, q, width)[0].sum(2) - h.sum(2)
        differences.append(phi)
        dropped.append(h.square().sum((2, 3)))
        pull = h.mul_(-lost.view(-1, 1, 1, 1)).add_(phi.unsqueeze(2))
        torch.mul(pull, slope, out=part)  # overwrites z
    loss = (torch.cat(differences, 1).square().sum(2).mean(1) + lost * torch.cat(dropped, 1).mean(1)) / 2
    return loss, back(z, x)


def tuned(x: Tensor, y: Tensor, w: Tensor, u: Tensor, q: int, width: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean cross-entropy (B,) of F = u H, and minus its gradients in w (B, R, d) and in u (B, C, R)."""
    z, sums = products(x, w), []
    for part in z.split(pieces(x, w.shape[1]), 1):
        h, slope = smoothed(part, q, width)
        sums.append(h.sum(2))
        part.copy_(slope)  # overwrites z
    h = torch.cat(sums, 1)
    loss, residual = nets.softmax_residual(h @ u.transpose(1, 2), y)
    return loss, back(z.mul_((residual @ u).unsqueeze(2)), x), residual.transpose(1, 2) @ h / x.shape[1]


def tau_at(t: int, lead: Tensor, extra: Tensor, root: int = 1) -> Tensor:
    """Return tau_t (B,); in the paper, lead = (1 - theta)/(C_p theta), extra = Theta(1), and root is 1 or q."""
    return 1 + lead + extra / (t ** (1 / root) + 1)
