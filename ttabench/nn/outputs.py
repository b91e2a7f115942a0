"""What layers put out during a forward pass, seen or replaced on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

__all__ = ["on_output"]


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
