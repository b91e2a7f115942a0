"""Images of the published generator known by SHA-256 and three statistics each, in meta.json's "six_images".

Used by replay_corruptions.py and by the tests; not a command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from golden_corruptions import GoldenFolder, Images, read_mosaic, replay

from ttabench.corruptions import by_name as registry
from ttabench.corruptions.any_size import corrupt_any_size
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, SEVERITIES
from ttabench.corruptions.frost_textures import FrostTextures

FILE = "clean-6.webp"
SEEDS = 5
"""Runs with our own draws, whose mean and spread are compared with the generator's one run."""
DEVIATIONS = 6
"""So many standard deviations between our own runs may separate the generator from their mean."""
ROUNDING = 0.01
"""Allowed besides, in grey levels: meta.json rounds."""


@dataclass(frozen=True)
class Hashes:
    """The clean images, and what meta.json says of each corruption and severity."""

    clean: Images
    corruptions: dict[str, Any]
    files: dict[str, Any]

    @classmethod
    def of(cls, folder: GoldenFolder) -> Hashes | None:
        """None where a folder has none."""
        given = folder.meta.get("six_images")
        if not given or not (folder.path / FILE).is_file():
            return None
        clean = read_mosaic(folder.path / FILE, folder.clean.shape[1])
        return cls(clean, given["corruptions"], folder.meta["files"])

    def names(self) -> list[str]:
        return [name for name in ALL_CORRUPTIONS if name in self.corruptions]

    def equal(self, name: str, severity: int, textures: FrostTextures | None) -> tuple[int, int]:
        """(images equal to the generator's bit for bit, images), with the generator's draws."""
        seed = self.files[f"{name}.webp"]["seeds"][severity - 1]
        ours = replay(self.clean, name, severity, seed, textures, "scipy1.6")
        digests = [hashlib.sha256(np.ascontiguousarray(i).tobytes()).hexdigest()[:32] for i in ours]
        theirs = self.corruptions[name][str(severity)]["sha256_per_image"]
        return sum(a == b for a, b in zip(digests, theirs, strict=True)), len(theirs)

    def statistics(
        self, name: str, severity: int, textures: FrostTextures | None
    ) -> Iterator[tuple[str, float, float, float]]:
        """(what, expected, ours, allowed difference) with our own draws, in grey levels."""
        seeds = 1 if name in registry.DETERMINISTIC else SEEDS
        runs = [
            moments(corrupt_any_size(self.clean, name, severity, seed, frost_textures=textures), self.clean)
            for seed in range(seeds)
        ]
        for what in ("mean", "std", "mean_abs_difference"):
            values = [run[what] for run in runs]
            spread = float(np.std(values, ddof=1)) if seeds > 1 else 0.0
            expected = self.corruptions[name][str(severity)][what]
            yield what, expected, float(np.mean(values)), DEVIATIONS * spread + ROUNDING


def moments(corrupted: Images, clean: Images) -> dict[str, float]:
    difference = corrupted.astype(np.int16) - clean
    return {
        "mean": float(corrupted.mean()),
        "std": float(corrupted.std()),
        "mean_abs_difference": float(np.abs(difference).mean()),
    }


def severities(hashes: Hashes, name: str) -> list[int]:
    return [s for s in SEVERITIES if str(s) in hashes.corruptions[name]]
