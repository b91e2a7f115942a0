"""A method prepared from the training images of a dataset, if a reset can restore it."""

from __future__ import annotations

from typing import Any

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError
from ttabench.measure.declared_source import DeclaredSource
from ttabench.measure.prepare import prepared
from ttabench.measure.source_access import KeptSummaries, SourceImages
from ttabench.method import Method
from ttabench.method.unrestored import unrestored
from ttabench.models.external.image_norms import name_image_norms
from ttabench.models.soundness.group_norm import guard_group_norm
from ttabench.run.other_generators import seeded_generators
from ttabench.run.summary_cache import NoMemo


def prepared_method(
    cls: type[Method[Any]],
    classifier: Classifier,
    config: Any,
    seed: int,
    dataset: Dataset,
    device: str,
    access: type[SourceImages] = SourceImages,
    cache: KeptSummaries | None = None,
) -> Method[Any]:
    """A method around a classifier after `prepare`, which gets the source data that its needs declare.

    access  how the training images are read.
    cache   source summaries that are kept on disk.

    Norm layers of `classifier` are named and get hooks, see :func:`name_image_norms` and
    :func:`guard_group_norm`; it is not changed otherwise.

    Raises UserError where a reset could not restore the method.
    """
    needs = cls.needs_of(config)
    source: Any = access(lambda: dataset.train().images, needs, device, NoMemo(), cache)
    name_image_norms(classifier)
    guard_group_norm(classifier)
    with seeded_generators(seed):
        method = prepared(cls, classifier, config, seed, DeclaredSource(source, needs))
    check_restorable(method, classifier)
    return method


def check_restorable(method: Method[Any], classifier: Classifier) -> None:
    """Raise UserError where a reset of a prepared method loses something or leaves it as it is."""
    if lost := unrestored(method, classifier):
        raise UserError(f"{type(method).name}: {lost}.")
