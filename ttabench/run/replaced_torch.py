"""Whether a method has replaced a part of torch, such as the forward of a layer, for its whole process."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["torch_is_replaced"]

EXPECTED = (-13.53166, -13.06508, -13.11231, -13.1079)  # of `_outputs`, with torch as it is published


def torch_is_replaced() -> bool:
    """Whether layers that most networks have give other values than those of torch."""
    try:
        return not torch.allclose(_outputs(), torch.tensor(EXPECTED), rtol=0, atol=1e-4)
    except Exception:  # what stands in its place cannot even run here
        return True


@torch.no_grad()
def _outputs() -> torch.Tensor:
    """(4,) log-probabilities of two images, with statistics of the batch and with stored ones."""
    with torch.random.fork_rng(devices=[]):  # layers draw their weights, which are set below
        net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(2, 4), nn.AvgPool2d(2),
            nn.Flatten(), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2),
        )  # fmt: skip
    for values in net.parameters():
        values.copy_(torch.linspace(-1, 2, values.numel()).view_as(values))
    x = torch.linspace(0, 1, 2 * 3 * 4 * 4).sin().view(2, 3, 4, 4)
    x[1] = x[1].flip(1) ** 2
    return torch.cat([net.train()(x), net.eval()(x)]).log_softmax(1)[:, 0]
