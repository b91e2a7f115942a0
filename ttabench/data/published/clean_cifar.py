"""What all datasets made from CIFAR share: the clean training and test set."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ttabench.data.dataset import Labelled
from ttabench.data.published.cifar_batches import FILES, read_exactly
from ttabench.data.published.description import PublishedDataset
from ttabench.data.published.published_on_disk import PublishedOnDisk


class CleanCifar(PublishedOnDisk):
    """The pickled batches of CIFAR-10 or CIFAR-100."""

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where the clean test set is not below `root`."""
        super().__init__(facts, root)
        self._train_files, self._test_files = FILES[facts.clean_folder]
        self.check_present(*(self.clean_folder / file for file in self._test_files))

    def pieces(self) -> dict[str, Path]:
        files = (self.clean_folder / name for name in (*self._train_files, *self._test_files))
        return {f"clean/{path.name}": path for path in files if path.is_file()}

    def train(self) -> Labelled:
        return read_exactly(self.clean_folder, self._train_files, self.num_classes, self.facts.train)

    def test(self) -> Labelled:
        return self._test

    @cached_property
    def _test(self) -> Labelled:
        return read_exactly(self.clean_folder, self._test_files, self.num_classes, self.facts.test)
