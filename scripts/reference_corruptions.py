"""The 19 corruptions one image at a time, as plainly as NumPy, SciPy, OpenCV, Pillow and Matplotlib allow.

What bench_corruptions.py measures ttabench's batched functions against, and what the tests check them with.
Each function takes an image (n, n, 3) uint8, a severity and a legacy generator, from which it draws in the
published order; it returns (n, n, 3) uint8. Not a command.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from numpy.random import RandomState
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from ttabench.corruptions import constants
from ttabench.corruptions.constants import Motion
from ttabench.corruptions.frost_textures import FrostTextures
from ttabench.corruptions.imagenet import constants as at_224
from ttabench.corruptions.sizes import IMAGENET_SIZE

Picture = NDArray[np.uint8]
Plane = NDArray[np.floating]


def at(table: str, size: int, severity: int) -> Any:
    """The entry of a table of constants, for a `size` × `size` image."""
    if size == IMAGENET_SIZE:
        return getattr(at_224, table)[severity - 1]
    return constants.at(getattr(constants, table), size, severity)


def levels(x: Plane) -> Picture:
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


def blurred(x: Plane, sigma: float) -> Plane:
    return np.asarray(ndimage.gaussian_filter(x, (sigma, sigma, 0)[: x.ndim], mode="nearest"))


def gaussian_noise(image: Picture, severity: int, rng: RandomState) -> Picture:
    return levels(image / 255 + rng.normal(0, at("GAUSSIAN_NOISE", len(image), severity), image.shape))


def shot_noise(image: Picture, severity: int, rng: RandomState) -> Picture:
    rate = at("SHOT_NOISE", len(image), severity)
    return levels(rng.poisson(image / 255 * rate) / rate)


def impulse_noise(image: Picture, severity: int, rng: RandomState) -> Picture:
    hit = rng.random_sample(image.shape) < at("IMPULSE_NOISE", len(image), severity)
    return np.where(hit, np.where(rng.random_sample(image.shape) < 0.5, 255, 0), image).astype(np.uint8)


def speckle_noise(image: Picture, severity: int, rng: RandomState) -> Picture:
    sigma = at("SPECKLE_NOISE", len(image), severity)
    return levels(image / 255 * (1 + rng.normal(0, sigma, image.shape)))


def gaussian_blur(image: Picture, severity: int, rng: RandomState) -> Picture:
    return levels(blurred(image / 255, at("GAUSSIAN_BLUR", len(image), severity)))


def defocus_blur(image: Picture, severity: int, rng: RandomState) -> Picture:
    radius, edge = at("DEFOCUS_BLUR", len(image), severity)
    reach, smoothed = (8, 3) if radius <= 8 else (int(radius), 5)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disc = (x**2 + y**2 <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disc / disc.sum(), (smoothed, smoothed), edge)
    return levels(cv2.filter2D(image / 255, -1, kernel))


def glass_blur(image: Picture, severity: int, rng: RandomState) -> Picture:
    n = len(image)
    sigma, d, passes = at("GLASS_BLUR", n, severity)
    x = levels(blurred(image / 255, sigma))
    for _ in range(passes):
        for row in range(n - d, d, -1):
            for column in range(n - d, d, -1):
                right, down = rng.randint(-d, d, 2)
                x[row, column] = x[row + down, column + right]
    return levels(blurred(x / 255, sigma))


def streak(image: Picture, angle: float, motion: Motion) -> Picture:
    taps = np.arange(2 * motion.radius + 1)
    weights = np.exp(-(taps**2) / (2 * motion.sigma**2))
    rows, columns = np.indices(image.shape[:2])
    total = np.zeros(image.shape)
    for tap, weight in zip(taps, weights / weights.sum(), strict=True):
        row = rows + int(np.ceil(tap * np.sin(np.deg2rad(angle)) - 0.5))
        column = columns + int(np.ceil(tap * np.cos(np.deg2rad(angle)) - 0.5))
        total += weight * image[row.clip(0, len(image) - 1), column.clip(0, len(image) - 1)]
    return ((total * 257 + 0.5).astype(int) // 257).astype(np.uint8)


def motion_blur(image: Picture, severity: int, rng: RandomState) -> Picture:
    return streak(image, rng.uniform(-45, 45), at("MOTION_BLUR", len(image), severity))


def zoomed(x: Plane, factor: float) -> Plane:
    n = len(x)
    crop = int(np.ceil(n / factor))
    top = (n - crop) // 2
    window = x[top : top + crop, top : top + crop]
    large = ndimage.zoom(window, (factor, factor, 1)[: x.ndim], order=1)
    trim = (len(large) - n) // 2
    return np.asarray(large[trim : trim + n, trim : trim + n])


def zoom_blur(image: Picture, severity: int, rng: RandomState) -> Picture:
    x = (image / 255).astype(np.float32)
    stop, step = constants.ZOOM_BLUR_STOP[severity - 1], 0.01
    if len(image) == IMAGENET_SIZE:
        stop, step = at_224.ZOOM_BLUR[severity - 1]
    factors = np.arange(1, stop, step)
    total = np.zeros_like(x)
    for factor in factors:
        total += zoomed(x, factor)
    return levels((x + total) / np.float32(len(factors) + 1))


def snow(image: Picture, severity: int, rng: RandomState) -> Picture:
    n = len(image)
    c = at("SNOW", n, severity)
    field = zoomed(rng.normal(c.loc, c.scale, (n, n)), c.zoom)
    field[field < c.threshold] = 0
    flakes = streak(levels(field), rng.uniform(-135, -45), c.motion)[..., None] / 255
    x = image.astype(np.float32) / 255
    grey = x @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    x = c.mix * x + (1 - c.mix) * np.maximum(x, grey[..., None] * 1.5 + 0.5)
    return levels(x + flakes + np.rot90(flakes, 2))


def frost(image: Picture, severity: int, rng: RandomState, textures: FrostTextures) -> Picture:
    n = len(image)
    weight = at("FROST", n, severity)
    picture = textures.pictures[rng.randint(len(textures.pictures))]
    if scale := constants.FROST_SCALE.get(n):
        picture = cv2.resize(picture, None, fx=scale, fy=scale)
    row = rng.randint(picture.shape[0] - n)
    column = rng.randint(picture.shape[1] - n)
    mix = weight.image * image + weight.frost * picture[row : row + n, column : column + n]
    return np.clip(mix, 0, 255).astype(np.uint8)


def fog(image: Picture, severity: int, rng: RandomState) -> Picture:
    c = at("FOG", len(image), severity)
    n = at_224.FOG_SIDE if len(image) == IMAGENET_SIZE else len(image)
    field, width = np.zeros((n, n)), 100.0
    for step in (n >> level for level in range(n.bit_length() - 1)):
        half, k = step // 2, n // step
        shifts = [width * rng.uniform(-width, width, (k, k)) for _ in range(3)]
        # The mean of the four points half a step away diagonally, then along the axes, twice.
        diagonal = [np.roll(field, (a, b), (0, 1)) for a in (half, -half) for b in (half, -half)]
        field[half::step, half::step] = sum(diagonal)[half::step, half::step] / 4 + shifts[0]
        straight = [np.roll(field, by, axis) for axis in (0, 1) for by in (half, -half)]
        field[::step, half::step] = sum(straight)[::step, half::step] / 4 + shifts[1]
        field[half::step, ::step] = sum(straight)[half::step, ::step] / 4 + shifts[2]
        width /= c.decay
    field = ((field - field.min()) / np.ptp(field))[: len(image), : len(image)]
    x = image / 255
    return levels((x + c.strength * field[..., None]) * x.max() / (x.max() + c.strength))


def brightness(image: Picture, severity: int, rng: RandomState) -> Picture:
    hsv = rgb_to_hsv(image / 255)
    hsv[..., 2] = np.minimum(hsv[..., 2] + at("BRIGHTNESS", len(image), severity), 1)
    return levels(hsv_to_rgb(hsv))


def saturate(image: Picture, severity: int, rng: RandomState) -> Picture:
    factor, offset = at("SATURATE", len(image), severity)
    hsv = rgb_to_hsv(image / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + offset, 0, 1)
    return levels(hsv_to_rgb(hsv))


def contrast(image: Picture, severity: int, rng: RandomState) -> Picture:
    x = image / 255
    mean = x.mean(axis=(0, 1))
    return levels((x - mean) * at("CONTRAST", len(image), severity) + mean)


def elastic_transform(image: Picture, severity: int, rng: RandomState) -> Picture:
    """With SciPy's present border, ``mirror="scipy1.6"``."""
    n = len(image)
    c = at("ELASTIC", n, severity)
    a, b = n // 2 + n // 3, n // 2 - n // 3
    old = np.array([[a, a], [a, b], [b, b]], dtype=np.float32)
    new = old + rng.uniform(-c.jitter, c.jitter, (3, 2)).astype(np.float32)
    inverse = cv2.invertAffineTransform(cv2.getAffineTransform(old, new))
    y, x = np.indices((n, n))
    right, down = (
        (np.rint((m[1] * y + m[2]) * 1024) + np.rint(m[0] * x * 1024) + 16) // 32 / 32 for m in inverse
    )
    fields = rng.uniform(-1, 1, (2, n, n))
    v = sampled((image / 255).astype(np.float32), down, right, "mirror")
    if c.amplitude:
        smooth = [ndimage.gaussian_filter(field, c.sigma, truncate=3) * c.amplitude for field in fields]
        dx, dy = (field.astype(np.float32) for field in smooth)
        v = sampled(v, y + dy, x + dx, "reflect")
    return levels(v)


