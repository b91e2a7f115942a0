"""Put a network of your own under a test-time adaptation method."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import nn

from ttabench.api.adapted import Adapted, device_of, dtype_of, learning
from ttabench.api.image_size import tried_with
from ttabench.api.lookup import check_seed, get_method
from ttabench.api.normalisation import as_numbers, check_images
from ttabench.api.source_batches import SourceBatches
from ttabench.cell import spell
from ttabench.classifier import Classifier
from ttabench.errors import UserError, warn_of_network
from ttabench.measure.declared_source import DeclaredSource
from ttabench.measure.torch_defaults import default_kernels, default_modes
from ttabench.method import Method, Needs
from ttabench.method.settings import make_config, usual_settings
from ttabench.models.checkpoints.weights import check_finite
from ttabench.models.external.image_norms import name_image_norms
from ttabench.models.returned_logits import as_classifier
from ttabench.models.soundness.even_threads import even_threads
from ttabench.models.soundness.gradient_flow import check_learning, gradient_problem
from ttabench.models.soundness.group_norm import guard_group_norm
from ttabench.models.soundness.last_layer import check_last
from ttabench.models.soundness.noise import unchanged
from ttabench.models.soundness.norm_lookalikes import left_out, lookalikes
from ttabench.models.soundness.torch_errors import explained
from ttabench.models.soundness.usable_tensors import check_tensors, short_parameters
from ttabench.run.other_generators import seeded_generators
from ttabench.run.prepared_method import check_restorable
from ttabench.sweep.batch_rate import RATE


@default_modes()
@default_kernels()
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
    """Put a test-time adaptation method around a network of your own. `model` itself is never changed.

    model       any image classifier that ends in a linear layer, or a :class:`Classifier`.
    method      a registered name, see :func:`ttabench.list_methods`.
    source      for methods that need source data: an iterable of batches of source images (b, 3, H, W) in
                [0, 1], or of tuples that start with one, such as a DataLoader gives. Labels are not read.
                A method that asks for some of the images gets a random subset, as in a sweep.
    image_size  side of the images in pixels; the network is tried once on images of this size.
    mean, std   the normalisation per channel that the network expects. Pass images in [0, 1]: ttabench
                normalises them.
    dataset     the name of the dataset, e.g. ``cifar100-c``. Methods can have other settings for it.
    seed        the seed of the method's random numbers.
    settings    settings of the method, e.g. ``lr=1e-3``; the others have their defaults.

    Raises UserError on an unknown method or setting, and where the method cannot run on the network.
    """
    if not isinstance(model, nn.Module):
        raise UserError(
            f"model is of type {type(model).__name__}; expected an nn.Module that ends in a linear layer."
        )
    name = type(model).__name__
    cls = get_method(method)
    check_seed(seed)
    check_images(image_size, mean, std)
    if not isinstance(dataset, str):
        raise UserError(f"dataset is of type {type(dataset).__name__}; expected its name, e.g. cifar100-c.")
    mean, std = (tuple(as_numbers(values).ravel().tolist()) for values in (mean, std))
    if source is not None and not isinstance(source, Iterable):
        raise UserError(f"source is of type {type(source).__name__}; expected batches of source images.")
    check_tensors(model, name)
    check_finite(model, name)
    with tried_with(model, image_size), unchanged(model):
        classifier = _classifier(model, image_size, mean, std)
    if classifier.num_classes < 2:
        raise UserError(
            f"{name} has one output; expected one for each class, so two or more: a network "
            "for two classes with one logit z gives the logits (0, z)."
        )
    config = _config(cls, classifier, dataset, settings)
    needs = cls.needs_of(config)
    _check_needs(cls, needs, classifier, image_size, name)
    if needs.source_data and source is None:
        raise UserError(
            f"{method} needs source {needs.source_data}: pass source=…, batches of unlabelled source images."
        )
    try:
        adapted = Adapted(cls(classifier, config), seed, image_size)
    except (TypeError, pickle.PicklingError) as failure:
        if "pickle" not in str(failure):
            raise
        raise UserError(f"{name} cannot be copied ({failure}), and a method works on a copy.") from None
    name_image_norms(adapted.method.model)
    guard_group_norm(adapted.method.model)
    adapted._rate_given = RATE in settings
    with (
        adapted._generator.used(), seeded_generators(seed), explained(dtype_of(classifier)),
        even_threads(classifier),
    ):  # fmt: skip
        images: Any = None
        if source is not None:
            given = SourceBatches(source, needs, device_of(classifier), dtype_of(classifier))
            images = DeclaredSource(given, needs)
        adapted.method.prepare(images)
        if source is not None:
            adapted._source_size = given.size_read
    check_restorable(adapted.method, classifier)
    adapted._follow()
    if needs.gradient:
        with learning():
            found = check_learning(adapted.method, image_size, name)
            warn_of_network(method, found.sentence)
    warn_of_network(method, short_parameters(adapted.method.model, name))
    return adapted


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


def _check_needs(
    cls: type[Method[Any]], needs: Needs, classifier: Classifier, image_size: int, network: str
) -> None:
    """Raises UserError where the network lacks what the method needs; warns of layers that it leaves out."""
    if needs.norm_layers:
        warn_of_network(cls.name, left_out(lookalikes(classifier.net, image_size)))
    if unmet := needs.unmet(classifier.architecture()):
        raise UserError(f"{cls.name} cannot run on {network}: {unmet}.")
    if needs.gradient and (problem := gradient_problem(classifier, image_size)):
        raise UserError(f"{cls.name} cannot run on {network}: {problem}.")


def _config(cls: type[Method[Any]], classifier: Classifier, dataset: str, settings: Mapping[str, Any]) -> Any:
    base = usual_settings(cls, dataset, classifier.num_classes, classifier.architecture())
    return make_config(cls, {name: spell(value) for name, value in settings.items()}, base)
