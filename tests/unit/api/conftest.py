"""A small network and a batch of images."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


@pytest.fixture
def x() -> Tensor:
    return torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(1))
