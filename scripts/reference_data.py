"""The datasets of the reference sweeps, each made in a folder where it is not there. Not a command.

The images are in a folder ../shared beside the repository, which is not published. All test images of
CIFAR-10 can be made from published files too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import imagenet_1000
import real_cifar

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.catalog import dataset
from ttabench.data.own.generate_corrupted import generate
from ttabench.errors import UserError, unknown

if TYPE_CHECKING:
    from ttabench.data.dataset import Dataset

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
ALL_10, ALL_100 = "cifar10-test-c-local", "cifar100-test-c-local"
"""All 10,000 test images of CIFAR-10 and CIFAR-100, corrupted by `ttabench data generate`."""


class Published(NamedTuple):
    """Folders of published files: the batches of CIFAR-10, and the pictures of frost of ImageNet-C."""

    cifar10: Path
    frost: Path


def make(name: str, data: Path, published: Published | None = None) -> Dataset:
    """Make a dataset in the folder `data`; from now on, it is known by its name.

    Returns the dataset whose training images its networks are trained with. Raises UserError where there are
    no images to make it from.
    """
    if name not in MAKERS:
        raise unknown("dataset of a reference sweep", name, MAKERS)
    if published:
        return _from_published(name, data, published)
    if not SHARED.is_dir():
        raise UserError(
            f"{name} is made from the images in {SHARED}, which are not there; see scripts/real_cifar.py and "
            "scripts/imagenet_1000.py. The sweeps cifar10-test-… take --cifar10 and --frost instead."
        )
    return MAKERS[name](data)


def _from_published(name: str, data: Path, published: Published) -> Dataset:
    if name != ALL_10:
        raise UserError(
            f"{name} is made from images in {SHARED}, and they are not published. "
            "With --cifar10, choose --only cifar10-test-resnet20 or cifar10-test-cct_2."
        )
    test, train = real_cifar.clean_from_batches(published.cifar10, data)
    return _corrupted(test, train, data, published.frost)


def _real_cifar10(data: Path) -> Dataset:
    return dataset(str(real_cifar.make_cifar10(SHARED, data)))


def _all_cifar10(data: Path) -> Dataset:
    real = _real_cifar10(data)
    _corrupted(data / real_cifar.TEST_10, data / real.name / "train.npz", data)
    return real  # with the same training images, and so the same classifiers


def _real_cifar100(data: Path) -> Dataset:
    return dataset(str(real_cifar.make_cifar100(SHARED, data)))


def _all_cifar100(data: Path) -> Dataset:
    real = _real_cifar100(data)
    return _corrupted(data / real.name / "test.npz", data / real_cifar.TRAIN_100, data, name="cifar100-test")


def _corrupted(test: Path, train: Path, data: Path, frost: Path | None = None, name: str = "") -> Dataset:
    """Test images under the fifteen corruptions."""
    folder = generate(
        test, name=name, root=data, train=train, corruptions=CORRUPTIONS, severities=[real_cifar.SEVERITY],
        frost=frost or SHARED / "data" / "frost",
        on_progress=lambda file, done, total: print(f"{file} {done}/{total}", flush=True),
    )  # fmt: skip
    return dataset(str(folder))


def _photographs(data: Path) -> Dataset:
    return dataset(str(_all_photographs(data)))


def _half_of_the_photographs(data: Path) -> Dataset:
    return dataset(str(imagenet_1000.make_half(_all_photographs(data))))


def _all_photographs(data: Path) -> Path:
    packed = SHARED / "imagenet" / "imagenet-1000.npz"
    if not packed.is_file():
        raise UserError(
            f"the photographs in {packed} are not there, and they are not published. With your own: "
            "ttabench data generate, and ttabench sweep with the options of the sweep file."
        )
    return imagenet_1000.make(packed, SHARED / "data" / "frost", data)


MAKERS: dict[str, Callable[[Path], Dataset]] = {
    real_cifar.REAL_10: _real_cifar10,
    ALL_10: _all_cifar10,
    real_cifar.REAL_100: _real_cifar100,
    ALL_100: _all_cifar100,
    f"{imagenet_1000.NAME}-c-local": _photographs,
    imagenet_1000.HALF: _half_of_the_photographs,
}
