"""Quantile matching, ready to adapt, on images whose classes a small classifier tells by colour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.measure.source_access import SourceImages
from ttabench.method import Needs
from ttabench_methods.quantile import Quantile, QuantileConfig

MEAN, STD = (0.5, 0.5, 0.425), (0.234, 0.233, 0.222)  # of the images below
QUICK = {
    "epochs": 8, "minibatch": 20, "size": "small", "quantiles_per_class": 10, "lr": 1e-3,
    "per_class": 0.0, "information": 0.0,
}  # fmt: skip


def classifier() -> Classifier:
    """Four classes told apart by the colour of an image's upper half; the features are pooled pixels."""
    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))
    colours = torch.tensor([[1.0, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, -1]])
    with torch.no_grad():
        net[2].weight.zero_()  # type: ignore[operator, union-attr]
        net[2].weight[:, 0::4] = 3 * colours  # type: ignore[index, operator]
        net[2].bias.copy_(-colours.clamp_min(0).sum(1))  # type: ignore[operator, union-attr]
    return Classifier(net, last="2", mean=MEAN, std=STD)


def images(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.Generator(np.random.PCG64(seed))
    labels = np.arange(n) % 4
    colours = np.array([[0.8, 0.2, 0.2], [0.2, 0.8, 0.2], [0.2, 0.2, 0.8], [0.8, 0.8, 0.2]])
    x = draw.normal(0.5, 0.1, (n, 8, 8, 3))
    x[:, :4] += colours[labels][:, None, None] - 0.5
    return x, labels


def to_bytes(x: np.ndarray) -> np.ndarray:
    return np.round(255 * x.clip(0, 1)).astype(np.uint8)


def source(x: np.ndarray | None = None) -> SourceImages:
    """Of the source's images (n, 8, 8, 3), here 400 of the above."""
    known = images(400, 1)[0] if x is None else x
    return SourceImages(lambda: to_bytes(known), Needs(source_data="features"))


def prepared(
    settings: Mapping[str, Any], seed: int = 0, images_of_source: np.ndarray | None = None
) -> Quantile:
    torch.manual_seed(seed)
    method = Quantile(classifier(), QuantileConfig(**{**QUICK, **settings}))
    method.prepare(source(images_of_source))
    return method


def shifted(n: int) -> tuple[np.ndarray, Tensor]:
    """Darker, and tinted enough that the classifier mistakes classes."""
    x, labels = images(n, 2)
    return to_bytes(0.5 * x + np.array([0.05, 0.3, 0.05])), torch.from_numpy(labels)
