"""Source classifiers from outside: load, measure on clean images, warn, keep.

What is brought in is kept in the cache like what is trained here (see `checkpoints`), so that a sweep
that goes on later, or in another process, uses the same weights even if the original file changes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ttabench.classifier import Classifier, Normalize
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.fetch.download import Progress, silent
from ttabench.env import versions
from ttabench.errors import UserError, unknown
from ttabench.evaluate import clean_accuracy
from ttabench.models.checkpoints.cache import Loaded, keep, recall
from ttabench.models.checkpoints.weights import content_hash
from ttabench.models.external import official
from ttabench.models.external.download_weights import obtain
from ttabench.models.external.networks import construct, fill, is_external, published
from ttabench.models.training.plans import data_hash

__all__ = ["CLAIMS", "NORMALISATIONS", "bring"]

NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""Means and standard deviations of pixels in [0, 1] that people train with."""

CLAIMS = {each.file.file: each.claimed for each in official.PUBLISHED}
"""Clean accuracy in percent of published files under the names they were published with."""

TOLERANCE = 1.0  # points between measured and claimed accuracy, besides three standard errors
TRIED = 1000  # images on which other normalisations are tried


def bring(
    arch: str,
    dataset: Dataset,
    *,
    checkpoint: Path | None = None,
    normalize: str = "",
    claimed: float | None = None,
    device: str = "cpu",
    progress: Progress = silent,
) -> Loaded:
    """A classifier from outside, measured on the clean test images and kept in the cache.

    arch         see `bridges.construct`.
    checkpoint   weights file; without one the weights published under this name (see
                 `bridges.published`), timm's own, or those the callable comes with.
    normalize    a name out of `NORMALISATIONS`; "" = the architecture's own, for ours the dataset's.
    claimed      the clean accuracy in percent it is said to have; None = what is known of the name or,
                 in `CLAIMS`, of the file.
    progress     is told of downloads.

    `note["warning"]` of what is returned is a sentence for the user, or "". Raises UserError where
    the weights cannot be had or do not fit.
    """
    if checkpoint is None and not is_external(arch):
        raise UserError(f"{arch} comes without weights; name a checkpoint, or train it: ttabench train.")
    known = published(arch, dataset)
    classifier = construct(arch, dataset, pretrained=checkpoint is None and known is None)
    origin: dict[str, Any] = {"origin": checkpoint.name if checkpoint else arch}
    if checkpoint is None and known is not None:
        checkpoint, origin["origin_sha256"] = obtain(known.file, known.source, progress)
        origin["origin"] = f"{arch} ({known.file.urls[0]})"
    if checkpoint is not None:
        fill(arch, classifier, checkpoint, dataset)
        if claimed is None:
            claimed = known.claimed if known else CLAIMS.get(checkpoint.name)
    if normalize:
        classifier.normalize = Normalize(*_normalisation(normalize))
    test = dataset.test()
    sha256, test_hash = content_hash(classifier), data_hash(test)
    kept = recall(arch, dataset, sha256)
    if kept and kept.note.get("test_data") == test_hash and kept.note.get("claimed") == claimed:
        return kept
    accuracy = clean_accuracy(classifier.to(device), test, device)
    note: dict[str, Any] = {
        "clean_accuracy": accuracy, "claimed": claimed,
        "warning": _warning(classifier, test, accuracy, claimed, device),
        "test_images": len(test), "test_data": test_hash,
        **origin,
        "parameters": sum(p.numel() for p in classifier.parameters()), "versions": versions(),
    }  # fmt: skip
    return keep(arch, dataset, classifier.cpu(), note)


def _normalisation(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if name not in NORMALISATIONS:
        raise unknown("normalisation", name, NORMALISATIONS)
    return NORMALISATIONS[name]


def _warning(
    classifier: Classifier, test: Labelled, accuracy: float, claimed: float | None, device: str
) -> str:
    """What is odd about the clean accuracy, and whether another normalisation would explain it."""
    chance = 100 / classifier.num_classes
    error = _standard_error(accuracy, len(test))
    if claimed is not None and abs(accuracy - claimed) > TOLERANCE + 3 * error:
        text = f"clean accuracy is {accuracy:.2f} %, but {claimed:.2f} % is claimed"
    elif claimed is None and accuracy < 2 * chance + 3 * error:
        text = f"clean accuracy is {accuracy:.2f} %, little better than the {chance:.2f} % of guessing"
    else:
        return ""
    return text + _other_normalisation(classifier, test, device) + "."


def _standard_error(accuracy: float, count: int) -> float:
    """Of an accuracy in percent, in points; never taken for smaller than that of 1 or 99 %."""
    p = min(max(accuracy, 1), 99) / 100
    return 100 * math.sqrt(p * (1 - p) / count)


def _other_normalisation(classifier: Classifier, test: Labelled, device: str) -> str:
    step = max(1, len(test) // TRIED)
    some = Labelled(test.images[::step], test.labels[::step])
    own = classifier.normalize
    found: dict[str, float] = {}
    try:
        before = clean_accuracy(classifier, some, device)
        for name, (mean, std) in NORMALISATIONS.items():
            classifier.normalize = Normalize(mean, std).to(device)
            found[name] = clean_accuracy(classifier, some, device)
    finally:
        classifier.normalize = own
    best = max(found.values())
    if best <= before + 2:
        return ""
    margin = 2 * _standard_error(best, len(some))
    close = sorted((name for name in found if found[name] >= best - margin), key=lambda name: -found[name])
    options = " or ".join(f"{name} ({found[name]:.1f} %)" for name in close)
    return f"; it is {before:.1f} % on {len(some):,} of the images, where --normalize {options} does better"
