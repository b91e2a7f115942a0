"""Datasets whose corrupted images are made here on first use, kept apart for each version of the code.

The images depend on the code of the corruptions and on the versions of some libraries, which the fingerprint
does not contain. So a sweep after a change of this code never reads images that the code before it made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.engine import corrupt
from ttabench.data.dataset import Labelled
from ttabench.data.digits import SEED, Digits
from ttabench.data.files.generated_cache import cached_array
from ttabench.data.published import cifar_bar
from ttabench.provenance import code_from, module_hash
from ttabench.system.environment import ALSO_OPENCV, cache_dir, versions

LIBRARIES = ("numpy", "opencv-python-headless", "pillow", "scipy")


class CurrentDigits(Digits):
    """digits-c, with the images that the installed code makes.

    The clean images are kept too: they come with scikit-learn, whose import takes more than a second.
    """

    @cached_property
    def _split(self) -> tuple[Labelled, Labelled]:
        folder = cache_dir() / "data" / self.name / f"clean-{_clean_digits_made_with()}"

        def part(place: int, field: str) -> NDArray[Any]:
            def compute() -> NDArray[Any]:
                array: NDArray[Any] = getattr(super(CurrentDigits, self)._split[place], field)
                return array

            return cached_array(folder / f"{('train', 'test')[place]}-{field}.npy", compute)

        train, test = (Labelled(part(place, "images"), part(place, "labels")) for place in (0, 1))
        return train, test

    def _corrupted_images(self, corruption: str, severity: int) -> NDArray[np.uint8]:
        file = folder(self.name, self.fingerprint()) / f"{corruption}-{severity}.npy"
        return cached_array(file, lambda: corrupt(self.test().images, corruption, severity, seed=SEED))


class CurrentCifarBar(cifar_bar.CifarBar):
    """cifar10-c-bar, with the images that the installed code makes."""

    def corrupted(self, corruption: str, severity: int) -> Labelled:
        self.check_request(corruption, severity)
        file = folder(self.name, self.fingerprint()) / f"{corruption}-{severity}.npy"
        images = cached_array(
            file, lambda: corrupt(self.test().images, corruption, severity, seed=cifar_bar.SEED)
        )
        return Labelled(images, self.test().labels)


def folder(name: str, fingerprint: str) -> Path:
    """Where the corrupted images of a dataset are kept."""
    return cache_dir() / "data" / name / f"{fingerprint[:16]}-{made_with()}"


@cache
def made_with() -> str:
    """8 hex digits for the code of the corruptions and the libraries that it calls."""
    used = {name: of for name, of in versions().items() if name in (*LIBRARIES, *ALSO_OPENCV)}
    return _digits_of(code_from("ttabench.corruptions.engine", "corrupt"), used)


def _clean_digits_made_with() -> str:
    """8 hex digits for the code of the split and the libraries that it calls."""
    names = ("numpy", "pillow", "scikit-learn")
    return _digits_of(module_hash("ttabench.data.digits"), {name: version(name) for name in names})


def _digits_of(code: str, used: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps([code, used], sort_keys=True).encode()).hexdigest()[:8]
