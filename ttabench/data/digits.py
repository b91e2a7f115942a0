"""digits-c: scans of handwritten digits, part of scikit-learn. They need no download."""

from __future__ import annotations

import hashlib
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, VERSION
from ttabench.corruptions.engine import corrupt
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.files.generated_cache import cached_array
from ttabench.errors import UserError
from ttabench.system.environment import cache_dir

SEED = 0
TEST_PER_CLASS = 60
DIGIT = 24  # width and height of a digit in pixels
DARKEST, BRIGHTEST = 0.05, 0.95
SPLIT_VERSION = "2"  # increased whenever the images or the split change


class Digits(Dataset):
    """The 1,797 handwritten digits (8×8, UCI, in scikit-learn's wheel) as 32×32 RGB images.

    A digit is enlarged to 24 pixels (bicubic), with a margin of 4 as in MNIST. The grey value is copied to
    three channels; values lie between 0.05 and 0.95. The split is fixed and class-balanced: 1,197 training
    and 600 test images. The corruptions use the 32-pixel constants, and frost uses the procedural textures:
    the images depend only on the installed packages.

    Corrupted sets are made on first use and kept in the cache with their SHA-256. A file that was changed
    is made again.
    """

    name = "digits-c"
    num_classes = 10
    image_size = 32
    mean = (0.21, 0.21, 0.21)
    std = (0.27, 0.27, 0.27)
    corruptions = ALL_CORRUPTIONS

    @cached_property
    def _split(self) -> tuple[Labelled, Labelled]:
        from PIL import Image
        from sklearn.datasets import load_digits

        raw = load_digits()
        grey = np.round(raw.images * (255 / 16)).astype(np.uint8)
        size, margin = (DIGIT, DIGIT), (self.image_size - DIGIT) // 2
        enlarged = [np.asarray(Image.fromarray(g).resize(size, Image.Resampling.BICUBIC)) for g in grey]
        padded = np.pad(np.stack(enlarged), ((0, 0), (margin, margin), (margin, margin)))
        values = np.round(255 * DARKEST + (BRIGHTEST - DARKEST) * padded).astype(np.uint8)
        images = np.repeat(values[..., None], 3, axis=-1)
        labels = raw.target.astype(np.int64)
        shuffled = np.random.Generator(np.random.PCG64(SEED)).permutation(len(labels))
        test = np.sort(
            np.concatenate(
                [shuffled[labels[shuffled] == c][:TEST_PER_CLASS] for c in range(self.num_classes)]
            )
        )
        train = np.setdiff1d(np.arange(len(labels)), test)
        return Labelled(images[train], labels[train]), Labelled(images[test], labels[test])

    def train(self) -> Labelled:
        return self._split[0]

    def test(self) -> Labelled:
        return self._split[1]

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.name} split {SPLIT_VERSION} corruptions {VERSION} {SEED}".encode())
        for part in self._split:
            digest.update(part.images.tobytes() + part.labels.tobytes())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        return self._fingerprint

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        if corruption not in self.corruptions or not 1 <= severity <= 5:
            raise UserError(f"{self.name} has no {corruption} at severity {severity}; severities are 1 to 5.")
        return Labelled(self._corrupted_images(corruption, severity), self.test().labels)

    def _corrupted_images(self, corruption: str, severity: int) -> NDArray[np.uint8]:
        folder = cache_dir() / "data" / self.name / self.fingerprint()[:16]
        return cached_array(
            folder / f"{corruption}-{severity}.npy",
            lambda: corrupt(self.test().images, corruption, severity, seed=SEED),
        )
