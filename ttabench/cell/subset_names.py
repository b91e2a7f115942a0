"""Names of datasets with some of their images: ``cifar100-c[1000]``, ``imagenet-c[list-1a2b3c4d]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

SUBSETS = ("imagenet-c",)
"""Datasets whose files are chosen by a subset, which may also be a list of names."""
HEADS = ("imagenet-r", "imagenet-a")
"""Datasets whose networks can have outputs for their classes alone, as ``imagenet-r[200-way]``."""
HEAD = re.compile(r"\d+-way")
"""What stands in brackets there."""
DRAW = re.compile(r"(\d+)(?:@(\d+))?")
"""How many images are drawn, and with which seed, if not 0: ``1000``, ``1000@3``."""


def split_subset(name: str) -> tuple[str, str]:
    """``imagenet-c[5000]`` → (``imagenet-c``, ``5000``); another name → (itself, "")."""
    plain, _, rest = name.rpartition("[")
    subset = rest[:-1].strip()
    if plain and rest.endswith("]") and (plain in (*SUBSETS, *HEADS) or DRAW.fullmatch(subset)):
        return plain, subset
    return name, ""


def drawn_from(name: str) -> str:
    """The dataset that a balanced draw is of: ``digits-c[100]`` → ``digits-c``; of another name, itself.

    A subset of :data:`SUBSETS` is a dataset of its own: not all of its files have to be there.
    """
    plain, subset = split_subset(name)
    return plain if DRAW.fullmatch(subset) and plain not in SUBSETS else name


def everything(datasets: Iterable[str]) -> str:
    """What a caption calls all images of these datasets: those of a subset are not all images."""
    subsets = {is_subset(name) for name in datasets}
    if True not in subsets:
        return "all images"
    if False in subsets:
        return "all images, or all of the subset that a heading names"
    return "all images of the subset"


def is_subset(name: str) -> bool:
    """Whether a dataset is some of the images of another one; ``imagenet-r[200-way]`` has all of them."""
    _, subset = split_subset(name)
    return bool(subset) and not HEAD.fullmatch(subset)
