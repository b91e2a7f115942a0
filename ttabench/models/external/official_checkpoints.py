"""The published checkpoints of Compact Transformers by name: ``official/cct_7_3x1_32``. Imports no torch.

Addresses and accuracies are those of the authors' repository, github.com/SHI-Labs/Compact-Transformers
(``src/cct.py`` and the tables of its README); means and standard deviations those of the training
configurations beside them. The authors publish no checksums; see `download_weights.obtain`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttabench.errors import UserError, unknown
from ttabench.models.architectures.arch_names import resolve
from ttabench.models.external.download_weights import WeightsFile

if TYPE_CHECKING:
    from ttabench.data.dataset import Dataset

PREFIX = "official/"
ADDRESS = "https://shi-labs.com/projects/cct/checkpoints"
FORMER_ADDRESS = "http://ix.cs.uoregon.edu/~alih/compact-transformers/checkpoints"

# The normalisations in the training configurations.
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100 = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
FLOWERS = ((0.4353, 0.3773, 0.2872), (0.2966, 0.2455, 0.2698))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One published file.

    name            the authors' name, with the number of epochs if they have two.
    member          our architecture, see `names.MEMBERS`.
    trained_on      the dataset, for messages.
    normalisation   mean and standard deviation per channel, of pixels in [0, 1].
    claimed         top-1 accuracy in percent on the clean test set, as the authors state it.
    """

    name: str
    member: str
    trained_on: str
    num_classes: int
    image_size: int
    normalisation: tuple[tuple[float, ...], tuple[float, ...]]
    claimed: float
    file: WeightsFile


def _file(path: str) -> WeightsFile:
    urls = (f"{ADDRESS}/{path}", f"{FORMER_ADDRESS}/{path}")
    return WeightsFile(file=path.rpartition("/")[2], urls=urls, folder="")


def _cifar(classes: int, positions: str, epochs: int, claimed: float) -> Checkpoint:
    member = f"cct_7_3x1_32{positions}"
    shorter = "_1500" if epochs == 1500 else ""  # the plain name means the longer training
    return Checkpoint(
        name=f"{member}{shorter}{'_c100' if classes == 100 else ''}", member=member,
        trained_on=f"CIFAR-{classes}", num_classes=classes, image_size=32,
        normalisation=CIFAR10 if classes == 10 else CIFAR100, claimed=claimed,
        file=_file(f"pretrained/{member}_cifar{classes}_{epochs}epochs.pth"),
    )  # fmt: skip


def _imagenet(size: int, path: str, claimed: float) -> Checkpoint:
    name = f"cct_14_7x2_{size}"
    return Checkpoint(
        name=name, member=name, trained_on="ImageNet", num_classes=1000, image_size=size,
        normalisation=IMAGENET, claimed=claimed, file=_file(path),
    )  # fmt: skip


def _flowers(name: str, size: int, path: str, claimed: float) -> Checkpoint:
    return Checkpoint(
        name=name, member=_plain(name), trained_on="Flowers-102", num_classes=102, image_size=size,
        normalisation=FLOWERS, claimed=claimed, file=_file(path),
    )  # fmt: skip


def _plain(name: str) -> str:
    """A name without the suffix that distinguishes datasets with the same architecture."""
    return re.sub("_c100$|_fl$", "", name)


PUBLISHED = (
    _cifar(10, "", 300, 96.53),
    _cifar(10, "_sine", 1500, 97.48),
    _cifar(10, "_sine", 5000, 98.00),
    _cifar(100, "", 300, 80.92),
    _cifar(100, "_sine", 1500, 82.72),
    _cifar(100, "_sine", 5000, 82.87),
    _imagenet(224, "pretrained/cct_14_7x2_224_imagenet.pth", 80.67),
    _imagenet(384, "finetuned/cct_14_7x2_384_imagenet.pth", 82.71),
    _flowers("cct_7_7x2_224_sine", 224, "pretrained/cct_7_7x2_224_flowers102.pth", 97.19),
    _flowers("cct_14_7x2_384_fl", 384, "finetuned/cct_14_7x2_384_flowers102.pth", 99.76),
)
NAMES = tuple(each.name for each in PUBLISHED)


def checkpoint(arch: str, dataset: Dataset) -> Checkpoint:
    """The published checkpoint that `arch`, ``official/NAME``, is for this dataset.

    NAME is one of `NAMES`, or an architecture as `names.resolve` takes it: ``official/cct_7`` on a dataset
    of 100 classes is the checkpoint trained on CIFAR-100. Datasets are identified by number of classes and
    image size. Raises UserError for an unknown name, or if no checkpoint fits the dataset.
    """
    wanted = arch.removeprefix(PREFIX).lower().replace("-", "_")
    names = {wanted, _member(wanted, dataset.image_size)}
    with_name = [each for each in PUBLISHED if names & {each.name, _plain(each.name)}]
    for each in with_name:
        if (each.num_classes, each.image_size) == (dataset.num_classes, dataset.image_size):
            return each
    if not with_name:
        raise unknown("official checkpoint", wanted, NAMES)
    made = " or ".join(f"{c.trained_on} ({c.num_classes} classes, {c.image_size} pixels)" for c in with_name)
    raise UserError(
        f"{arch} was trained on {made}, but {dataset.name} has {dataset.num_classes} classes and "
        f"{dataset.image_size} pixels."
    )


def _member(name: str, image_size: int) -> str:
    """The architecture that `name` means; `name` itself if there is none."""
    try:
        return resolve(name, dataset="", image_size=image_size).name
    except UserError:
        return name
