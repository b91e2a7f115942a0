"""Levels of the five severities of CIFAR-10-C-bar, as in the generator published with the paper.

The generator states every level on a scale from 0 to 10; each corruption multiplies its own constant by
level / 10. It spells the last corruption "transverse_chromatic_abberation".
"""

from __future__ import annotations

LEVELS: dict[str, tuple[float, float, float, float, float]] = {
    "blue_noise_sample": (0.7, 1.4, 2.1, 3.5, 4.2),
    "brownish_noise": (2.5, 4.0, 5.5, 6.5, 7.0),
    "checkerboard_cutout": (1.0, 2.0, 3.0, 4.0, 5.0),
    "inverse_sparkles": (1.0, 1.5, 2.5, 4.5, 5.0),
    "pinch_and_twirl": (5.5, 6.0, 6.5, 8.5, 10.0),
    "ripple": (5.5, 6.0, 6.5, 7.5, 8.0),
    "circular_motion_blur": (2.8, 3.6, 4.4, 5.2, 6.0),
    "lines": (0.5, 1.0, 1.5, 2.0, 2.5),
    "sparkles": (0.7, 3.5, 5.6, 6.3, 7.0),
    "transverse_chromatic_aberration": (1.0, 2.0, 5.0, 9.0, 10.0),
}


def share(name: str, severity: int) -> float:
    """The level of a corruption at severity 1 … 5, divided by 10."""
    return LEVELS[name][severity - 1] / 10
