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
