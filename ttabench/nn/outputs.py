"""Read or replace the outputs of layers during a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from ttabench.classifier.norm_layers import norm_kind


def by_channel(layer: nn.Module, output: Tensor) -> Tensor:
    """A norm layer's output as (N, C, L): N images or tokens, C channels, L locations.

    Layer norm has its channels last, except layers for images (timm's LayerNorm2d). The result is a view if
    the output is contiguous.
    """
    if norm_kind(layer) == "layer" and type(layer).__name__ != "LayerNorm2d":
        return output.flatten(0, -2).unsqueeze(-1)
    return output.reshape(*output.shape[:2], -1)


@contextmanager
def on_output(layers: Mapping[str, nn.Module], act: Callable[[str, Tensor], Tensor | None]) -> Iterator[None]:
    """Call `act(name, output)` after each of `layers` in the block; a tensor it returns is used instead."""

    def hook(name: str) -> Callable[[nn.Module, object, Tensor], Tensor | None]:
        return lambda _layer, _inputs, output: act(name, output)

    # Hooks exist only inside the block, so that copies of a model never share one.
    handles = [layer.register_forward_hook(hook(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