def sampled(x: Plane, rows: Plane, columns: Plane, mode: str) -> Plane:
    planes = [ndimage.map_coordinates(x[..., k], (rows, columns), order=1, mode=mode) for k in range(3)]
    return np.stack(planes, axis=-1)


def pixelate(image: Picture, severity: int, rng: RandomState) -> Picture:
    k, n = at("PIXELATE", len(image), severity), len(image)
    small = Image.fromarray(image).resize((k, k), Image.Resampling.BOX)
    return np.asarray(small.resize((n, n), Image.Resampling.BOX))


def jpeg_compression(image: Picture, severity: int, rng: RandomState) -> Picture:
    code = io.BytesIO()
    Image.fromarray(image).save(code, "JPEG", quality=at("JPEG_QUALITY", len(image), severity))
    return np.asarray(Image.open(code))


def spatter(image: Picture, severity: int, rng: RandomState) -> Picture:
    c = at("SPATTER", len(image), severity)
    liquid = blurred(rng.normal(c.loc, c.scale, image.shape[:2]), c.sigma)
    liquid[liquid < c.threshold] = 0
    x = image.astype(np.float32) / 255
    if c.mud:
        mask = blurred((liquid > c.threshold).astype(np.float32), c.strength)[..., None]
        mask[mask < 0.8] = 0
        return levels(x * (1 - mask) + mask * np.array([63, 42, 20], dtype=np.float32) / 255)
    drops = (liquid * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    relief = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    relief = cv2.filter2D(relief, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    mask = drops * cv2.blur(relief, (3, 3)).astype(np.float32)
    mask *= c.strength / max(mask.max(), 1)
    return levels(x + mask[..., None] * np.array([175, 238, 238], dtype=np.float32) / 255)


FUNCTIONS: tuple[Callable[[Picture, int, RandomState], Picture], ...] = (
    gaussian_noise,
    shot_noise,
    impulse_noise,
    defocus_blur,
    glass_blur,
    motion_blur,
    zoom_blur,
    snow,
    fog,
    brightness,
    contrast,
    elastic_transform,
    pixelate,
    jpeg_compression,
    speckle_noise,
    gaussian_blur,
    spatter,
    saturate,
)


def reference(name: str, textures: FrostTextures) -> Callable[[Picture, int, RandomState], Picture]:
    """The function of that name."""
    if name == "frost":
        return partial(frost, textures=textures)
    return next(function for function in FUNCTIONS if function.__name__ == name)
