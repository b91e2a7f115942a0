"""A dataset as a foreign set: the images that contaminate a stream."""

from __future__ import annotations

from ttabench.corruptions.corruption_names import NATURAL, NO_SEVERITY
from ttabench.data.dataset import Dataset, Labelled


class ForeignSet(Dataset):
    """A dataset as a foreign set: :meth:`test` gives its clean test images, or those of a natural shift."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.name, self.num_classes, self.image_size = data.name, data.num_classes, data.image_size
        self.mean, self.std, self.corruptions = data.mean, data.std, data.corruptions

    def fingerprint(self) -> str:
        return self.data.fingerprint()

    def train(self) -> Labelled:
        return self.data.train()

    def test(self) -> Labelled:
        if self.corruptions == (NATURAL,):
            return self.data.corrupted(NATURAL, NO_SEVERITY)
        return self.data.test()

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        return self.data.corrupted(corruption, severity)
