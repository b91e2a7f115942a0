"""Test-time adaptation of your own network: adapt it batch by batch, or evaluate a method on images."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import index
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from ttabench.api.evaluation import Evaluation
from ttabench.api.image_size import of_size, tried_with
from ttabench.api.labelled_batches import BATCHES, labelled
from ttabench.api.moving import moved_to
from ttabench.api.names import check_seed, get_method
from ttabench.api.own_generator import OwnGenerator
from ttabench.api.pixel_check import PixelCheck
from ttabench.api.scored_images import check_label_type, check_scored
from ttabench.api.source_batches import SourceBatches
from ttabench.classifier import Classifier
from ttabench.data.dataset import Labelled
from ttabench.data.foreign import coded, foreign_of_size
from ttabench.errors import UserError, unknown, warn_of_network
from ttabench.measure.declared_source import DeclaredSource
from ttabench.measure.image_stream import Part
from ttabench.measure.scoring import evaluate as score_cell
from ttabench.measure.torch_defaults import default_modes, matrix_products
from ttabench.method import Method
from ttabench.method.settings import make_config, spell, usual_settings
from ttabench.models.checkpoints.weights import check_finite
from ttabench.models.returned_logits import as_classifier
from ttabench.models.soundness.even_threads import even_threads
from ttabench.models.soundness.gradient_flow import check_learning, gradient_problem
from ttabench.models.soundness.last_layer import check_last
from ttabench.models.soundness.noise import unchanged
from ttabench.models.soundness.norm_lookalikes import left_out, lookalikes
from ttabench.models.soundness.torch_errors import explained
from ttabench.models.soundness.usable_tensors import check_tensors
from ttabench.observe.decline import Course
from ttabench.protocol import Protocol
from ttabench.run.prepared_method import check_restorable
from ttabench.sweep.batch_rate import RATE, settings_for_batch
from ttabench.sweep.options import contamination_spelling
from ttabench.sweep.pace import no_pace

__all__ = ["Adapted", "adapt", "evaluate"]

WHOLE = ("batch_size", "epochs", "limit")
PROTOCOL_FIELDS = tuple(field.name for field in dataclasses.fields(Protocol))


class Adapted(nn.Module):
    """A network under a test-time adaptation method. Calling it adapts to a batch and returns its logits.

    >>> adapted = adapt(model, "tent", lr=1e-3)             # doctest: +SKIP
    >>> logits = adapted(x)                                 # doctest: +SKIP

    It is an ``nn.Module``. ``to``, ``cuda`` and ``cpu`` move the method with all that it has learned;
    another type than that of the network raises UserError. ``train`` and ``eval`` change nothing: the method
    decides how its layers run and which parameters learn. ``state_dict`` has the networks of the method as
    they are now, without the state of its optimiser: ``model.…``, and for example ``teacher.…``.

    Random numbers come from a generator of its own, which starts from the seed of :func:`adapt`.

    Every batch is looked at. On a GPU the host does not wait for that: the error about a wrong batch, but the
    first, comes with the next call.

    method   the method; ``method.model`` is the private copy of the network that it works on.
    """

    def __init__(self, method: Method[Any], seed: int = 0, image_size: int = 0) -> None:
        super().__init__()
        self.method = method
        self._seed = seed
        self._image_size = image_size
        self._rate_given = False
        self._generator = OwnGenerator(_device(method.model), seed)
        self._pixels = PixelCheck()
        self._follow()

    def forward(self, x: Tensor) -> Tensor:
        """Adapt to images (B, 3, H, W) in [0, 1] and return the logits (B, C) that are scored.

        A batch of no images changes nothing. Raises UserError for another shape, type or device, for pixels
        outside [0, 1] or NaN, and where the method cannot work with gradient checkpointing.
        """
        self._check(x)
        if not len(x):
            return self._no_logits(x)
        try:
            with (
                _learning(), self._generator.used(), self._of_size(x), explained(),
                even_threads(self.method.model),
            ):  # fmt: skip
                logits = self.method.adapt(_tracked(x))
        except CheckpointError:
            raise UserError(
                f"{self.method.name} does in a forward pass what gradient checkpointing does not repeat; "
                "switch checkpointing of the network off."
            ) from None
        self._follow()
        return logits

    def predict(self, x: Tensor) -> Tensor:
        """The logits (B, C) of the network as it is now, without learning. Raises as a call does."""
        self._check(x)
        if not len(x):
            return self._no_logits(x)
        with _learning(), self._generator.used(), self._of_size(x):
            return self.method.predict(_tracked(x))

    def _of_size(self, x: Tensor) -> AbstractContextManager[None]:
        return of_size(x.shape[2], x.shape[3], self._image_size)

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

    def reset(self) -> None:
        """Back to the network as it was before the first batch."""
        self._pixels.forget()
        with _learning():
            self.method.reset()
        self._follow()

    def train(self, mode: bool = True) -> Self:
        """Changes nothing but the flag `training`: the method decides how its layers run."""
        self.training = mode
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Raises UserError: the method decides which parameters learn."""
        raise UserError(
            f"{self.method.name} decides which parameters learn, and requires_grad_ would change it; "
            "leave it out, or see the settings of the method."
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
            self._generator = OwnGenerator(_device(self.method.model), self._seed)
            self._pixels = PixelCheck()
            self._follow()
        return self

    def _follow(self) -> None:
        """Let ``parameters``, ``state_dict`` … see the networks that the method has now."""
        self._modules = {
            name: each for name, each in vars(self.method).items() if isinstance(each, nn.Module)
        }

    def __repr__(self) -> str:
        return f"Adapted({self.method.name}, adapts {self.method.adapted()})"


@default_modes()
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
                A method that asks for some of the images gets a random subset, as in a sweep.
    image_size  side of the images in pixels, to try the network once.
    mean, std   per channel; what the network expects its images to be normalised with. Images are handed to
                ttabench in [0, 1].
    dataset     its name, where the method's paper has other settings for it, e.g. ``cifar100-c``.
    seed        of the method's random numbers.
    settings    of the method, e.g. ``lr=1e-3``; the others have their defaults.

    Raises UserError on an unknown method or setting, and where the method cannot run on the network.
    """
    if not isinstance(model, nn.Module):
        raise UserError(
            f"model is of type {type(model).__name__}; expected an nn.Module that ends in a linear layer."
        )
    cls = get_method(method)
    check_seed(seed)
    _check_images(image_size, mean, std)
    mean, std = (tuple(_numbers(values).ravel().tolist()) for values in (mean, std))
    if source is not None and not isinstance(source, Iterable):
        raise UserError(f"source is of type {type(source).__name__}; expected batches of source images.")
    check_tensors(model, type(model).__name__)
    check_finite(model, type(model).__name__)
    with tried_with(model, image_size), unchanged(model):
        classifier = _classifier(model, image_size, mean, std)
    if classifier.num_classes < 2:
        raise UserError(
            f"{type(model).__name__} has one output; expected one for each class, so two or more: a network "
            "for two classes with one logit z gives the logits (0, z)."
        )
    config = _config(cls, classifier, dataset, settings)
    needs = cls.needs_of(config)
    if needs.norm_layers:
        warn_of_network(method, left_out(lookalikes(classifier.net, image_size)))
    if unmet := needs.unmet(classifier.architecture()):
        raise UserError(f"{method} cannot run on {type(model).__name__}: {unmet}.")
    if needs.gradient and (problem := gradient_problem(classifier, image_size)):
        raise UserError(f"{method} cannot run on {type(model).__name__}: {problem}.")
    if needs.source_data and source is None:
        raise UserError(
            f"{method} needs source {needs.source_data}: pass source=…, batches of unlabelled source images."
        )
    try:
        adapted = Adapted(cls(classifier, config), seed, image_size)
    except (TypeError, pickle.PicklingError) as failure:
        if "pickle" not in str(failure):
            raise
        raise UserError(
            f"{type(model).__name__} cannot be copied ({failure}), and a method works on a copy."
        ) from None
    adapted._rate_given = RATE in settings
    with adapted._generator.used(), explained(), even_threads(classifier):
        images: Any = None
        if source is not None:
            given = SourceBatches(source, needs, _device(classifier), _dtype(classifier))
            images = DeclaredSource(given, needs)
        adapted.method.prepare(images)
    check_restorable(adapted.method, classifier)
    adapted._follow()
    if needs.gradient:
        with _learning():
            found = check_learning(adapted.method, image_size, type(model).__name__)
            warn_of_network(method, found.sentence)
    return adapted


@default_modes()
def evaluate(
    adapted: Adapted,
    images: ArrayLike | Iterable[Any],
    labels: ArrayLike | None = None,
    *,
    seed: int = 0,
    scored_classes: Sequence[int] = (),
    **protocol: Any,
) -> Evaluation:
    """Score a method on images as a sweep does; it starts from the network as it was before any batch.

    images    (N, H, W, 3) uint8. Or, without `labels`, batches (images, labels) such as a DataLoader gives:
              images (b, 3, H, W) in [0, 1] with pixels of 8 bits, as torchvision's ToTensor makes them, not
              normalised. All are read first: batches and order are then those of the protocol.
    labels    (N,) whole numbers 0 … C−1; only the score sees them.
    seed      of the order of the images, and of random numbers. A sweep with this seed gives the same number
              if ttabench.adapt got this seed too.
    scored_classes  the classes that predictions are chosen from, such as ``scored_classes`` of a dataset;
              () = all.
    protocol  fields of :class:`ttabench.Protocol`: batch_size, mode, order, reset …; the method's own batch
              size and mode where they are left out.

    Returns accuracy in percent, which images were right (N,), seconds, and an alarm ("" if there is none).
    Raises UserError on images, labels or a protocol that cannot be scored.
    """
    if not isinstance(adapted, Adapted):
        raise UserError(
            f"evaluate got a {type(adapted).__name__}; expected what ttabench.adapt(model, method) returns."
        )
    check_seed(seed)
    method = adapted.method
    if (dtype := _dtype(method.model)) != torch.float32:
        raise UserError(
            f"the network is {dtype}, and evaluate makes float32 images of the pixels; convert the network "
            'with model.float(), and pass precision="bfloat16" to evaluate in bfloat16.'
        )
    for name, value in protocol.items():
        if name not in PROTOCOL_FIELDS:
            raise unknown("field of a protocol", name, PROTOCOL_FIELDS)
        if name in WHOLE and type(value) is not int:
            raise UserError(f"a field of the protocol has a value of the wrong type: {name}={value!r}.")
    if stream := protocol.get("stream"):
        raise UserError(f"stream={stream!r}: a stream is made of a dataset; use ttabench.run_sweep for it.")
    own = method.native_batch_size(method.model.num_classes, protocol.get("mode", method.mode))
    fields: dict[str, Any] = {"mode": method.mode, "batch_size": own, **protocol}
    if isinstance(foreign := protocol.get("contamination"), str):
        fields["contamination"] = contamination_spelling(foreign)
    try:
        chosen = Protocol(**fields)
    except ValueError as problem:
        raise UserError(f"{problem}.") from None
    except TypeError:
        given = ", ".join(f"{name}={value!r}" for name, value in protocol.items())
        raise UserError(f"a field of the protocol has a value of the wrong type: {given}.") from None
    if chosen.reset == "continual":
        raise UserError(
            "reset continual goes on from one corruption to the next, and evaluate starts from the network "
            "as it was; use ttabench.run_sweep for it."
        )
    if chosen.pace and "pace_ratio" not in protocol:
        raise UserError(
            "pace needs pace_ratio: the time of the method per batch over that of Source. ttabench.run_sweep "
            "measures it."
        )
    if why := no_pace(type(method), chosen):
        raise UserError(f"{method.name} cannot have pace {chosen.pace:g}: {why}.")
    classes = method.model.num_classes
    if labels is None:
        data = labelled(images, seed, classes)
    else:
        data = Labelled(_array("images", images, np.uint8), _array("labels", labels, np.int64))
        check_label_type(np.asarray(labels).dtype, classes)
    check_scored(data, chosen, classes)
    scored = _scored(scored_classes, data.labels, classes)
    if not adapted._rate_given:
        warn_of_network(method.name, _other_in_a_sweep(method, own, chosen.batch_size))
    device, (_, height, width, _) = _device(method.model), data.images.shape
    foreign_of_size(chosen.contamination, height, width)
    chosen = coded(chosen)
    method.reset()
    with (
        OwnGenerator(device, seed).used(),
        of_size(height, width, adapted._image_size),
        explained(),
        matrix_products(chosen.precision, device),
        even_threads(method.model),
    ):
        course = Course()
        scored_cell = score_cell(
            method, Part(data, chosen, seed), chosen, seed, device, course.note, scored_classes=scored
        )
    adapted._follow()
    falls = course.alarm() if chosen.order == "iid" else ""
    alarm = "; ".join(filter(None, (scored_cell.alarm, falls)))
    return Evaluation(**{**vars(scored_cell), "alarm": alarm})


def _classifier(
    model: nn.Module, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> Classifier:
    if not isinstance(model, Classifier):
        return as_classifier(model, image_size, mean, std, name=type(model).__name__)
    if np.any(np.asarray(mean) != 0) or np.any(np.asarray(std) != 1):
        raise UserError("a Classifier contains its normalisation; leave out mean= and std=.")
    name = type(model.net).__name__
    classifier = as_classifier(model, image_size, name=name)
    check_last(classifier, image_size, name)
    return classifier


def _other_in_a_sweep(method: Method[Any], own: int, batch_size: int) -> str:
    """What a sweep sets at a batch size that is not the method's `own`; "" if that is what it has."""
    arch = method.model.architecture()
    changed = settings_for_batch(type(method), method.config, arch, own, batch_size)
    given = ", ".join(f"{name}={value!r}" for name, value in changed.items())
    return given and (
        f"at batch size {batch_size}, a sweep takes {given}, and evaluate keeps that of batch size {own}; "
        "pass the one that you want to ttabench.adapt"
    )


def _scored(chosen: Sequence[int], labels: NDArray[np.int64], classes: int) -> tuple[int, ...]:
    """The scored classes as whole numbers. Raises UserError where labels cannot be scored with them."""
    try:
        scored = tuple(map(index, chosen))
    except (TypeError, ValueError):
        raise UserError(f"scored_classes={chosen!r}: expected whole numbers.") from None
    if wrong := [each for each in scored if not 0 <= each < classes]:
        raise UserError(
            f"scored_classes has {wrong[0]}; the network has {classes} classes, 0 to {classes - 1}."
        )
    if len(set(scored)) != len(scored):
        raise UserError("scored_classes has a class more than once.")
    if scored and (missing := sorted(set(labels.tolist()) - set(scored))):
        raise UserError(f"labels have class {missing[0]}, which is not in scored_classes.")
    return scored


def _check_images(size: object, mean: object, std: object) -> None:
    """Raises UserError for a side, or a normalisation, that no images can have."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise UserError(f"image_size={size!r}: expected the side of the images in pixels, 1 or larger.")
    for name, values in (("mean", mean), ("std", std)):
        try:
            numbers = _numbers(values)
        except (TypeError, ValueError):
            numbers = np.empty(0)
        sound = numbers.shape in ((), (1,), (3,)) and np.isfinite(numbers).all()
        if not sound or (name == "std" and (numbers <= 0).any()):
            above = ", above 0" if name == "std" else ""
            raise UserError(f"{name}={values!r}: expected three numbers, one per channel{above}.")
    given = [np.broadcast_to(_numbers(values), 3) for values in (mean, std)]
    if given[0].max() > 1 or given[1].max() > 2:
        only_std = given[0].max() <= 1
        divided = (given[0] / (1 if only_std else 255), given[1] / 255)
        shown = [", ".join(f"{x:.4g}" for x in each) for each in divided]
        raise UserError(
            f"mean={mean!r} and std={std!r} are for pixels of 0 to 255, and images are in [0, 1]; divide "
            f"{'std' if only_std else 'both'} by 255: mean=({shown[0]}), std=({shown[1]})."
        )


def _numbers(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values, dtype=float)


def _config(cls: type[Method[Any]], classifier: Classifier, dataset: str, settings: Mapping[str, Any]) -> Any:
    base = usual_settings(cls, dataset, classifier.num_classes, classifier.architecture())
    return make_config(cls, {name: _text(value) for name, value in settings.items()}, base)


def _text(value: Any) -> str:
    """A setting as a user would type it, with every digit."""
    if value is None:
        return "none"
    return repr(float(value)) if isinstance(value, float) else spell(value)


def _array(what: str, values: Any, dtype: Any) -> NDArray[Any]:
    if isinstance(values, Tensor) and values.device.type != "cpu":
        raise UserError(f"{what} are on {values.device}; pass {what}.cpu().")
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise UserError(f"{what} do not have one shape; expected an array.") from None
    if array.dtype.kind not in "iu" or (what == "images" and array.dtype != np.uint8):
        hint = (
            "whole numbers" if what == "labels" else f"uint8: pixels of 0 to 255, (N, H, W, 3), or {BATCHES}"
        )
        raise UserError(f"{what} are {array.dtype}; expected {hint}.")
    return array.astype(dtype, copy=False)


def _learning() -> torch.inference_mode:
    """Methods learn, and keep tensors that they learn from later: also inside torch.inference_mode()."""
    return torch.inference_mode(False)


def _tracked(x: Tensor) -> Tensor:
    """`x` without the layers that it comes from: only the method learns.

    It is copied where it was made inside torch.inference_mode() and no gradient can flow through it.
    """
    return x.clone() if x.is_inference() else x.detach()


def _dtype(classifier: Classifier) -> torch.dtype:
    return next((p.dtype for p in classifier.parameters()), torch.float32)


def _device(classifier: Classifier) -> str:
    return str(next((p.device for p in classifier.parameters()), torch.device("cpu")))
