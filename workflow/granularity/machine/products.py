"""Compute torch's matrix products on a CPU by numpy's OpenBLAS, which is fast and the same on any x86-64-v3 processor.

MKL, torch's default, is not both at once: with the settings of :mod:`granularity.base.kernels` it takes three times
as long. Products in autograd are redirected, too.
"""

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

# Least number of multiplications (for matrices; for stacks of matrices) to use OpenBLAS. Smaller products, such as all
# in the default run, would gain milliseconds and change the bytes of existing results.
LARGE = {2: 2**26, 3: 2**22}
_library: list[torch.library.Library] = []
_own_attention = functional.scaled_dot_product_attention


def use_openblas() -> None:
    """Compute this process's large float32 products, and attention by means of them, with OpenBLAS."""
    if _library:
        return
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for name, function in {"mm": _mm, "bmm": _mm, "addmm": _addmm, "baddbmm": _addmm}.items():
            library.impl(name, _or_torchs(name, function), "CPU", with_keyset=True)
    _library.append(library)  # registered as long as this object lives
    functional.scaled_dot_product_attention = _attention


def _or_torchs(name: str, function: Callable) -> Callable:
    """Return a product that calls `function` for large float32 factors, and otherwise torch's own kernel."""
    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")
    first = name.startswith(("add", "badd"))  # these take the added tensor before the factors

    def product(keys: Any, *given: Any, **scales: Any) -> torch.Tensor:
        left, right = given[first : first + 2]
        if left.dtype == right.dtype == torch.float32 and left.numel() * right.shape[-1] >= LARGE[left.dim()]:
            return function(*given, **scales)
        return kernel.call_boxed(keys, *given, **scales)

    return product


def matmul(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Return the product of two matrices of one dtype, [M, K] by [K, N]; on a CPU by OpenBLAS, however small."""
    return _mm(one, two) if one.device.type == "cpu" else one @ two


def _mm(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Return the product of two matrices, or of two stacks of matrices: [..., M, K] by [..., K, N]."""
    found = one.new_empty(*one.shape[:-1], two.shape[-1])
    np.matmul(_factor(one), _factor(two), out=found.numpy())
    return found


def _addmm(
    added: torch.Tensor, one: torch.Tensor, two: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    found = _mm(one, two)
    if alpha != 1:
        found.mul_(alpha)
    return found if beta == 0 else found.add_(added, alpha=beta)


def _attention(query: torch.Tensor, key: torch.Tensor, *given: Any, **options: Any) -> torch.Tensor:
    """Compute large attention by separate products, because torch's fused kernel uses MKL."""
    fused = query.device.type != "cpu" or query.numel() * key.shape[-2] < LARGE[3]
    with contextlib.nullcontext() if fused else sdpa_kernel(SDPBackend.MATH):
        return _own_attention(query, key, *given, **options)


def _factor(values: torch.Tensor) -> np.ndarray:
    """Return an array in a layout that BLAS accepts directly: rows or columns without gaps between numbers."""
    rows, columns = values.stride()[-2:]
    height, width = values.shape[-2:]
    if not ((columns == 1 and rows >= width) or (rows == 1 and columns >= height)):
        values = values.contiguous()
    return values.detach().numpy()
