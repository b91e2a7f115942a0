"""Linear layers as 1×1 convolutions compute the same, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.cases import each
from ttabench.models.architectures.build import build
from ttabench.models.training.linear_as_convolution import LinearAsConvolution


def outputs(net: nn.Module, x: Tensor) -> list[Tensor]:
    """The output of a network, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    out = net(x)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return [out, *torch.autograd.grad((out * weights).sum(), [x, *net.parameters()])]


@each("shape", [(16, 8), (3, 8), (16, 5, 8), (1, 5, 8), (2, 3, 5, 8), (8,)])
@each("bias", [True, False])
def test_outputs_and_gradients_are_those_of_the_linear_layer(shape: tuple[int, ...], bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    net = nn.Linear(8, 6, bias=bias, dtype=torch.float64)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    plain = outputs(net, x)
    with LinearAsConvolution():
        ours = outputs(net, x)
    for one, other in zip(plain, ours, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("arch", ["cct_2", "cvt_2", "vit_lite_2"])
def test_transformers_of_ours_have_no_matrix_product_but_those_of_attention(arch: str) -> None:
    torch.manual_seed(0)
    net = build(arch, dataset="x", num_classes=10, image_size=32, mean=(0.5,) * 3, std=(0.25,) * 3).eval()
    x = torch.rand(16, 3, 32, 32)
    plain = outputs(net, x)
    with LinearAsConvolution(), torch.profiler.profile() as profile:
        ours = outputs(net, x)
    for one, other in zip(plain, ours, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    names = {event.key for event in profile.key_averages()}
    assert "aten::mkldnn_convolution" in names
    assert names.isdisjoint({"aten::addmm", "aten::mm", "aten::linear"})
