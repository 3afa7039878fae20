"""Digests of the operations that decide last bits, with the loops that are pinned (granularity.base.kernels).

    python tests/portable.py                                       # on this processor
    env PYTHONPATH=SITE_PACKAGES:workflow qemu-x86_64 -cpu Haswell PYTHON tests/portable.py   # on an emulated one

`portable.txt` has what has been seen. MKL's square root is left out: it differs between processors, and trainings and
probes do without it.
"""

import hashlib
import os

os.environ["OMP_NUM_THREADS"] = "1"  # sums are split over threads
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # what other packages add to torch would be found first

import granularity  # noqa: F401  (pins the loops)

# isort: split
import faiss
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from granularity.machine.products import use_openblas


def show(name: str, *arrays) -> None:
    content = b"".join(np.ascontiguousarray(torch.as_tensor(one).detach().numpy()).tobytes() for one in arrays)
    print(f"{name}: {hashlib.sha256(content).hexdigest()[:12]}", flush=True)


def numpy_and_faiss(a: np.ndarray, b: np.ndarray) -> None:
    wide = a.astype(np.float64)
    show("numpy, products", a @ b, wide @ b.astype(np.float64))
    show("numpy, exponentials", np.exp(a), np.exp(wide), np.log(np.abs(a)), np.log(np.abs(wide)), np.tanh(a))
    show("numpy, sums", a.sum(0), a.mean(1), a.var(0), np.abs(a) ** 0.3)
    show("numpy, decompositions", np.linalg.svd(a[:50, :50])[1], np.linalg.eigvalsh(a[:50].T @ a[:50]))
    faiss.omp_set_num_threads(1)
    means = faiss.Kmeans(100, 5, niter=5, seed=1)
    means.train(b)
    index = faiss.IndexFlatL2(100)
    index.add(b)
    show("FAISS, k-means and search", means.centroids, *index.search(b[:50], 5))


def products_and_functions(a: torch.Tensor, b: torch.Tensor) -> None:
    q = a[:, :128].reshape(2, 4, 50, 64)
    show("torch, products", a @ b, a.double() @ b.double(), a[:10, :10] @ b[:10, :10], a @ b[:, 0])
    show("torch, batched products", torch.bmm(a[:, :100].reshape(10, 20, 100), b[:100].repeat(10, 1, 1)))
    show("torch, attention", functional.scaled_dot_product_attention(q, q, q))
    show("torch, exponentials", a.exp(), a.double().exp(), a.abs().log(), a.tanh(), a.sigmoid(), a.cos())
    show("torch, error function, powers", torch.erf(a), functional.gelu(a), a.abs() ** 0.3, a.abs().rsqrt())
    show("torch, softmax", a.softmax(1), a.log_softmax(1), a.logsumexp(1))
    show("torch, sums", a.sum(0), a.mean(1), a.var(0), a.norm(), functional.layer_norm(a, (a.shape[1],)))
    show("torch, random numbers", torch.randn(1000), torch.rand(1000), torch.randperm(1000))
    square = a[:40] @ a[:40].T + torch.eye(40)
    show("torch, decompositions", torch.linalg.eigh(square.double())[0], torch.linalg.cholesky(square))


def large_products(a: torch.Tensor) -> None:
    use_openblas()
    images = a.repeat(3, 2).requires_grad_()  # 600 x 600
    weights = images.detach().flip(0)
    heads = functional.linear(images, weights, weights[0]).view(3, 200, 10, 60).transpose(1, 2)
    functional.scaled_dot_product_attention(heads, heads, heads).square().sum().backward()
    show("torch, large products and attention", heads, images.grad)


def training(optimiser: type[torch.optim.Optimizer], **options) -> None:
    layers, sides = [], [(3, 16, 1), (16, 32, 2), (32, 64, 2)]
    for before, after, stride in sides:
        layers += [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    network = network.to(memory_format=torch.channels_last)
    steps = optimiser(network.parameters(), **options)
    for _ in range(10):
        images = torch.randn(50, 3, 16, 16).to(memory_format=torch.channels_last)
        steps.zero_grad()
        functional.cross_entropy(network(images), torch.randint(0, 10, (50,))).backward()
        steps.step()
    show(f"torch, 10 steps of {optimiser.__name__}", *network.parameters(), *network.buffers())


if __name__ == "__main__":
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(size).astype(np.float32) for size in ((200, 300), (300, 100)))
    numpy_and_faiss(a, b)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    products_and_functions(torch.from_numpy(a), torch.from_numpy(b[:, :100]))
    training(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True)
    training(torch.optim.AdamW, lr=0.01, fused=True)
    large_products(torch.from_numpy(a))
