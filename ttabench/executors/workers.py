"""How many workers a sweep or a training starts."""

from __future__ import annotations

from ttabench.cores import available_cores
from ttabench.errors import UserError


def pick_workers(text: str, device: str, count: int) -> int:
    """ "auto" → one per GPU, or one per core on the CPU; 0 runs in this process. Raises UserError."""
    if text != "auto":
        try:
            number = int(text)
        except ValueError:
            number = -1
        if number < 0:
            raise UserError(f"--workers {text}: expected auto or a whole number (0 = in this process).")
        return number
    if device.startswith("cuda"):
        import torch

        return max(1, torch.cuda.device_count()) if device == "cuda" else 1
    return max(1, min(available_cores(), count))
