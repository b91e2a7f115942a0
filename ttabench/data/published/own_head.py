"""A natural shift whose networks have outputs for its classes alone: ``imagenet-r[200-way]``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.files.image_folders import image_files
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.imagenet import Files
from ttabench.data.published.natural_shifts import NaturalImageNet
from ttabench.errors import UserError


class OwnHead(NaturalImageNet):
    """The images of `whole`, and of its clean sets those of the same classes, counted from 0.

    whole   the natural shift with all classes of ImageNet.
    kept    the place of each class among them, ascending.

    A network with all classes gets a head with the rows of `kept` (see `models.head_rows`). So methods see
    as many logits as there are classes. In `whole`, they see all logits, and predictions alone are chosen
    among these classes.
    """

    scored_classes = ()

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where `whole` does, and where it has all classes."""
        super().__init__(facts, root)
        self.whole = NaturalImageNet(facts, root)
        self.kept = self.whole.scored_classes
        if not self.kept:
            raise UserError(f"{facts.name} has all classes of its networks; open it as {facts.name}.")
        self.num_classes = len(self.kept)
        self.name = f"{facts.name}[{self.num_classes}-way]"

    def _class_names(self) -> list[str]:
        return [self.whole.classes[index] for index in self.kept]

    def selection(self, piece: str) -> Sequence[str]:
        if piece != "clean/val":
            return super().selection(piece)
        folder = self.clean_folder / "val"
        return [f"{wnid}/{file.name}" for wnid in self.classes for file in image_files(folder / wnid)]

    def test(self) -> Labelled:
        files: Files = self.test_files()
        expected = self.facts.test // self.facts.num_classes * self.num_classes
        return self._load("clean/val", files, expected, self.fit_of(files[0]))


def open_own_head(facts: PublishedDataset, root: Path, subset: str) -> OwnHead:
    """The natural shift `facts` with the text in brackets, ``200-way``. Raises UserError for another one."""
    data = OwnHead(facts, root)
    if data.name != f"{facts.name}[{subset}]":
        raise UserError(f"unknown subset {facts.name}[{subset}]; expected {facts.name} or {data.name}.")
    return data


def settled_classes(data: Dataset) -> int:
    """The number of classes that methods choose their settings by: of the whole network, where some are left.

    Official scripts have the settings of ImageNet for a network of ImageNet with a head of 200 classes.
    """
    return data.facts.num_classes if isinstance(data, OwnHead) else data.num_classes
