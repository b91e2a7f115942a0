"""Glass blur: every pixel is a copy of a random near pixel, between two Gaussian filters."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ttabench.corruptions.filters import gaussian_filter
from ttabench.corruptions.imagenet import constants
from ttabench.corruptions.imagenet.constants import SIZE, at
from ttabench.corruptions.imagenet.shared import sources_of_pass
from ttabench.corruptions.layout import UNIT, Images, to_grey_levels


def draw_shifts(rng: Generator, severity: int) -> NDArray[np.int8]:
    """(passes, m, m, 2): (dx, dy) in −d … d−1 for each visited pixel, in the order of the visits."""
    _, d, passes = at(constants.GLASS_BLUR, severity)
    side = SIZE - 2 * d
    return rng.integers(-d, d, (passes, side, side, 2), dtype=np.int8)


def glass_blur(image: Images, shifts: NDArray[np.integer], severity: int) -> Images:
    """Blur, copy to every pixel a random near pixel, blur again; passes as at 32 pixels."""
    sigma, d, passes = at(constants.GLASS_BLUR, severity)
    blurred = to_grey_levels(gaussian_filter(UNIT[image], sigma))
    # Four bytes per pixel, so that a pixel moves as one word.
    words = np.asarray(cv2.cvtColor(blurred, cv2.COLOR_RGB2RGBA)).view(np.uint32).ravel()
    for number in range(passes):
        words = words.take(sources_of_pass(shifts[None, number], SIZE, d)[0])
    moved = np.asarray(cv2.cvtColor(words.view(np.uint8).reshape(SIZE, SIZE, 4), cv2.COLOR_RGBA2RGB))
    return to_grey_levels(gaussian_filter(UNIT[moved], sigma))
