"""Checkerboard cut-out: random black fields of a rotated checkerboard become grey."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from ttabench.corruptions.bar.constants import share
from ttabench.corruptions.layout import Float, Images

GREY = 128
SMALLEST_FIELD = 0.1  # of the image's side
REACH = 4  # sides of the image that the board covers, so that every rotated pixel is on it


class Board(NamedTuple):
    """angle (N,) radians; field (N,) side of a field in pixels; uniform (N, m, m), one number per field."""

    angle: Float
    field: Float
    uniform: Float


def draw_board(rng: Generator, count: int, size: int, severity: int) -> Board:
    """A random angle, fields of 0.1 … 0.25 of the image's side, and which fields are cut out."""
    fields = int(REACH / SMALLEST_FIELD)
    angle = rng.uniform(0, 2 * np.pi, count)
    field = np.maximum(rng.uniform(SMALLEST_FIELD, 0.25, count) * size, 1)
    return Board(angle, field, rng.random((count, fields, fields)))


def checkerboard_cutout(images: Images, board: Board, severity: int) -> Images:
    """A pixel becomes grey where its field is of the board's first colour and its number is below share."""
    n = images.shape[1]
    row, column = np.arange(n)[:, None], np.arange(n)
    cos, sin, field = (v[:, None, None] for v in (np.cos(board.angle), np.sin(board.angle), board.field))
    down, right = (cos * row + sin * column) / field, (-sin * row + cos * column) / field
    # As in the generator: truncation towards 0, and negative indices that count from the end.
    fields = (REACH * n // field).astype(np.intp)
    i, j = (np.trunc(position).astype(np.intp) % fields for position in (down, right))
    uniform = board.uniform[np.arange(len(images))[:, None, None], i, j]
    first_colour = (down % 2).astype(int) == (right % 2).astype(int)
    grey = first_colour & (uniform < share("checkerboard_cutout", severity))
    return np.where(grey[..., None], np.uint8(GREY), images)
