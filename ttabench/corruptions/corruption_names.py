"""The names of the corruptions, in the order of the tables in papers. Imports nothing heavy."""

from __future__ import annotations

CORRUPTIONS: tuple[str, ...] = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
"""The fifteen that papers report."""

EXTRA_CORRUPTIONS: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four for choosing hyper-parameters; they are never reported."""

ALL_CORRUPTIONS: tuple[str, ...] = CORRUPTIONS + EXTRA_CORRUPTIONS

BAR_CORRUPTIONS: tuple[str, ...] = (
    "blue_noise_sample",
    "brownish_noise",
    "checkerboard_cutout",
    "inverse_sparkles",
    "pinch_and_twirl",
    "ripple",
    "circular_motion_blur",
    "lines",
    "sparkles",
    "transverse_chromatic_aberration",
)
"""The ten of CIFAR-10-C-bar, 32 pixels only."""

KNOWN_CORRUPTIONS: tuple[str, ...] = ALL_CORRUPTIONS + BAR_CORRUPTIONS

NATURAL = "natural"
"""The corruption of datasets whose images are photographs or drawings from another source."""

OF_TABLES = frozenset((
    "dataset", "severity", "fingerprint", "order", "reset", "contamination", "foreign", "held_out", "limit",
    "precision", "stream", "baseline", "pace", "arch", "method", "row", "mode", "batch_size", "epochs",
    "seeds", "n_images", "checkpoint", "stale", "source_data", "epochs_seen", "settings", "settings_chosen",
    "mean", "mean_extra", "notes",
))  # fmt: skip
"""The columns that tables have beside those of corruptions; a domain with such a name could not be told."""

SEVERITIES: tuple[int, ...] = (1, 2, 3, 4, 5)

NO_SEVERITY = 0
"""The severity of a natural shift."""

IMAGE_SIZES: tuple[int, ...] = (32, 64)
"""Image sides, in pixels, with published constants (CIFAR-10-C, Tiny-ImageNet-C)."""

VERSION = "1"
"""Increased whenever the pixels of any corruption change; part of every dataset's fingerprint."""
