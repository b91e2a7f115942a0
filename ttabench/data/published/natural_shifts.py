"""Natural shifts: photographs and drawings of known classes from elsewhere, without severities.

cifar10.1 (Recht et al., 2018) has CIFAR-10's classes; imagenet-v2 (Recht et al., 2019) and imagenet-sketch
(Wang et al., 2019) have ImageNet's; imagenet-r (Hendrycks et al., 2021) and imagenet-a (Hendrycks et al.,
2021) have 200 of them. The clean sets are CIFAR-10 and ImageNet.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from ttabench.corruptions.corruption_names import NATURAL, NO_SEVERITY
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_array, open_labels
from ttabench.data.files.image_folders import class_folders, labelled_files
from ttabench.data.published.clean_cifar import CleanCifar
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.imagenet import Files, ImageNetC
from ttabench.data.published.published_on_disk import PublishedOnDisk
from ttabench.errors import UserError, unknown

IMAGES, LABELS = "cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy"


class Cifar101(CleanCifar):
    """CIFAR-10.1 v6: 2,000 new test images of CIFAR-10's classes, 200 of each."""

    corruptions = (NATURAL,)

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where the clean batches or the new images are not below `root`."""
        super().__init__(facts, root)
        self.check_present(self.corrupted_folder / IMAGES, self.corrupted_folder / LABELS)

    def pieces(self) -> dict[str, Path]:
        return super().pieces() | {name: self.corrupted_folder / name for name in (IMAGES, LABELS)}

    def severities(self, corruption: str) -> tuple[int, ...]:
        return (NO_SEVERITY,)

    def shifted_count(self) -> int:
        return self.facts.shifted

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        _check_natural(self, corruption, severity)
        shape = (self.facts.shifted, self.image_size, self.image_size, 3)
        images = open_array(self.corrupted_folder / IMAGES, shape, np.uint8)
        labels = open_labels(self.corrupted_folder / LABELS)
        if labels.shape != shape[:1] or labels.max() >= self.num_classes:
            raise UserError(f"{self.corrupted_folder / LABELS} holds wrong labels; fetch {self.name} again.")
        return Labelled(images, labels)


class NaturalImageNet(ImageNetC):
    """``<class>/*`` of a natural shift of ImageNet, resized and centre-cropped to 224 pixels.

    Where someone has cropped the files to 224 pixels, they are taken as they are. A class folder is named by
    its WordNet id or, in imagenet-v2, by its class index.
    """

    corruptions = (NATURAL,)

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where the images or ImageNet's validation set are not below `root`."""
        PublishedOnDisk.__init__(self, facts, root)
        self._corruption_folders = {}
        for folder in (self.corrupted_folder, self.clean_folder / "val"):
            if not folder.is_dir():
                raise self._missing(folder)

    @cached_property
    def scored_classes(self) -> tuple[int, ...]:  # type: ignore[override]
        """Class indices, sorted; () where the shift has all classes."""
        present = sorted(set(self.natural_files()[1]))
        return () if len(present) == self.num_classes else tuple(present)

    def pieces(self) -> dict[str, Path]:
        return super().pieces() | {NATURAL: self.corrupted_folder}

    def severities(self, corruption: str) -> tuple[int, ...]:
        return (NO_SEVERITY,)

    def shifted_count(self) -> int:
        return self.facts.shifted

    def natural_files(self) -> Files:
        """The images, folder by folder, and their class indices. Raises UserError on an unknown class."""
        folders = class_folders(self.corrupted_folder)
        if all(name.isdecimal() for name in folders):
            folders.sort(key=int)
            index = {str(i): i for i in range(self.num_classes)}
        else:
            index = {wnid: i for i, wnid in enumerate(self.classes)}
        if wrong := [name for name in folders if name not in index]:
            raise UserError(
                f"{self.corrupted_folder / wrong[0]} is not a class of {self.clean_folder / 'val'}; fetch "
                f"{self.name} again."
            )
        if len(folders) != self.facts.shifted_classes:
            raise UserError(
                f"{self.corrupted_folder} has {len(folders)} class folders; expected "
                f"{self.facts.shifted_classes}; fetch {self.name} again."
            )
        files, positions = labelled_files(self.corrupted_folder, folders)
        return files, [index[folders[position]] for position in positions]

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        _check_natural(self, corruption, severity)
        files = self.natural_files()
        return self._load(NATURAL, files, self.facts.shifted, self.fit_of(files[0]))


def _check_natural(data: PublishedOnDisk, corruption: str, severity: int) -> None:
    if corruption != NATURAL:
        raise unknown(f"corruption of {data.name}", corruption, (NATURAL,))
    if severity != NO_SEVERITY:
        raise UserError(
            f"{data.name} is a natural shift and has no severities; severity {severity} was asked."
        )
