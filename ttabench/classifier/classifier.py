"""The interface of every model: pixels in [0, 1] in, features, a linear head, logits out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ttabench.classifier.architecture import Architecture
from ttabench.classifier.norm_layers import norm_kind
from ttabench.classifier.probe import probe
from ttabench.errors import UserError


class Normalize(nn.Module):
    """(x − mean) / std per channel; x is (B, 3, H, W) in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


class Classifier(nn.Module):
    """Any image classifier whose last layer is linear, with its normalisation inside.

    net         maps normalised (B, 3, H, W) to logits (B, C).
    last        the name of the `nn.Linear` in `net` that makes the logits.
    tags        the kind of network, for methods that depend on it (see `probe.Probed` and `wrap`).
    norm_order  the names of the norm layers in `net` in the order in which they run; () if unknown.

    ``forward(x)`` = ``head(features(x))``. The features are the input of the last linear layer, so `net`
    needs no other property than this layer. `net` is never modified.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        last: str,
        mean: tuple[float, ...] = (0.0, 0.0, 0.0),
        std: tuple[float, ...] = (1.0, 1.0, 1.0),
        tags: tuple[str, ...] = (),
        norm_order: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.normalize = Normalize(mean, std)
        self.net = net
        self.last = last
        self.tags = tags
        self.norm_order = tuple(f"net.{name}" for name in norm_order)
        linear = net.get_submodule(last)
        if not isinstance(linear, nn.Linear):
            raise UserError(
                f"layer '{last}' is a {type(linear).__name__}; expected the name of the last nn.Linear."
            )
        self.normalize.to(linear.weight.device)

    @classmethod
    def wrap(
        cls,
        net: nn.Module,
        image_size: int = 32,
        mean: tuple[float, ...] = (0.0, 0.0, 0.0),
        std: tuple[float, ...] = (1.0, 1.0, 1.0),
        tags: tuple[str, ...] | None = None,
    ) -> Classifier:
        """Find the linear layer that makes the logits by running `net` on images of noise.

        The same pass shows in which order the norm layers run. If `tags` is None, it also shows the kind of
        network. Raises UserError if no linear layer's output is the network's output.
        """
        probed = probe(net, image_size, tags=tags is None)
        if probed.last is not None:
            tags = probed.tags if tags is None else tags
            return cls(net, last=probed.last, mean=mean, std=std, tags=tags, norm_order=probed.norm_order)
        raise UserError(
            f"{type(net).__name__} does not end in a linear layer, so its features cannot be found. If it "
            "has one that makes the logits: Classifier(net, last='NAME.OF.THE.LAYER') of ttabench.classifier."
        )

    @property
    def linear(self) -> nn.Linear:
        layer = self.net.get_submodule(self.last)
        assert isinstance(layer, nn.Linear)
        return layer

    @property
    def num_classes(self) -> int:
        return self.linear.out_features

    @property
    def num_features(self) -> int:
        return self.linear.in_features

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, C) of images (B, 3, H, W) in [0, 1]."""
        logits: Tensor = self.net(self.normalize(x))
        return logits

    def head(self, z: Tensor) -> Tensor:
        """Logits (B, C) of features (B, k)."""
        logits: Tensor = self.linear(z)
        return logits

    def features(self, x: Tensor) -> Tensor:
        """The input (B, k) of the last linear layer, for images (B, 3, H, W) in [0, 1]."""
        return self.features_and_logits(x)[0]

    def features_and_logits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, k) and logits (B, C) from one forward pass."""
        with self._head_input() as recorded:
            logits = self(x)
        return recorded[-1], logits

    @contextmanager
    def _head_input(self) -> Iterator[list[Tensor]]:
        recorded: list[Tensor] = []

        def record(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            recorded.append(inputs[0])

        # The hook exists for one call only, so that copies of the classifier never share one.
        hook = self.linear.register_forward_pre_hook(record)
        try:
            yield recorded
        finally:
            hook.remove()

    def architecture(self) -> Architecture:
        """Facts about the model that methods may read before they run on it."""
        kinds = {kind for m in self.modules() if (kind := norm_kind(m))}
        return Architecture(
            norm_layers=tuple(sorted(kinds)),
            tags=self.tags,
            num_classes=self.num_classes,
            num_features=self.num_features,
            parameters=sum(p.numel() for p in self.parameters()),
        )
