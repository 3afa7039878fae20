"""Products of torch by OpenBLAS: torch's numbers for every layout, with gradients; its bytes where they are small."""

import pytest
import torch
from torch.nn import functional

from granularity.machine.products import LARGE, use_openblas

SIDE = 420  # its cube is large
assert LARGE[2] < SIDE**3


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-3)


@pytest.fixture(autouse=True)
def openblas():
    use_openblas()
    torch.manual_seed(0)


LAYOUTS = {
    "rows": lambda values: values,
    "columns": lambda values: values.mT.contiguous().mT,
    "a part of wider rows": lambda values: torch.cat([values, values], -1)[..., : values.shape[-1]],
    "gaps": lambda values: values.repeat_interleave(2, -1)[..., ::2],
    "one row for all": lambda values: values[..., :1, :].expand_as(values),
}


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_a_product_is_torchs_in_any_layout(left, right):
    one, two = LAYOUTS[left](torch.randn(SIDE, SIDE)), LAYOUTS[right](torch.randn(SIDE, SIDE))
    assert close(one @ two, one.double() @ two.double())
    stacks = LAYOUTS[left](torch.randn(9, SIDE // 2, 60)), LAYOUTS[right](torch.randn(9, 60, SIDE // 2))
    assert close(torch.bmm(*stacks), torch.bmm(*(stack.double() for stack in stacks)))


def test_sums_with_factors_are_torchs():
    added, one, two = torch.randn(SIDE), torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    for scales in ({}, {"beta": 0.5, "alpha": 2}, {"beta": 0}):
        wanted = torch.addmm(added.double(), one.double(), two.double(), **scales)
        assert close(torch.addmm(added, one, two, **scales), wanted)
    undefined = torch.full((SIDE,), torch.nan)
    assert torch.addmm(undefined, one, two, beta=0).isfinite().all()


@pytest.mark.parametrize("masked", [False, True])
def test_a_layer_and_attention_have_torchs_gradients(masked):
    layer, images = torch.nn.Linear(SIDE, SIDE), torch.randn(4, SIDE, SIDE, requires_grad=True)

    def passes(layer, images):
        heads = layer(images).unflatten(-1, (6, -1)).transpose(1, 2)
        options = {"is_causal": masked, "scale": 0.1}
        functional.scaled_dot_product_attention(heads, heads, heads, **options).square().mean().backward()
        return [images.grad, *(one.grad for one in layer.parameters())]

    found = passes(layer, images)
    exact = torch.nn.Linear(SIDE, SIDE).double()
    exact.load_state_dict(layer.state_dict())
    wanted = passes(exact, images.detach().double().requires_grad_())
    assert all(torch.allclose(one.double(), two, rtol=1e-3, atol=1e-7) for one, two in zip(found, wanted, strict=True))


def test_small_ones_and_other_numbers_are_torchs_own(processes):
    """In a process that never called :func:`use_openblas`, and in one that did."""
    code = """
import hashlib, torch
torch.set_num_threads(1)
if {openblas}:
    from granularity.machine.products import use_openblas
    use_openblas()
torch.manual_seed(0)
one, two = torch.randn(2, 90, 90)
wide = torch.randn(500, 500)
found = [one @ two, torch.addmm(one[0], one, two), torch.bmm(one[None], two[None]), wide.double() @ wide.double()]
found += [(wide.bfloat16() @ wide.bfloat16()).float()]
import sys
print(hashlib.sha256(b"".join(each.numpy().tobytes() for each in found)).hexdigest(), file=sys.stderr)
"""
    without, with_it = (processes(code.format(openblas=one)) for one in (False, True))
    assert without.status == with_it.status == 0 and without.said == with_it.said
