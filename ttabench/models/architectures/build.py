"""Networks by the name of their architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ttabench.classifier import Classifier
from ttabench.models.architectures import compact_transformers, resnet
from ttabench.models.architectures.arch_names import resolve

# Family → constructor (num_classes, image_size, **options), the last linear layer, tags.
FAMILIES: dict[str, tuple[Callable[..., nn.Module], str, tuple[str, ...]]] = {
    "resnet18": (lambda classes, _size, **o: resnet.resnet18(classes, **o), "fc", ()),
    "cifar_resnet": (lambda classes, _size, **o: resnet.cifar_resnet(classes, **o), "linear", ()),
    "cct": (compact_transformers.cct, "classifier.fc", ("transformer",)),
    "cvt": (compact_transformers.cvt, "classifier.fc", ("transformer",)),
    "vit_lite": (compact_transformers.vit_lite, "classifier.fc", ("transformer", "class_token")),
}


def build(
    arch: str,
    *,
    dataset: str,
    num_classes: int,
    image_size: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Classifier:
    """A new classifier in eval mode, with random weights. It takes pixels in [0, 1] and normalises them.

    `arch` is a general name (the dataset's preset) or the name of a member; see `names.resolve`, which
    raises UserError for an unknown one. Initial weights come from torch's global generator.
    """
    member = resolve(arch, dataset=dataset, image_size=image_size, num_classes=num_classes)
    constructor, last, tags = FAMILIES[member.family]
    options: dict[str, Any] = member.options
    net = constructor(num_classes, image_size, **options)
    # Images are stored as height × width × channel; convolutions in this memory format are faster.
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Classifier(net, last=last, mean=mean, std=std, tags=tags).eval()
