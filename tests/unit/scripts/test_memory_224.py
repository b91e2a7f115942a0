"""The script that measures memory at 224 pixels reads source images as a sweep does."""

from __future__ import annotations

import memory_224
import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier


def test_source_images_come_in_the_batches_of_a_sweep() -> None:
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    sizes: list[int] = []

    def note(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        sizes.append(len(given[0]))

    net[0].register_forward_pre_hook(note)
    with torch.no_grad():
        memory_224.request("source:features", Classifier(net, last="2"), "cpu")
    assert max(sizes) == 40  # of the 500 that a sweep reads at once of 64 pixels
