"""Every corruption as two functions: its random draws, and a deterministic function of images and draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from numpy.random import Generator

from ttabench.corruptions import blur, digital, elastic, frost, glass, hsv, motion, noise, spatter, weather
from ttabench.corruptions.bar import cutout, fourier_noise, lines, sparkles, spline_blurs, warps
from ttabench.corruptions.frost_textures import FrostTextures, procedural_frost_textures
from ttabench.corruptions.layout import Images

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Corruption(Generic[D]):
    """draw(rng, count, size, severity) → draws; apply(images, draws, severity) → images, none modified."""

    draw: Callable[[Generator, int, int, int], D]
    apply: Callable[[Images, D, int], Images]


def no_draws(rng: Generator, count: int, size: int, severity: int) -> None:
    """No draws: the corruption depends on the image alone."""


DETERMINISTIC: dict[str, Corruption[None]] = {
    function.__name__: Corruption(no_draws, function)
    for function in (
        blur.defocus_blur,
        blur.zoom_blur,
        hsv.brightness,
        digital.contrast,
        digital.pixelate,
        digital.jpeg_compression,
        blur.gaussian_blur,
        hsv.saturate,
    )
}
RANDOM: dict[str, Corruption[Any]] = {
    "gaussian_noise": Corruption(noise.draw_normal, noise.gaussian_noise),
    "shot_noise": Corruption(noise.draw_bits, noise.shot_noise),
    "impulse_noise": Corruption(noise.draw_impulses, noise.impulse_noise),
    "glass_blur": Corruption(glass.draw_shifts, glass.glass_blur),
    "motion_blur": Corruption(motion.draw_angles, motion.motion_blur),
    "snow": Corruption(weather.draw_flakes, weather.snow),
    "fog": Corruption(weather.draw_turbulence, weather.fog),
    "elastic_transform": Corruption(elastic.draw_bends, elastic.elastic_transform),
    "speckle_noise": Corruption(noise.draw_normal, noise.speckle_noise),
    "spatter": Corruption(spatter.draw_liquid, spatter.spatter),
}
BAR: dict[str, Corruption[Any]] = {
    "blue_noise_sample": Corruption(fourier_noise.draw_phases, fourier_noise.blue_noise_sample),
    "brownish_noise": Corruption(fourier_noise.draw_phases_per_channel, fourier_noise.brownish_noise),
    "checkerboard_cutout": Corruption(cutout.draw_board, cutout.checkerboard_cutout),
    "inverse_sparkles": Corruption(sparkles.draw_window, sparkles.inverse_sparkles),
    "pinch_and_twirl": Corruption(warps.draw_directions, warps.pinch_and_twirl),
    "ripple": Corruption(warps.draw_waves, warps.ripple),
    "circular_motion_blur": Corruption(no_draws, spline_blurs.circular_motion_blur),
    "lines": Corruption(lines.draw_strokes, lines.lines),
    "sparkles": Corruption(sparkles.draw_stars, sparkles.sparkles),
    "transverse_chromatic_aberration": Corruption(
        spline_blurs.draw_orders, spline_blurs.transverse_chromatic_aberration
    ),
}


def get(name: str, frost_textures: FrostTextures | None = None) -> Corruption[Any]:
    """The corruption of that name; frost uses the given pictures, or else the built-in ones."""
    if name == "frost":
        textures = frost_textures or procedural_frost_textures()
        return Corruption(
            partial(frost.draw_crops, textures=textures),
            partial(frost.frost, textures=textures),
        )
    return {**DETERMINISTIC, **RANDOM, **BAR}[name]
