"""A method on another device, with all that it has learned."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

from ttabench.errors import UserError
from ttabench.method import Method


def moved_to(device: torch.device, method: Method[Any]) -> Method[Any]:
    """A copy of `method` with every tensor on `device`: networks, optimiser, source statistics, saved state.

    Written to memory and read back by torch, since only that reaches every tensor of a method. Raises
    UserError where the method or the network cannot be written, or the device is not there.
    """
    written = io.BytesIO()
    try:
        torch.save(method, written)
        written.seek(0)
        # Not from a file: these bytes were written two lines before.
        moved: Method[Any] = torch.load(written, map_location=device, weights_only=False)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError, AssertionError) as problem:
        raise UserError(
            f"{method.name} cannot be moved to {device} ({problem}); move the network there before "
            "ttabench.adapt."
        ) from None
    return moved
