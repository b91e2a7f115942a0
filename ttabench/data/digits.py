"""digits-c: real scans that ship with scikit-learn, so that everything works without a download."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions import ALL_CORRUPTIONS, VERSION, corrupt
from ttabench.data.dataset import Dataset, Labelled
from ttabench.env import cache_dir
from ttabench.errors import UserError

SEED = 0
TEST_PER_CLASS = 60
INK = 24  # pixels that a digit is wide and high
DARKEST, BRIGHTEST = 0.05, 0.95
VERSION_OF_SPLIT = "2"  # change whenever the images or the split change


class Digits(Dataset):
    """The 1,797 handwritten digits (8×8, UCI, in scikit-learn's wheel) as 32×32 RGB images.

    Enlarged to 24 pixels (bicubic) with a margin of 4, as MNIST has one; grey copied to three
    channels; values from 0.05 to 0.95. A fixed class-balanced split of 1,197 training and 600 test
    images. The corruptions use the 32-pixel constants, and for frost the procedural textures, so the
    images depend on nothing outside the installed packages.

    Corrupted sets are made on first use and kept in the cache with their SHA-256; a changed file
    is noticed and made again.
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
        size, margin = (INK, INK), (self.image_size - INK) // 2
        large = [np.asarray(Image.fromarray(g).resize(size, Image.Resampling.BICUBIC)) for g in grey]
        framed = np.pad(np.stack(large), ((0, 0), (margin, margin), (margin, margin)))
        values = np.round(255 * DARKEST + (BRIGHTEST - DARKEST) * framed).astype(np.uint8)
        images = np.repeat(values[..., None], 3, axis=-1)
        labels = raw.target.astype(np.int64)
        order = np.random.Generator(np.random.PCG64(SEED)).permutation(len(labels))
        test = np.sort(
            np.concatenate([order[labels[order] == c][:TEST_PER_CLASS] for c in range(self.num_classes)])
        )
        train = np.setdiff1d(np.arange(len(labels)), test)
        return Labelled(images[train], labels[train]), Labelled(images[test], labels[test])

    def train(self) -> Labelled:
        return self._split[0]

    def test(self) -> Labelled:
        return self._split[1]

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.name} split {VERSION_OF_SPLIT} corruptions {VERSION} {SEED}".encode())
        for part in self._split:
            digest.update(part.images.tobytes() + part.labels.tobytes())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        return self._fingerprint

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        if corruption not in self.corruptions or not 1 <= severity <= 5:
            raise UserError(f"{self.name} has no {corruption} at severity {severity}; severities are 1 to 5.")
        folder = cache_dir() / "data" / self.name / self.fingerprint()[:16]
        file = folder / f"{corruption}-{severity}.npy"
        images = self._cached(file)
        if images is None:
            images = corrupt(self.test().images, corruption, severity, seed=SEED)
            self._keep(file, images)
        return Labelled(images, self.test().labels)

    def _cached(self, file: Path) -> NDArray[np.uint8] | None:
        """The images in `file`, or None where they are missing or not what was written."""
        try:
            images = np.load(file, allow_pickle=False)
            promised = json.loads(file.with_suffix(".json").read_text())["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        same: bool = hashlib.sha256(images.tobytes()).hexdigest() == promised
        return images if same else None

    def _keep(self, file: Path, images: NDArray[np.uint8]) -> None:
        """Write atomically: another worker may be making the same file."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            note = {"sha256": hashlib.sha256(images.tobytes()).hexdigest()}
            for target, write in (
                (file, lambda p: np.save(p, images, allow_pickle=False)),
                (file.with_suffix(".json"), lambda p: p.write_text(json.dumps(note))),
            ):
                part = target.with_name(f".{os.getpid()}-{target.name}")
                write(part)
                part.replace(target)
        except OSError as problem:
            raise UserError(
                f"the cache {file.parent} cannot be written ({problem.strerror}); "
                "set TTABENCH_CACHE to a folder with space."
            ) from None
