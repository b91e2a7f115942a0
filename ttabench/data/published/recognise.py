"""Recognise the folder of a published dataset that a user gives by its path."""

from __future__ import annotations

import re
from pathlib import Path

from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.known_datasets import PUBLISHED

WNID = re.compile(r"n\d{8}")


def how_to_open(folder: Path) -> str:
    """How to open `folder` by a published name, as one sentence; "" where it is no published dataset.

    `folder` is a data root, the corrupted or clean folder of a dataset, or a renamed corrupted folder. A
    folder with a clean test set of its own (``test.npz``, ``test/``, ``val/``) is an own dataset.
    """
    if any((folder / name).exists() for name in ("ttabench.json", "test.npz", "test")):
        return ""
    for facts in PUBLISHED.values():
        if (folder / facts.corrupted_folder).is_dir():
            return f"{folder} is a data root: set TTABENCH_DATA={folder} and use the name {facts.name}."
    for facts in PUBLISHED.values():
        if folder.resolve().name.lower() in (facts.corrupted_folder.lower(), facts.clean_folder.lower()):
            return _sentence(folder, facts)
    if (folder / "val").exists():
        return ""
    facts_of_content = _by_arrays(folder) or _by_class_folders(folder)
    return _sentence(folder, facts_of_content) if facts_of_content else ""


def _sentence(folder: Path, facts: PublishedDataset) -> str:
    name = folder.resolve().name
    right = name in (facts.corrupted_folder, facts.clean_folder)
    rename = "" if right else f"rename it to {facts.corrupted_folder}, "
    root = folder.resolve().parent
    return (
        f"{folder} is part of the published dataset {facts.name}: {rename}set TTABENCH_DATA={root} and use "
        f"the name {facts.name} (`ttabench data verify {facts.name}` says what is missing)."
    )


def _by_arrays(folder: Path) -> PublishedDataset | None:
    """CIFAR-10-C or CIFAR-100-C: 50,000 labels of 10 or 100 classes, in an .npy file."""
    import numpy as np

    try:
        labels = np.load(folder / "labels.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, OverflowError):
        return None
    if labels.ndim != 1 or labels.dtype.kind not in "ui" or not len(labels):
        return None
    shape = (len(labels) // 5, int(labels.max()) + 1)
    cifar = (facts for facts in PUBLISHED.values() if facts.layout == "cifar")
    return next((facts for facts in cifar if shape == (facts.test, facts.num_classes)), None)


def _by_class_folders(folder: Path) -> PublishedDataset | None:
    """Tiny ImageNet-C or ImageNet-C: class folders named by WordNet ids, as many as there are classes."""
    from ttabench.data.files.image_folders import class_folders, find_corruptions

    for path in find_corruptions(folder).values():
        if (path / "1").is_dir():
            names = class_folders(path / "1")
            if all(WNID.fullmatch(name) for name in names):
                return next((f for f in PUBLISHED.values() if f.num_classes == len(names)), None)
    return None
