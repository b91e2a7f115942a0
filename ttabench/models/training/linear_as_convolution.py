"""Linear layers computed as 1×1 convolutions, for kernels that are fixed and fast at once.

A linear layer is a matrix product of MKL. The only kernels of MKL that are the same on processors of all
makers are those for SSE2, and they are slow. Convolutions are oneDNN's, whose kernels for AVX2 can be chosen
everywhere, see :mod:`ttabench.models.training.portable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class LinearAsConvolution(TorchFunctionMode):
    """Inside this context, `linear` is a 1×1 convolution: the same sums in another order.

    Inputs of (images, features) and of (images, tokens, features) become images of 1 or `tokens` pixels with
    a channel per feature. In memory they are channels-last images already, so nothing is copied. torch.nn's
    MultiheadAttention, which calls `linear` within a function of torch, keeps MKL's products.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is F.linear:
            return _convolution(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The arguments of `torch.nn.functional.linear`, by its names."""
    if input.ndim not in (2, 3):
        return F.linear(input, weight, bias)
    images = input.reshape(len(input), 1, -1, input.shape[-1]).permute(0, 3, 1, 2)
    out = F.conv2d(images, weight[:, :, None, None], bias).permute(0, 2, 3, 1)
    return out.reshape(*input.shape[:-1], len(weight))
