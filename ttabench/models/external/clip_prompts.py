"""The text of a CLIP head: what the classes of a dataset are called, and the sentences they stand in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from ttabench.data.dataset import Dataset
from ttabench.errors import UserError

__all__ = ["TEMPLATES", "class_names", "prompts", "prompts_sha256"]

TEMPLATES = ("a photo of a {}.",)
"""The features of the sentences of a class are averaged. This one is that of Radford et al., ICML 2021."""

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS = tuple(f"number {digit}" for digit in range(10))


def class_names(dataset: Dataset) -> tuple[str, ...]:
    """What the classes are called, in the order of the labels.

    Of CIFAR-10 and digits as here, of ImageNet as open_clip has them, of own folders the names of the class
    folders. Raises UserError for a dataset whose classes have no names.
    """
    if dataset.name.startswith("cifar10-") or dataset.name == "cifar10.1":
        return CIFAR10
    if dataset.name.startswith("digits-"):
        return DIGITS
    if dataset.name.startswith("imagenet-"):
        from open_clip import IMAGENET_CLASSNAMES

        return tuple(map(str, IMAGENET_CLASSNAMES))
    folders: Sequence[str] = getattr(dataset, "classes", ())
    if len(folders) != dataset.num_classes:
        raise UserError(
            f"the classes of {dataset.name} have no names, which a CLIP head is made of; expected images in "
            "class folders, cifar10-c, digits-c or imagenet-c."
        )
    return tuple(name.replace("_", " ") for name in folders)


def prompts(names: Sequence[str]) -> list[list[str]]:
    """The sentences of each class."""
    return [[template.format(name) for template in TEMPLATES] for name in names]


def prompts_sha256(sentences: Sequence[Sequence[str]]) -> str:
    """SHA-256 (hex) of the sentences of all classes in their order."""
    return hashlib.sha256(json.dumps([list(each) for each in sentences]).encode()).hexdigest()
