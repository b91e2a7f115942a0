"""A source classifier that was trained elsewhere: loaded, measured on clean images, and kept in the cache.

The cache stores its weights like those of classifiers that ttabench trains. So a sweep that is continued
later, or in another process, uses the same weights even if the original file changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttabench.classifier import Classifier, Normalize
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError
from ttabench.models.checkpoints import cache
from ttabench.models.checkpoints.cache import Loaded
from ttabench.models.checkpoints.weights import check_finite, content_hash
from ttabench.models.clean_accuracy import input_warning, normalisation
from ttabench.models.external.download_weights import PublishedWeights, obtain
from ttabench.models.input_trials import predictions
from ttabench.models.model import Model
from ttabench.models.returned_logits import as_classifier, check_logits
from ttabench.models.soundness.noise_logits import noise_logits, same_logits, with_logits
from ttabench.models.training.weights_identity import data_hash
from ttabench.nn.pixels import to_tensor
from ttabench.provenance import network_code
from ttabench.system.environment import versions
from ttabench.system.progress import OnProgress, silent

REBUILT = 8  # images whose logits are compared after a network was made again


class ExternalModel(Model):
    """A classifier from elsewhere.

    normalize  the name of a normalisation, see `clean_accuracy.NORMALISATIONS`; "" = the model's own.
    """

    if_close_to_chance: ClassVar[str] = ""
    """What the warning about a clean accuracy close to chance says in addition."""

    known_code = False
    """Whether the network is one of ttabench's, which its weights alone identify."""

    def __init__(self, name: str, dataset: Dataset, *, normalize: str = "") -> None:
        super().__init__(name, dataset)
        self.normalize = normalize

    def build_pretrained(self) -> Classifier:
        """As :meth:`build`, with the pretrained weights of its package."""
        return self.build()

    def published_weights(self) -> PublishedWeights | None:
        """The file that its authors published; None if there is none. Nothing is downloaded."""
        return None

    @property
    def claimed_accuracy(self) -> float | None:
        published = self.published_weights()
        return None if published is None else published.claimed

    def weights(self, progress: OnProgress = silent) -> Path | None:
        published = self.published_weights()
        return None if published is None else obtain(published.file, published.source, progress)[0]

    def origin(self) -> dict[str, Any]:
        """Where the weights come from, for the model card."""
        if (published := self.published_weights()) is None:
            return {"origin": self.name}
        return {
            "origin": f"{self.name} ({published.file.urls[0]})",
            "origin_sha256": obtain(published.file, published.source)[1],
        }

    def prepared_otherwise(self) -> str:
        """A sentence if its pretrained weights are for images that are prepared in another way; else ""."""
        return ""

    def load(self, device: str = "cpu", progress: OnProgress = silent) -> Loaded:
        """The classifier with its weights, measured on the clean test images and stored in the cache.

        `progress` is told of the download and of the measurement, both in bytes. ``note["warning"]`` of the
        result is a sentence for the user, or "". Raises UserError if the weights are not available or do not
        fit.
        """
        return self._load(device, progress)

    def load_unmeasured(self, progress: OnProgress = silent) -> Loaded:
        return self._load(None, progress)

    def _load(self, device: str | None, progress: OnProgress) -> Loaded:
        """See :meth:`load`; without a device, :meth:`load_unmeasured`."""
        normalize = Normalize(*normalisation(self.normalize)) if self.normalize else None
        file = self.weights(progress)
        classifier = self.build_pretrained() if file is None else self.build()
        if file is not None:
            self.fill(classifier, file)
            check_logits(classifier, self.dataset.image_size, f"{self.name} with the weights {file.name}")
        if normalize is not None:
            classifier.normalize = normalize
        sha256, identity = self._identity(classifier)
        weights = cache.of_weights({"sha256": sha256, **identity})
        brought = cache.with_weights(self.dataset.name, self.aliases, weights)
        unmeasured = Loaded(
            classifier=classifier, sha256=sha256, clean_accuracy=math.nan, recipe={}, note={}, path=Path()
        )
        if device is None and not any(each.note["sha256"] == sha256 for each in brought):
            return unmeasured  # the clean images are not even read
        test = self.dataset.test()
        test_hash, claimed = data_hash(test), self.claimed_accuracy
        # The accuracy of the same weights is another one after a change of the network's code.
        measured = {"test_data": test_hash, "claimed": claimed, "code": network_code(self.name)}
        same = {"sha256": sha256, **measured}
        for each in brought:
            if all(each.note.get(name, "") == value for name, value in same.items()):
                self.as_noted(kept := cache.open_described(each, self.build))
                return kept
        if device is None:
            return unmeasured
        classifier.to(device)
        with _following(classifier, f"clean images for {self}", test.images.nbytes, progress):
            guesses = predictions(classifier, test, device)
        accuracy = 100 * float((guesses == test.labels).mean())
        with _following(classifier, f"the same images prepared in other ways for {self}", 0, progress):
            warning, close_to_chance = input_warning(classifier, test, guesses, claimed, device)
        if close_to_chance:
            warning += self.if_close_to_chance
        warning = " ".join(filter(None, (warning, self.prepared_otherwise())))
        note: dict[str, Any] = {
            "clean_accuracy": accuracy, "warning": warning, "test_images": len(test), **measured,
            **self.origin(),
            "parameters": sum(p.numel() for p in classifier.parameters()), "versions": versions(), **identity,
        }  # fmt: skip
        self._check_rebuilt(classifier.cpu(), np.array(test.images[:REBUILT]))  # writable, as torch asks
        described = cache.save_external(self.name, self.dataset.name, classifier, note)
        return cache.open_described(described, self.build)

    def recall(self, sha256: str) -> Loaded | None:
        return self.as_noted(super().recall(sha256))

    def as_noted(self, loaded: Loaded | None) -> Loaded | None:
        """`loaded`. Raises UserError if the network computes something else than when it was stored."""
        noted = loaded and loaded.note.get("noise_logits")
        if not loaded or not noted:
            return loaded
        if not same_logits(noted, noise_logits(loaded.classifier, self.dataset.image_size)):
            raise UserError(
                f"{self.name} with the weights {loaded.sha256[:12]} computes other logits than when it was "
                "measured: its code, or a value outside its weights, has changed; run the sweep again."
            )
        return loaded

    def _identity(self, classifier: Classifier) -> tuple[str, dict[str, Any]]:
        """The identity of a classifier on the CPU, and what the JSON file says about it.

        It covers the weights, and the logits on images of noise. A stored classifier with the same weights
        and the same logits, but for rounding, is the same one.
        """
        weights = content_hash(classifier)
        if self.known_code:
            return weights, {}
        logits = noise_logits(classifier, self.dataset.image_size)
        kept = [each.note for each in cache.with_weights(self.dataset.name, self.aliases, weights)]
        same = [note for note in kept if same_logits(note.get("noise_logits", ()), logits)]
        sha256 = with_logits(weights, logits)
        if same:
            sha256 = str(same[0]["sha256"])
        elif any(note["sha256"] == sha256 for note in kept):
            sha256 = with_logits(weights, logits, exact=True)
        return sha256, {"sha256": sha256, "weights_sha256": weights, "noise_logits": logits}

    @torch.no_grad()
    def _check_rebuilt(self, classifier: Classifier, images: NDArray[np.uint8]) -> None:
        """Raise UserError if the network gives other logits when it is made again with the same weights.

        Workers make it again. What is neither a parameter nor a buffer in its state dict must not be random.
        """
        with torch.random.fork_rng(devices=[]):
            rebuilt = self.build()
        rebuilt.normalize = classifier.normalize
        try:
            rebuilt.net.load_state_dict(classifier.net.state_dict())
        except RuntimeError as problem:
            raise UserError(
                f"{self.name} has other layers when it is made again: {str(problem).splitlines()[-1].strip()}"
            ) from None
        x = to_tensor(images)
        if not torch.allclose(rebuilt.eval()(x), classifier.eval()(x), rtol=1e-3, atol=1e-4):
            raise UserError(
                f"{self.name} gives other logits when it is made again with the same weights. Random values "
                "belong in parameters or buffers, so that its state dict has them."
            )

    def wrap(
        self,
        net: nn.Module,
        mean: tuple[float, ...] = (0.0, 0.0, 0.0),
        std: tuple[float, ...] = (1.0, 1.0, 1.0),
    ) -> Classifier:
        """`net` as a classifier of the dataset, on the CPU and in float32, as sweeps need it.

        Raises UserError if it cannot take images of that size, or does not return logits.
        """
        try:
            check_finite(net, self.name)
            net = net.cpu().float()
            return self.checked(as_classifier(net, self.dataset.image_size, mean, std, name=self.name))
        except UserError:
            raise
        except Exception as problem:  # a network may raise anything on images of this size
            raise UserError(
                f"{self.name} cannot take images of {self.dataset.image_size} pixels "
                f"({type(problem).__name__}: {problem})."
            ) from None


@contextmanager
def _following(classifier: nn.Module, what: str, total: int, progress: OnProgress) -> Iterator[None]:
    """In the block, tell `progress` after each batch that `classifier` is run on: `what`, done, `total`.

    Both are bytes of 8-bit pixels, as the callback is told of downloads in bytes; a total of 0 is unknown.
    """
    done = 0

    def add(_network: nn.Module, batch: tuple[Tensor, ...], _logits: Tensor) -> None:
        nonlocal done
        done += batch[0].numel()
        progress(what, done, total)

    hook = classifier.register_forward_hook(add)
    try:
        yield
    finally:
        hook.remove()
