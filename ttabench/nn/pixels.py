"""Images as networks take them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_tensor(images: NDArray[np.uint8], device: str = "cpu") -> Tensor:
    """uint8 (b, H, W, 3) → float32 (b, 3, H, W) in [0, 1], in channels-last memory format on the device."""
    x = torch.from_numpy(np.ascontiguousarray(images)).to(device)
    return x.permute(0, 3, 1, 2).float().div_(255)


def channels_last(x: Tensor) -> Tensor:
    """Images (b, 3, H, W) that a method made, in the memory format of those of the stream.

    Some networks take 1.4 times as long for another format.
    """
    return x.contiguous(memory_format=torch.channels_last)
