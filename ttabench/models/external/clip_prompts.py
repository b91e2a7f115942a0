"""The text of a CLIP head: what the classes of a dataset are called, and the sentences they stand in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from ttabench.data.dataset import Dataset
from ttabench.data.own.manifest import SUFFIX
from ttabench.errors import UserError

TEMPLATES = ("a photo of a {}.",)
"""The features of the sentences of a class are averaged. This one is that of Radford et al., ICML 2021."""

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS = tuple(f"number {digit}" for digit in range(10))


def class_names(dataset: Dataset) -> tuple[str, ...]:
    """What the classes are called, in the order of the labels.

    Of own folders the names of the class folders, of CIFAR-10 and digits as here, of ImageNet as open_clip
    has them. Raises UserError for a dataset whose classes have no names.
    """
    folders = tuple(str(name).replace("_", " ") for name in getattr(dataset, "classes", ()))
    own = len(folders) == dataset.num_classes
    if own and SUFFIX in dataset.name:
        return folders
    if dataset.name.startswith("cifar10-") or dataset.name == "cifar10.1":
        return CIFAR10
    if dataset.name.startswith("digits-"):
        return DIGITS
    if dataset.name.startswith("imagenet-"):
        from open_clip import IMAGENET_CLASSNAMES

        return tuple(map(str, IMAGENET_CLASSNAMES))
    if own:
        return folders
    raise UserError(
        f"the classes of {dataset.name} have no names, which a CLIP head is made of; expected cifar10-c, "
        "digits-c, imagenet-c, or image files in class folders; arrays hold no names, such as those of "
        "ttabench data generate."
    )


def prompts(names: Sequence[str]) -> list[list[str]]:
    """The sentences of each class."""
    return [[template.format(name) for template in TEMPLATES] for name in names]


def prompts_sha256(sentences: Sequence[Sequence[str]]) -> str:
    """SHA-256 (hex) of the sentences of all classes in their order."""
    return hashlib.sha256(json.dumps([list(each) for each in sentences]).encode()).hexdigest()
