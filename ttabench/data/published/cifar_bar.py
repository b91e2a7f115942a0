"""cifar10-c-bar: CIFAR-10's test images under the ten corruptions of `ttabench.corruptions.bar`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ttabench.corruptions import BAR_CORRUPTIONS, VERSION, corrupt
from ttabench.data.dataset import Labelled
from ttabench.data.files.fingerprint import combine
from ttabench.data.files.generated_cache import cached_array
from ttabench.data.published.cifar_batches import FILES, read_exactly
from ttabench.data.published.facts import PublishedDataset
from ttabench.data.published.published_on_disk import PublishedOnDisk
from ttabench.env import cache_dir

SEED = 0


class CifarBar(PublishedOnDisk):
    """The published generator does not fix its random numbers, so every user has to generate the images.

    They are made here on first use, with the 32-pixel constants of the generator and seed 0, and kept in the
    cache. The fingerprint contains the clean batches, the seed and the version of the corruptions.
    """

    corruptions = BAR_CORRUPTIONS

    def __init__(self, facts: PublishedDataset, root: Path) -> None:
        """Raises UserError where the clean batches are not below `root`."""
        super().__init__(facts, root)
        self._train_files, self._test_files = FILES[facts.clean_folder]
        self.check_present(*(self.clean_folder / file for file in self._test_files))

    def pieces(self) -> dict[str, Path]:
        files = (self.clean_folder / name for name in (*self._train_files, *self._test_files))
        return {f"clean/{path.name}": path for path in files if path.is_file()}

    def fingerprint(self) -> str:
        return combine({"clean": super().fingerprint(), "generated": f"bar {VERSION} seed {SEED}"})

    def train(self) -> Labelled:
        return read_exactly(self.clean_folder, self._train_files, self.num_classes, self.facts.train)

    def test(self) -> Labelled:
        return self._test

    @cached_property
    def _test(self) -> Labelled:
        return read_exactly(self.clean_folder, self._test_files, self.num_classes, self.facts.test)

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        folder = cache_dir() / "data" / self.name / self.fingerprint()[:16]
        images = cached_array(
            folder / f"{corruption}-{severity}.npy",
            lambda: corrupt(self.test().images, corruption, severity, seed=SEED),
        )
        return Labelled(images, self.test().labels)
