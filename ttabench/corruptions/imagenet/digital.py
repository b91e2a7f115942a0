"""Brightness, saturation, contrast, pixelation and JPEG."""

from __future__ import annotations

import cv2
import numpy as np
from PIL import Image

from ttabench.corruptions.hsv import hsv_to_rgb, rgb_to_hsv
from ttabench.corruptions.imagenet import constants
from ttabench.corruptions.imagenet.constants import SIZE, at
from ttabench.corruptions.layout import UNIT, Images, to_grey_levels


def brightness(image: Images, draws: None, severity: int) -> Images:
    """Value + c, at most 1."""
    hue, saturation, value = rgb_to_hsv(image[..., None])
    value += at(constants.BRIGHTNESS, severity)
    np.minimum(value, 1, out=value)
    return hsv_to_rgb(hue, saturation, value)[..., 0]


def saturate(image: Images, draws: None, severity: int) -> Images:
    """Saturation·factor + offset, clipped to [0, 1]; an offset turns grey reddish (grey has hue 0)."""
    factor, offset = at(constants.SATURATE, severity)
    hue, saturation, value = rgb_to_hsv(image[..., None])
    return hsv_to_rgb(hue, np.clip(saturation * factor + offset, 0, 1), value)[..., 0]


def contrast(image: Images, draws: None, severity: int) -> Images:
    """(v − m)·c + m with m the mean of each channel."""
    x = UNIT[image]
    mean = x.mean(axis=(0, 1))
    return to_grey_levels((x - mean) * at(constants.CONTRAST, severity) + mean)


def pixelate(image: Images, draws: None, severity: int) -> Images:
    """Shrink by averaging whole pixels, enlarge by nearest neighbour."""
    k = at(constants.PIXELATE, severity)
    small = Image.fromarray(image).resize((k, k), Image.Resampling.BOX)
    return np.asarray(small.resize((SIZE, SIZE), Image.Resampling.BOX))


def jpeg_compression(image: Images, draws: None, severity: int) -> Images:
    """Baseline JPEG with chroma at half resolution, encoded and decoded by OpenCV's libjpeg-turbo."""
    return through_jpeg(image, at(constants.JPEG_QUALITY, severity))


def through_jpeg(image: Images, quality: int) -> Images:
    """The image (n, n, 3) as it is after it was saved as JPEG; equals Pillow with libjpeg-turbo."""
    _, code = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(cv2.imdecode(code, cv2.IMREAD_COLOR), dtype=np.uint8)[..., ::-1]
