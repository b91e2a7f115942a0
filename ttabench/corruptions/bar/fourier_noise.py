"""Noise with a given spectrum: blue noise, whose amplitude grows with frequency, and brownish noise."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from scipy import fft

from ttabench.corruptions.bar.constants import share
from ttabench.corruptions.layout import Float, Images


def draw_phases(rng: Generator, count: int, size: int, severity: int) -> Float:
    """(count, 1, size, size / 2) in 0 … 2π: the phases of half the spectrum."""
    return rng.uniform(0, 2 * np.pi, (count, 1, size, size // 2))


def draw_phases_per_channel(rng: Generator, count: int, size: int, severity: int) -> Float:
    """(count, 3, size, size / 2) in 0 … 2π."""
    return rng.uniform(0, 2 * np.pi, (count, 3, size, size // 2))


def blue_noise_sample(images: Images, phases: Float, severity: int) -> Images:
    """Pixels become black where blue noise is at most 3·share − 2.5."""
    noise = _noise(phases, lambda frequency: frequency)
    kept = noise > 3 * share("blue_noise_sample", severity) - 2.5
    return images * kept.transpose(0, 2, 3, 1)


def brownish_noise(images: Images, phases: Float, severity: int) -> Images:
    """x + 64·share·z, with z of standard deviation 1 and amplitude 1 / (frequency² + 1)."""
    noise = _noise(phases, lambda frequency: 1 / (frequency**2 + 1))
    levels = images + 64 * share("brownish_noise", severity) * noise.transpose(0, 2, 3, 1)
    return np.clip(levels, 0, 255).astype(np.uint8)


def _noise(phases: Float, amplitude: object) -> Float:
    """(N, C, n, n) with standard deviation 1 per channel, from phases (N, C, n, n/2)."""
    n = phases.shape[2]
    frequency = np.arange(n) - n / 2
    amplitudes = amplitude(np.hypot(frequency[:, None], frequency))  # type: ignore[operator]
    mirrored = np.concatenate([phases, phases[:, :, ::-1, ::-1]], axis=3)
    spectrum = np.roll(amplitudes * np.exp(1j * mirrored), (n // 2, n // 2), axis=(2, 3))
    noise = np.real(fft.ifft2(spectrum))
    return np.asarray(noise / noise.std(axis=(2, 3), keepdims=True))
