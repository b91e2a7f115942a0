"""The interface of source classifiers: build the network, find the weights, load both."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.data.own.manifest import SUFFIX
from ttabench.errors import UserError
from ttabench.models.architectures.compact_transformers import CompactTransformer
from ttabench.models.checkpoints import cache
from ttabench.models.checkpoints.cache import Loaded
from ttabench.models.checkpoints.read_weights import read_weights, rewrapped
from ttabench.models.checkpoints.weights import load_weights
from ttabench.models.soundness.norm_lookalikes import left_out, lookalikes
from ttabench.system.progress import OnProgress, silent


class Model(ABC):
    """A source classifier for one dataset.

    name       results are stored under it.
    asked      the name that it was asked for by.
    aliases    the names under which the cache may hold its weights.
    dataset    whose classes and clean images it is for; its weights are kept under this name.
    measured   what it is measured on: `dataset`, or a draw of its images.
    trainable  whether `ttabench train` makes its weights.
    """

    trainable: ClassVar[bool] = False

    def __init__(self, name: str, dataset: Dataset) -> None:
        self.name = self.asked = name
        self.aliases: tuple[str, ...] = (name,)
        self.dataset = dataset
        self.measured = dataset

    def __str__(self) -> str:
        return f"{self.name} on {self.measured.name}"

    @abstractmethod
    def build(self) -> Classifier:
        """The classifier in eval mode, with random weights or those that its constructor loads.

        Raises UserError for unknown names, missing packages or a wrong number of classes.
        """

    @abstractmethod
    def weights(self, progress: OnProgress = silent) -> Path | None:
        """The file with its weights, downloaded if necessary; None if there is no file."""

    @abstractmethod
    def load(self, device: str = "cpu", progress: OnProgress = silent) -> Loaded:
        """The classifier with its weights; they are stored in the cache. Raises UserError without weights."""

    def load_unmeasured(self, progress: OnProgress = silent) -> Loaded:
        """As :meth:`load`, for a dry run: nothing is measured on clean images, or stored."""
        return self.load("cpu", progress)

    def load_with_warnings(
        self, device: str, progress: OnProgress = silent, *, measure: bool = True
    ) -> Loaded:
        """As :meth:`load`, and warn of what a user should know before its numbers are believed.

        measure   False: as :meth:`load_unmeasured`; what was never measured is warned of when it is.

        That is a clean accuracy that is too low, differs from the claimed one, or is better with other
        inputs; and layers that look like norm layers and do not count as such.
        """
        loaded = self.load(device, progress) if measure else self.load_unmeasured(progress)
        if text := loaded.note.get("warning"):
            warnings.warn(f"{self}: {text}", stacklevel=2)
        if not self.trainable and (
            said := left_out(lookalikes(loaded.classifier.net, self.dataset.image_size))
        ):
            warnings.warn(f"{self}: {said}.", stacklevel=2)
        return loaded

    @property
    def ready(self) -> bool:
        """Whether :meth:`load` works without training first."""
        return True

    @property
    def claimed_accuracy(self) -> float | None:
        """The clean accuracy in percent that its authors state; None if they state none."""
        return None

    def fill(self, classifier: Classifier, file: Path) -> None:
        """Load a weights file into a classifier that :meth:`build` made.

        Raises UserError if the file fits another architecture or number of classes, or holds no weights.
        """
        tensors = rewrapped(read_weights(file), classifier.net.state_dict(), str(file))
        optional: tuple[str, ...] = ()
        if isinstance(classifier.net, CompactTransformer) and classifier.net.has_fixed_positions:
            # As in the authors' loader, these are computed and not read from a file.
            optional = ("positional_emb",)
            tensors.pop("classifier.positional_emb", None)
        head = tensors.get(f"{classifier.last}.weight")
        if head is not None and len(head) != self.dataset.num_classes:
            raise self._other_classes(str(file), len(head))
        load_weights(classifier.net, tensors, str(file), optional)

    def recall(self, sha256: str) -> Loaded | None:
        """The classifier with exactly this hash; None if it is not in the cache."""
        described = cache.with_hash(self.dataset.name, self.aliases, sha256)
        return None if described is None else cache.open_described(described, self.build)

    def checked(self, classifier: Classifier) -> Classifier:
        """`classifier` in eval mode. Raises UserError if the dataset has another number of classes."""
        if classifier.num_classes != self.dataset.num_classes:
            raise self._other_classes(self.name, classifier.num_classes)
        return classifier.eval()

    def _other_classes(self, what: str, count: int) -> UserError:
        data = self.dataset
        text = f"{what} has {count} classes, but {data.name} has {data.num_classes}"
        if data.name.endswith(SUFFIX) and count > data.num_classes:
            text += (
                ": give a network of your own that ends in a new nn.Linear with the rows of these classes "
                "alone; or make the dataset again with a folder of images for each class of the network, or "
                f"from an .npz file whose labels are the network's own indices, with an image of the last, "
                f"{count - 1}"
            )
        elif data.name.endswith(SUFFIX):
            text += ": make the dataset again without the images of classes that the network does not know"
        return UserError(f"{text}.")
