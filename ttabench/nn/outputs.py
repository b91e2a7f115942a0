"""What layers put out during a forward pass, seen or replaced on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from ttabench.classifier.norm_layers import norm_kind

__all__ = ["by_channel", "on_output"]


def by_channel(layer: nn.Module, output: Tensor) -> Tensor:
    """A norm layer's output as (N, C, L), a view where it is contiguous: L the locations, N images or tokens.

    The channels of layer norm come last, unless the layer is one for images (timm's LayerNorm2d).
    """
    if norm_kind(layer) == "layer" and type(layer).__name__ != "LayerNorm2d":
        return output.flatten(0, -2).unsqueeze(-1)
    return output.reshape(*output.shape[:2], -1)


@contextmanager
def on_output(layers: Mapping[str, nn.Module], act: Callable[[str, Tensor], Tensor | None]) -> Iterator[None]:
    """Inside, `act(name, output)` is called after each of `layers`; a tensor it returns takes its place."""

    def hook(name: str) -> Callable[[nn.Module, object, Tensor], Tensor | None]:
        return lambda _layer, _inputs, output: act(name, output)

    # Hooks live for this context only, so that copies of a model never share one.
    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
