"""Statistics of corrupted images, as files of reference statistics define them, and their bounds.

Used by replay_corruptions.py and by the tests; not a command.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import fft2

from ttabench.errors import UserError

Images = NDArray[np.uint8]
Statistics = dict[str, NDArray[np.float64]]
BAND_EDGES = (0.125, 0.25, 0.375)  # cycles per pixel
PAIRS = ((0, 1), (1, 2), (0, 2))  # red–green, green–blue, red–blue


def statistics(corrupted: Images, clean: Images) -> Statistics:
    """Every statistic of (N, n, n, 3) images, each as a vector."""
    x, d = corrupted.astype(np.float64), corrupted.astype(np.float64) - clean
    dc, *bands = band_powers(d)
    return {
        "mean": np.atleast_1d(x.mean()),
        "std": np.atleast_1d(x.std()),
        "channel_mean": x.mean(axis=(0, 1, 2)),
        "mad": np.atleast_1d(np.abs(d).mean()),
        "mse": np.atleast_1d((d**2).mean()),
        "changed": np.atleast_1d((d != 0).mean()),
        "dc_power": np.atleast_1d(dc),
        "band_power": np.array(bands),
        "channel_corr": _correlations(d),
    }


def band_powers(difference: NDArray[np.float64]) -> list[float]:
    """Mean power per bin of the 2-D spectrum: at frequency 0, then in each of the four bands."""
    n = difference.shape[1]
    spectrum = fft2(difference.astype(np.float32), axes=(1, 2), norm="ortho", workers=-1)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=(0, 3))
    radius = np.hypot(np.fft.fftfreq(n)[:, None], np.fft.fftfreq(n))
    band = np.digitize(radius, BAND_EDGES) + 1
    band[0, 0] = 0
    return [float(power[band == k].mean()) for k in range(len(BAND_EDGES) + 2)]


def _correlations(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    flat = difference.reshape(-1, 3)
    flat = flat - flat.mean(axis=0)
    covariance = flat.T @ flat
    return np.array([covariance[a, b] / sqrt(covariance[a, a] * covariance[b, b] or 1) for a, b in PAIRS])


def deviations(pooled: dict[str, Any] | None, expected: Statistics) -> Statistics:
    """Standard deviation of each statistic between seeds, as the reference's "suggested_test" takes it.

    Of a deterministic corruption (`pooled` None): zero.
    """
    result = {}
    for key, value in expected.items():
        kind = "absolute" if key == "channel_corr" else "relative"
        given = np.asarray(0.0 if pooled is None else pooled[key][kind], dtype=np.float64)
        result[key] = given * (np.ones_like(value) if kind == "absolute" else np.abs(value))
    return result


def bounds(deviation: Statistics, expected: Statistics, runs: int = 1) -> Statistics:
    """How far the mean of `runs` runs may be from the mean of the reference's three.

    Four standard deviations, and 0.05 grey level for means: the reference's "suggested_test". Where there is
    nothing random, 0.1 %, as for the pixels.
    """
    allowed = {}
    for key, value in expected.items():
        scale = np.ones_like(value) if key == "channel_corr" else np.abs(value)
        random = 4 * sqrt(1 / runs + 1 / 3) * deviation[key]
        allowed[key] = np.where(deviation[key] > 0, random, 1e-3 * scale)
        if key in ("mean", "channel_mean"):
            allowed[key] += 0.05
    return allowed


@dataclass(frozen=True)
class Reference:
    """A file of reference statistics."""

    path: Path
    document: dict[str, Any]

    @classmethod
    def find(cls, folder: Path) -> Iterator[Reference]:
        """Those directly in a folder. Raises UserError for a *.json that cannot be read."""
        for path in sorted(folder.glob("*.json")):
            try:
                document = json.loads(path.read_text())
            except json.JSONDecodeError as problem:
                raise UserError(f"{path} is not readable JSON ({problem}).") from None
            if isinstance(document, dict) and {"definitions", "corruptions", "clean"} <= document.keys():
                yield cls(path, document)

    @property
    def side(self) -> int:
        """Of its images, in pixels: every frequency bin but the one of frequency 0 is in a band."""
        return round(sqrt(1 + sum(self.document["definitions"]["band_bins"])))

    @property
    def count(self) -> int:
        """How many images it is about: in "images", or as "first N" in "about"."""
        if "images" in self.document:
            return int(self.document["images"]["n"])
        first = re.search(r"first (\d+)", self.document.get("about", ""))
        return int(first[1]) if first else 0

    def is_about(self, images: Images) -> bool:
        """Whether these are its images, by mean and deviation; one in a hundred may be lacking."""
        if images.shape[1] != self.side or not 0.99 * self.count <= len(images) <= self.count:
            return False
        measured, tolerance = statistics(images, images), 255 * (1 - len(images) / self.count) + 1e-3
        clean = self.document["clean"]
        return all(
            np.all(np.abs(measured[key] - clean[key]) <= tolerance) for key in ("mean", "std", "channel_mean")
        )

    def entry(self, name: str) -> dict[str, Any] | None:
        """What it knows of a corruption; of JPEG, with the decoder that we use where it says."""
        known: dict[str, dict[str, Any]] = self.document.get("variants", {})
        return known.get(f"{name}@libjpeg-turbo") or self.document["corruptions"].get(name)

    def pooled(self, name: str) -> dict[str, Any] | None:
        """Standard deviations between seeds; None for a deterministic corruption."""
        entry = self.entry(name)
        return entry.get("pooled_seed_std") if entry else None

    def expected(self, name: str, severity: int) -> Statistics:
        """The mean over seeds, or the one value; pixels only, no accuracies. Empty where it does not say."""
        entry = self.entry(name)
        values = entry["severity"].get(str(severity)) if entry else None
        if values is None:
            return {}
        chosen = values.get("seed_mean", values["value"])
        return {
            key: np.atleast_1d(np.asarray(v, dtype=np.float64))
            for key, v in chosen.items()
            if key[:4] != "acc_"
        }

    def seeds(self, name: str, severity: int) -> list[int]:
        """The seeds of the runs behind a corruption and severity; empty where it does not say."""
        values = self.document["corruptions"][name]["severity"][str(severity)]
        if "seeds" in values:
            return list(values["seeds"])
        rule = self.document.get("seeds", {})
        if name not in rule.get("order", ()):
            return []
        return [base + 10 * rule["order"].index(name) + severity for base in rule["base"]]


def packed_images(path: Path, count: int) -> Images | None:
    """Those of a set's first `count` images that are in `path` (arrays jpeg, offsets and perhaps index)."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as packed:
        raw, offsets = packed["jpeg"].tobytes(), packed["offsets"]
        index = packed["index"] if "index" in packed else np.arange(len(offsets) - 1)
    decoded = []
    for i in np.argsort(index):
        if index[i] < count:
            with Image.open(io.BytesIO(raw[offsets[i] : offsets[i + 1]])) as image:
                decoded.append(np.asarray(image.convert("RGB")))
    return np.stack(decoded) if decoded else None
