"""All published datasets by name, as plain data; `cifar_facts` and `imagenet_facts` hold the facts.

Sizes and checksums are those that the records themselves publish (Zenodo, the CIFAR page), which
torchvision, TensorFlow Datasets and TorchUncertainty repeat. Where no checksum is published, it is left
empty.
"""

from __future__ import annotations

from ttabench.data.published.cifar_facts import CIFAR10_1, CIFAR10_C, CIFAR10_C_BAR, CIFAR100_C
from ttabench.data.published.description import Archive, PublishedDataset
from ttabench.data.published.imagenet_facts import (
    IMAGENET_A,
    IMAGENET_C,
    IMAGENET_R,
    IMAGENET_SKETCH,
    IMAGENET_V2,
    TINY_FIXED_RECORD,
    TINYIMAGENET_C,
)

__all__ = [
    "CIFAR10_1",
    "CIFAR10_C",
    "CIFAR10_C_BAR",
    "CIFAR100_C",
    "IMAGENET_A",
    "IMAGENET_C",
    "IMAGENET_R",
    "IMAGENET_SKETCH",
    "IMAGENET_V2",
    "PUBLISHED",
    "TINYIMAGENET_C",
    "TINY_FIXED_RECORD",
    "Archive",
    "PublishedDataset",
]

PUBLISHED = {
    each.name: each
    for each in (
        CIFAR10_C, CIFAR10_C_BAR, CIFAR10_1, CIFAR100_C, TINYIMAGENET_C, IMAGENET_C,
        IMAGENET_V2, IMAGENET_R, IMAGENET_A, IMAGENET_SKETCH,
    )
}  # fmt: skip
