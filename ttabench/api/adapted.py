"""A network under a test-time adaptation method, which is adapted batch by batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from ttabench.api.image_size import of_size
from ttabench.api.logit_check import LogitCheck
from ttabench.api.moving import moved_to
from ttabench.api.own_generator import OwnGenerator
from ttabench.api.pixel_check import PixelCheck
from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.method import Method
from ttabench.models.soundness.even_threads import even_threads
from ttabench.models.soundness.torch_errors import explained


class Adapted(nn.Module):
    """A network under a test-time adaptation method. Calling it adapts to a batch and returns its logits.

    >>> adapted = adapt(model, "tent", lr=1e-3)             # doctest: +SKIP
    >>> logits = adapted(x)                                 # doctest: +SKIP

    It is an ``nn.Module``. ``to``, ``cuda`` and ``cpu`` move the method with all that it has learned; they
    raise UserError for another type than that of the network. ``train`` and ``eval`` change nothing: the
    method decides how its layers run and which parameters learn. ``state_dict`` has the networks of the
    method as they are now, without the state of its optimiser: ``model.…``, and for example ``teacher.…``.

    Random numbers come from a generator of its own, which starts from the seed of :func:`adapt`.

    The pixels and the logits of every batch are checked. On a GPU, the host does not wait for this check. So
    the error about a batch is raised at the next call; only the pixels of the first batch are waited for.

    method   the method; ``method.model`` is the private copy of the network that it works on.
    """

    def __init__(self, method: Method[Any], seed: int = 0, image_size: int = 0) -> None:
        super().__init__()
        self.method = method
        self._seed = seed
        self._image_size = image_size
        self._rate_given = False
        self._source_size: tuple[int, ...] = ()
        self._generator = OwnGenerator(device_of(method.model), seed)
        self._pixels, self._logits = PixelCheck(), LogitCheck()
        self._follow()

    def forward(self, x: Tensor) -> Tensor:
        """Adapt to images (B, 3, H, W) in [0, 1] and return the logits (B, C) that are scored.

        A batch of no images changes nothing. Raises UserError for another shape, type or device, for pixels
        outside [0, 1] or NaN, for logits that are NaN or infinite, and where the method cannot work with
        gradient checkpointing.
        """
        self._check(x)
        if not len(x):
            return self._no_logits(x)
        with self._running(x):
            logits = self.method.adapt(_tracked(x))
        self._follow()
        self._logits.look(logits, self.method.name)
        return logits

    def predict(self, x: Tensor) -> Tensor:
        """The logits (B, C) of the network as it is now, without learning. Raises as a call does."""
        self._check(x)
        if not len(x):
            return self._no_logits(x)
        with self._running(x):
            logits = self.method.predict(_tracked(x))
        self._logits.look(logits, self.method.name)
        return logits

    @contextmanager
    def _running(self, x: Tensor) -> Iterator[None]:
        """Where the method runs on images. A prediction can need gradients too: MEMO adapts to each image."""
        try:
            with (
                learning(), self._generator.used(), of_size(x.shape[2], x.shape[3], self._image_size),
                explained(dtype_of(self.method.model)), even_threads(self.method.model),
            ):  # fmt: skip
                yield
        except CheckpointError:
            raise UserError(
                f"{self.method.name} cannot work with gradient checkpointing, which repeats parts of a "
                "forward pass in another way; switch it off in the network."
            ) from None

    def _no_logits(self, x: Tensor) -> Tensor:
        """The logits (0, C) of a batch of no images, which changes nothing."""
        return x.new_empty(0, self.method.model.num_classes)

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor) or x.ndim != 4 or x.shape[1] != 3 or not x.is_floating_point():
            what = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise UserError(
                f"a batch of images is {what}; expected a tensor of floats (B, 3, H, W) in [0, 1]."
            )
        ours = next(self.method.model.parameters(), x)
        if x.device != ours.device:
            raise UserError(
                f"images are on {x.device}, the network is on {ours.device}; move one to the other."
            )
        if x.dtype != ours.dtype and not torch.is_autocast_enabled(x.device.type):
            raise UserError(f"images are {x.dtype}, the network is {ours.dtype}; convert one to the other.")
        self._pixels.look(x)
        if self._source_size and self._source_size != x.shape[2:]:
            self._warn_of_size(x)
        self._logits.settle(self.method.name)

    def _warn_of_size(self, x: Tensor) -> None:
        """Warn once of images of another size than the source images, whose statistics differ."""
        (height, width), (h, w) = self._source_size, x.shape[2:]
        self._source_size = ()
        warnings.warn(
            f"source images have {width}×{height} pixels and these images {w}×{h}: what {self.method.name} "
            "knows of the source is of another size; resize one of them.",
            UserWarning,
            stacklevel=4,
        )

    def reset(self) -> None:
        """Back to the network as it was before the first batch."""
        self._pixels.forget()
        self._logits.forget()
        with learning():
            self.method.reset()
        self._follow()

    def train(self, mode: bool = True) -> Self:
        """Changes nothing but the flag `training`: the method decides how its layers run."""
        self.training = mode
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Raises UserError: the method decides which parameters learn."""
        raise UserError(
            f"{self.method.name} decides which parameters learn, so requires_grad_ cannot be called; use the "
            "settings of the method instead."
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the method to where `fn` moves a tensor. What Module has to move or convert it calls this."""
        ours = next(self.method.model.parameters(), torch.empty(0))
        moved = fn(torch.empty(0, dtype=ours.dtype, device=ours.device))
        if moved.dtype != ours.dtype:
            raise UserError(
                f"the network is {ours.dtype}, and its method works in that type; convert the network to "
                f"{moved.dtype} before ttabench.adapt."
            )
        if moved.device != ours.device:
            self.method = moved_to(moved.device, self.method)
            self._generator = OwnGenerator(device_of(self.method.model), self._seed)
            self._pixels, self._logits = PixelCheck(), LogitCheck()
            self._follow()
        return self

    def _follow(self) -> None:
        """Let ``parameters``, ``state_dict`` … see the networks that the method has now."""
        self._modules = {
            name: each for name, each in vars(self.method).items() if isinstance(each, nn.Module)
        }

    def __repr__(self) -> str:
        return f"Adapted({self.method.name}, adapts {self.method.adapted()})"


def learning() -> torch.inference_mode:
    """Methods learn, and keep tensors that they learn from later: also inside torch.inference_mode()."""
    return torch.inference_mode(False)


def _tracked(x: Tensor) -> Tensor:
    """`x` without the layers that it comes from: only the method learns.

    It is copied where it was made inside torch.inference_mode() and no gradient can flow through it.
    """
    return x.clone() if x.is_inference() else x.detach()


def dtype_of(classifier: Classifier) -> torch.dtype:
    return next((p.dtype for p in classifier.parameters()), torch.float32)


def device_of(classifier: Classifier) -> str:
    return str(next((p.device for p in classifier.parameters()), torch.device("cpu")))
