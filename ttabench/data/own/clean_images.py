"""Clean images of the user: an .npz file, or a folder of class folders of images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from ttabench.corruptions.sizes import IMAGENET_SIZE, SIZES, nearest_size
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_npz
from ttabench.data.files.image_folders import class_folders, files_in_classes, image_files, labelled_files
from ttabench.data.files.read_image import Fit, decode, image_size
from ttabench.data.files.whole_archive import check_array, check_whole
from ttabench.data.own.image_folder_checks import check_formats, check_links
from ttabench.errors import UserError, counted


def read_clean(source: Path, size: int = 0) -> Labelled:
    """Square images of 32, 64 or 224 pixels, the sizes that have published constants, and their labels.

    `size` resizes to one of these: the largest centred square, bicubic; files to 224 pixels as usual for
    ImageNet, the shorter side to 256, bilinear, and the centre of 224. Where the files have 224×224 pixels
    already, they are taken as they are, and not cropped once more. Raises UserError, also where images have
    another size and `size` is 0.
    """
    if size and size not in SIZES:
        raise UserError(f"size {size}; the corruptions have constants for 32, 64 and 224 pixels.")
    if source.is_dir():
        return _read_folders(source, size)
    if not source.is_file():
        raise UserError(f"there is no file or folder {source}; expected an .npz file or folders of images.")
    data = _open_npz(source)
    height, width = data.images.shape[1:3]
    if not size:
        _check_size(source, width, height)
    elif (height, width) != (size, size):
        return Labelled(_resized(data.images, size), data.labels)
    return data


def _open_npz(source: Path) -> Labelled:
    check_whole(source)
    check_array(source)  # one that is no .npz file is named so, if it can be read
    return open_npz(source)


def _read_folders(source: Path, size: int) -> Labelled:
    classes = class_folders(source)
    check_level(source, classes)
    check_links(source)
    check_formats(source)
    files, labels = labelled_files(source, classes)
    if not files:
        raise UserError(f"{source} has no images in class folders; expected {source}/<class>/<image>.")
    side = size
    if not size:
        side, height = _common_size(source, files)
        _check_size(source, side, height)
    images = np.empty((len(files), side, side, 3), np.uint8)
    decode(files, images, side, _fit(files, size))
    return Labelled(images, np.asarray(labels, np.int64))


def automatic_size(source: Path) -> int:
    """The size that images of another size than 32, 64 or 224 pixels are resized to; 0 where none need be.

    It is the nearest by the shorter side. Raises UserError for files of mixed sizes.
    """
    if source.is_dir():
        files = files_in_classes(source)
        if not files:
            return 0
        width, height = _common_size(source, files)
    elif source.is_file():
        height, width = _open_npz(source).images.shape[1:3]
    else:
        return 0
    return 0 if width == height and width in SIZES else nearest_size(min(width, height))


def enlarged(source: Path, size: int) -> str:
    """A sentence about images that `size` enlarges, which blurs them before they are corrupted; or ""."""
    if source.is_dir():
        files = files_in_classes(source)
        small = [(file, sides) for file in files if min(sides := image_size(file)) < size]
        first = (
            f"{len(small):,} of {len(files):,} images, such as {small[0][0]} ({_by(small[0][1])}),"
            if small
            else ""
        )
    else:
        height, width = _open_npz(source).images.shape[1:3]
        first = f"images of {_by((width, height))}" if min(width, height) < size else ""
    return first and f"{first} are enlarged to {size}×{size}, and so blurred before they are corrupted."


def cropped_again(source: Path, size: int) -> str:
    """A sentence about files that have `size` already, among others for which all are resized; or ""."""
    files = files_in_classes(source) if source.is_dir() else []
    if not files or _fit(files, size) != "imagenet":
        return ""
    of_size = [file for file in files if image_size(file) == (size, size)]
    if not of_size:
        return ""
    have = "has" if len(of_size) == 1 else "have"
    side = f"{size}×{size}"
    return (
        f"{len(of_size):,} of {counted(len(files), 'image')}, such as {of_size[0]}, {have} {side} pixels "
        "already, and others not, so all are resized and cropped. If someone has cropped these before, leave "
        "them out, or crop the others in the same way."
    )


def _by(sides: tuple[int, int]) -> str:
    return f"{sides[0]}×{sides[1]} pixels"


def _common_size(source: Path, files: Sequence[Path]) -> tuple[int, int]:
    """Width and height of the files, from their headers. Raises UserError where they have several sizes."""
    of_size: dict[tuple[int, int], Path] = {}
    for file in files:
        of_size.setdefault(image_size(file), file)
    by_area = sorted(of_size, key=lambda size: (size[0] * size[1], size))
    small, large = by_area[0], by_area[-1]
    if len(of_size) > 1:
        raise UserError(
            f"{source} has images of mixed sizes: {of_size[small]} has {small[0]}×{small[1]} pixels and "
            f"{of_size[large]} has {large[0]}×{large[1]}; name the size that all are resized to: --size 32, "
            "--size 64 or --size 224."
        )
    return small


def _fit(files: Sequence[Path], size: int) -> Fit:
    if not size:
        return "exact"
    if size != IMAGENET_SIZE:
        return "cover"
    return "exact" if all(image_size(file) == (size, size) for file in files) else "imagenet"


def check_level(source: Path, classes: Sequence[str]) -> None:
    """Raise UserError where the folder of a class has no images but folders of images, as birds/test/crow.

    The command in the error makes the test set from training images only where there are no others.
    """
    above = [source / name for name in classes if _is_above_classes(source / name)]
    if above:
        train = source / "train"
        test = next((folder for folder in above if folder != train), train)
        also = f" --train {quote(str(train))}" if train.is_dir() and train != test else ""
        raise UserError(
            f"{test} holds folders, not images; name the folder with one folder of images per class: "
            f"ttabench data generate {quote(str(test))}{also}"
        )


def _is_above_classes(folder: Path) -> bool:
    """Whether it has no images itself, but a folder of images."""
    return not image_files(folder) and any(image_files(folder / inner) for inner in class_folders(folder))


def _resized(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    from PIL import Image, ImageOps

    bicubic = Image.Resampling.BICUBIC
    return np.stack([np.asarray(ImageOps.fit(Image.fromarray(i), (size, size), bicubic)) for i in images])


def _check_size(source: Path, width: int, height: int) -> None:
    if height != width or height not in SIZES:
        raise UserError(
            f"{source} has images of {width}×{height} pixels; the corruptions have constants for 32×32, "
            "64×64 and 224×224: resize with --size 32, --size 64 or --size 224."
        )
