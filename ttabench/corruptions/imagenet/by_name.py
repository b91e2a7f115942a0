"""Every corruption of one image as two functions: its random draws, and a function of image and draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from numpy.random import Generator

from ttabench.corruptions.frost_textures import FrostTextures, procedural_frost_textures
from ttabench.corruptions.imagenet import blur, digital, elastic, glass, noise, spatter, weather
from ttabench.corruptions.layout import Images

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class ImageCorruption(Generic[D]):
    """draw(rng, severity) → draws; apply(image, draws, severity) → image; none is modified."""

    draw: Callable[[Generator, int], D]
    apply: Callable[[Images, D, int], Images]


def no_draws(rng: Generator, severity: int) -> None:
    """No draws: the corruption depends on the image alone."""


DETERMINISTIC: dict[str, ImageCorruption[None]] = {
    function.__name__: ImageCorruption(no_draws, function)
    for function in (
        blur.defocus_blur,
        blur.zoom_blur,
        digital.brightness,
        digital.contrast,
        digital.pixelate,
        digital.jpeg_compression,
        blur.gaussian_blur,
        digital.saturate,
    )
}
RANDOM: dict[str, ImageCorruption[Any]] = {
    "gaussian_noise": ImageCorruption(noise.draw_normal, noise.gaussian_noise),
    "shot_noise": ImageCorruption(noise.draw_bits, noise.shot_noise),
    "impulse_noise": ImageCorruption(noise.draw_impulses, noise.impulse_noise),
    "glass_blur": ImageCorruption(glass.draw_shifts, glass.glass_blur),
    "motion_blur": ImageCorruption(blur.draw_angle, blur.motion_blur),
    "snow": ImageCorruption(weather.draw_flakes, weather.snow),
    "fog": ImageCorruption(weather.draw_turbulence, weather.fog),
    "elastic_transform": ImageCorruption(elastic.draw_bends, elastic.elastic_transform),
    "speckle_noise": ImageCorruption(noise.draw_normal, noise.speckle_noise),
    "spatter": ImageCorruption(spatter.draw_liquid, spatter.spatter),
}


def get(name: str, frost_textures: FrostTextures | None = None) -> ImageCorruption[Any]:
    """The corruption of that name; frost uses the given pictures, or else the built-in ones."""
    if name == "frost":
        textures = frost_textures or procedural_frost_textures()
        return ImageCorruption(
            partial(weather.draw_crop, textures=textures),
            partial(weather.frost, textures=textures),
        )
    return {**DETERMINISTIC, **RANDOM}[name]
