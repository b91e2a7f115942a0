"""Networks that are not ours, by name: what makes them, and the weights that belong to the name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError
from ttabench.models.architectures.build import build
from ttabench.models.architectures.compact_transformers import CompactTransformer
from ttabench.models.checkpoints.read_weights import read_weights
from ttabench.models.checkpoints.weights import load_weights
from ttabench.models.external import official, python_path, robustbench, timm
from ttabench.models.external.download_weights import WeightsFile

__all__ = ["Published", "construct", "fill", "is_external", "published"]


def is_external(arch: str) -> bool:
    """Whether `arch` names a network from outside rather than one of `names.MEMBERS`."""
    return "/" in arch or ":" in arch


@dataclass(frozen=True, kw_only=True)
class Published:
    """A weights file that somebody published, and what it is said to reach.

    source     whose it is, a folder's name.
    claimed    clean accuracy in percent, None where nobody states it.
    """

    file: WeightsFile
    source: str
    claimed: float | None


def published(arch: str, dataset: Dataset) -> Published | None:
    """The weights that belong to the name `arch`; None where it stands for a network alone."""
    if arch.startswith(official.PREFIX):
        there = official.checkpoint(arch, dataset)
        return Published(file=there.file, source="compact-transformers", claimed=there.claimed)
    if arch.startswith(robustbench.PREFIX):
        file, claimed = robustbench.weights_file(arch, dataset), robustbench.claimed(arch, dataset)
        return Published(file=file, source="robustbench", claimed=claimed)
    return None


def construct(arch: str, dataset: Dataset, *, pretrained: bool = False) -> Classifier:
    """The classifier that `arch` names, for this dataset, in eval mode, with random weights.

    ``resnet18``, ``cct_7_3x1`` …    ours, see `catalog.build`.
    ``package.module:callable``       called with those of num_classes, image_size and dataset (its name)
                                      that its signature has; returns a Classifier, or any module that
                                      takes pixels in [0, 1].
    ``timm/NAME``                     ``timm.create_model``, with timm's normalisation for it.
    ``robustbench/NAME``              out of RobustBench's model zoo, which normalises inside.
    ``official/NAME``                 ours, with the normalisation of a published checkpoint.

    pretrained   with the weights that timm keeps; they are downloaded where need be. Those of
                 RobustBench and the official ones are files, see `published` and `fill`.

    Raises UserError on unknown names, missing packages, another number of classes.
    """
    if arch.startswith(timm.PREFIX):
        net, mean, std = timm.network(arch, dataset, pretrained=pretrained)
        classifier = _wrap(arch, net, dataset, mean=mean, std=std)
    elif arch.startswith(robustbench.PREFIX):
        classifier = _wrap(arch, robustbench.network(arch, dataset), dataset)
    elif arch.startswith(official.PREFIX):
        there = official.checkpoint(arch, dataset)
        classifier = _ours(there.member, dataset, *there.normalisation)
    elif ":" in arch:
        made = python_path.make(arch, dataset)
        classifier = made if isinstance(made, Classifier) else _wrap(arch, made, dataset)
    elif "/" in arch:
        raise UserError(
            f"'{arch}' is no architecture; models from outside are timm/NAME, robustbench/NAME, "
            "official/NAME or module:callable."
        )
    else:
        classifier = _ours(arch, dataset, dataset.mean, dataset.std)
    if classifier.num_classes != dataset.num_classes:
        raise UserError(
            f"{arch} has {classifier.num_classes} classes, but {dataset.name} has {dataset.num_classes}."
        )
    return classifier.eval()


def fill(arch: str, classifier: Classifier, file: Path, dataset: Dataset) -> None:
    """Load a weights file into the classifier that `construct` made for `arch`.

    Raises UserError where it is of another architecture or number of classes, or no weights at all.
    """
    tensors = read_weights(file)
    own: tuple[str, ...] = ()
    if arch.startswith(robustbench.PREFIX):
        own = robustbench.CONSTANTS
        tensors = robustbench.renamed(classifier.net, tensors)
    elif isinstance(classifier.net, CompactTransformer) and classifier.net.has_fixed_positions:
        # These are computed, as the authors' own loader does, and never taken from a file.
        own = ("positional_emb",)
        tensors.pop("classifier.positional_emb", None)
    head = tensors.get(f"{classifier.last}.weight")
    if head is not None and len(head) != dataset.num_classes:
        raise UserError(f"{file} has {len(head)} classes, but {dataset.name} has {dataset.num_classes}.")
    load_weights(classifier.net, tensors, str(file), own)


def _ours(arch: str, dataset: Dataset, mean: tuple[float, ...], std: tuple[float, ...]) -> Classifier:
    return build(
        arch, dataset=dataset.name, num_classes=dataset.num_classes, image_size=dataset.image_size,
        mean=mean, std=std,
    )  # fmt: skip


def _wrap(
    arch: str,
    net: nn.Module,
    dataset: Dataset,
    mean: tuple[float, ...] = (0.0, 0.0, 0.0),
    std: tuple[float, ...] = (1.0, 1.0, 1.0),
) -> Classifier:
    try:
        return Classifier.wrap(net, dataset.image_size, mean, std)
    except UserError:
        raise
    except Exception as problem:  # whatever a stranger's network does with images of this size
        raise UserError(
            f"{arch} cannot take images of {dataset.image_size} pixels ({type(problem).__name__}: {problem})."
        ) from None
