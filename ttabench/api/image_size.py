"""What to say where a network cannot take images of a size, as many with positions or a flat layer cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ttabench.errors import UserError, first_line, out_of_memory
from ttabench.models.soundness.noise import evaluated, noise_for

COMMON = (224, 32, 64, 96, 128, 256, 299, 384, 448, 512, 28)
"""Sides of images, in pixels, that networks are made for; the first that works is named."""


@contextmanager
def tried_with(model: nn.Module, image_size: int) -> Iterator[None]:
    """In the block, an error of `model` on images of noise is a UserError that names a size it can take."""
    try:
        yield
    except UserError:
        raise
    except Exception as problem:  # a network may raise anything
        if out_of_memory(problem):
            raise
        other = _works_with(model)
        fix = "it must take RGB images (B, 3, n, n), where n is image_size="
        if other:
            fix = f"it takes {other}: pass image_size={other}"
        what = f"{type(model).__name__} cannot take images of {image_size} pixels"
        raise UserError(f"{what} ({first_line(problem)}); {fix}.") from problem


@contextmanager
def of_size(height: int, width: int, image_size: int) -> Iterator[None]:
    """In the block, an error on images of another size than a network was tried with is a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as problem:
        tried = image_size in (0, height) and height == width
        if tried or out_of_memory(problem):
            raise
        raise UserError(
            f"the network cannot take images of {width}×{height} pixels ({first_line(problem)}). It was "
            f"tried with {image_size}: resize the images to {image_size}, or pass another image_size= to "
            "ttabench.adapt."
        ) from problem


@torch.no_grad()
def _works_with(model: nn.Module) -> int:
    """The first common size that `model` takes; 0 if there is none."""
    with evaluated(model), torch.random.fork_rng(devices=[]):
        for side in COMMON:
            try:
                model(noise_for(model, 1, side, seed=0))
            except Exception:
                continue
            return side
    return 0
