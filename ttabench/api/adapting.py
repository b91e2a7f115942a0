"""Test-time adaptation of your own network: adapt it batch by batch, or evaluate a method on images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.errors import UserError
from ttabench.method import Method
from ttabench.method_settings import make_config, spell
from ttabench.protocol import Protocol
from ttabench.registry import method as find_method
from ttabench.scoring import Evaluation
from ttabench.scoring import evaluate as score_cell
from ttabench.source import SourceTensors

__all__ = ["Adapted", "adapt", "evaluate"]


class Adapted:
    """A network under a test-time adaptation method. Calling it adapts to a batch and returns its logits.

    >>> adapted = adapt(model, "tent", lr=1e-3)             # doctest: +SKIP
    >>> logits = adapted(x)                                 # doctest: +SKIP

    method   the method; ``method.model`` is the private copy of the network that it works on.
    """

    def __init__(self, method: Method[Any]) -> None:
        self.method = method

    def __call__(self, x: Tensor) -> Tensor:
        """Adapt to images (B, 3, H, W) in [0, 1] and return the logits (B, C) that are scored."""
        return self.method.adapt(x)

    def predict(self, x: Tensor) -> Tensor:
        """The logits (B, C) of the network as it is now; nothing is learned."""
        return self.method.predict(x)

    def reset(self) -> None:
        """Back to the network as it was before the first batch."""
        self.method.reset()

    def __repr__(self) -> str:
        return f"Adapted({self.method.name}, adapts {self.method.adapted()})"


def adapt(
    model: nn.Module,
    method: str = "tent",
    *,
    source: Iterable[Any] | None = None,
    image_size: int = 32,
    mean: tuple[float, ...] = (0.0, 0.0, 0.0),
    std: tuple[float, ...] = (1.0, 1.0, 1.0),
    dataset: str = "",
    seed: int = 0,
    **settings: Any,
) -> Adapted:
    """A network of your own under a test-time adaptation method. `model` itself is never changed.

    model       any image classifier that ends in a linear layer, or a :class:`Classifier`.
    method      a registered name, see :func:`ttabench.list_methods`.
    source      for methods that need source data: an iterable of batches of source images (b, 3, H, W) in
                [0, 1], or of tuples that start with one, such as a DataLoader gives. Labels are not read.
    image_size  side of the images in pixels, to try the network once.
    mean, std   per channel; what the network expects its images to be normalised with. Images are handed to
                ttabench in [0, 1].
    dataset     its name, where the method's paper has other settings for it, e.g. ``cifar100-c``.
    settings    of the method, e.g. ``lr=1e-3``; the others are as the method's paper has them.

    Raises UserError on an unknown method or setting, and where the method cannot run on the network.
    """
    cls = find_method(method)
    if isinstance(model, Classifier):
        classifier = model
    else:
        classifier = Classifier.wrap(model, image_size, mean, std)
    config = _config(cls, classifier, dataset, settings)
    needs = cls.needs_of(config)
    if unmet := needs.unmet(classifier.architecture()):
        raise UserError(f"{method} cannot run on {type(model).__name__}: {unmet}.")
    if needs.source_data and source is None:
        raise UserError(
            f"{method} needs source {needs.source_data}: pass source=…, batches of unlabelled source images."
        )
    torch.manual_seed(seed)
    adapted = cls(classifier, config)
    images = SourceTensors(source, needs, _device(classifier)) if source is not None else None
    adapted.prepare(images)
    return Adapted(adapted)


def evaluate(
    adapted: Adapted,
    images: ArrayLike,
    labels: ArrayLike,
    *,
    seed: int = 0,
    **protocol: Any,
) -> Evaluation:
    """Score a method on images as a sweep does; it starts from the network as it was before any batch.

    images    (N, H, W, 3) uint8.
    labels    (N,) whole numbers 0 … C−1; only the score sees them.
    protocol  fields of :class:`ttabench.Protocol`: batch_size, mode, order, reset …; the method's own batch
              size and mode where they are left out.

    Returns accuracy in percent, which images were right (N,), seconds, and an alarm ("" if there is none).
    Raises UserError on a protocol that is none.
    """
    method = adapted.method
    fields: Mapping[str, Any] = {
        "mode": method.mode,
        "batch_size": method.native_batch_size(method.model.num_classes, protocol.get("mode", method.mode)),
        **protocol,
    }
    try:
        chosen = Protocol(**fields)
    except (TypeError, ValueError) as problem:
        raise UserError(f"{problem}.") from None
    if chosen.stream:
        raise UserError(f"stream {chosen.stream} is made from a dataset; use ttabench.run_sweep for it.")
    data = Labelled(_array(images, np.uint8), _array(labels, np.int64))
    method.reset()
    return score_cell(method, data, chosen, seed, _device(method.model))


def _config(cls: type[Method[Any]], classifier: Classifier, dataset: str, settings: Mapping[str, Any]) -> Any:
    base = {
        **cls.for_dataset(dataset, classifier.num_classes),
        **cls.for_architecture(classifier.architecture()),
    }
    texts = {name: "none" if value is None else spell(value) for name, value in settings.items()}
    return make_config(cls, texts, base)


def _array(values: ArrayLike, dtype: Any) -> NDArray[Any]:
    array = np.asarray(values)
    if not np.can_cast(array.dtype, dtype, "same_kind") or array.dtype.kind == "f":
        raise UserError(f"an array is {array.dtype}; expected {np.dtype(dtype).name}.")
    return array.astype(dtype, copy=False)


def _device(classifier: Classifier) -> str:
    return str(next((p.device for p in classifier.parameters()), torch.device("cpu")))
