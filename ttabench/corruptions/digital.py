"""Contrast, pixelation and JPEG."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions import constants
from ttabench.corruptions.constants import at
from ttabench.corruptions.layout import Images, batch_first, batch_last, to_images, unit_images


def contrast(images: Images, draws: None, severity: int) -> Images:
    """(v − m)·c + m with m the mean of each channel of each image."""
    x = unit_images(images)
    mean = x.mean(axis=(0, 1))
    x -= mean
    x *= at(constants.CONTRAST, images.shape[1], severity)
    x += mean
    return to_images(x)


def pixelate(images: Images, draws: None, severity: int) -> Images:
    """Shrink by averaging whole pixels, columns first, rounding half up; enlarge by nearest neighbour."""
    n = images.shape[1]
    k = at(constants.PIXELATE, n, severity)
    first, last = _box(n, k)
    nearest = ((np.arange(n) + 0.5) * k / n).astype(int)
    x = batch_last(images)
    x = _average(x.take(first, axis=1), x.take(last, axis=1))
    x = _average(x[first], x[last])
    return batch_first(x.take(nearest, axis=1)[nearest])


def _box(n: int, k: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First and last of the one or two pixels of n whose centres lie within n/2k of each of k centres."""
    centre = (np.arange(k) + 0.5) * n / k
    pixels = np.arange(n) + 0.5
    within = np.abs(pixels - centre[:, None]) <= n / (2 * k)
    first = within.argmax(axis=1)
    return first, first + within.sum(axis=1) - 1


def _average(a: Images, b: Images) -> Images:
    """(a + b + 1) // 2 without leaving eight bits."""
    return (a | b) - ((a ^ b) >> 1)


def jpeg_compression(images: Images, draws: None, severity: int) -> Images:
    """Encode as baseline JPEG with chroma at half resolution and decode, both with OpenCV's libjpeg-turbo.

    The result equals that of Pillow with libjpeg-turbo bit for bit and takes a fifth of the time. The
    published CIFAR-10-C was probably made with IJG's libjpeg 9, which scales chroma differently: a third of
    the values differ, mostly by a few levels.
    """
    options = [cv2.IMWRITE_JPEG_QUALITY, at(constants.JPEG_QUALITY, images.shape[1], severity)]
    bgr = np.ascontiguousarray(images[..., ::-1])
    result = np.empty_like(bgr)
    for image, out in zip(bgr, result, strict=True):
        _, code = cv2.imencode(".jpg", image, options)
        out[:] = cv2.imdecode(code, cv2.IMREAD_COLOR)
    return result[..., ::-1]
