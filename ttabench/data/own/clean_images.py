"""Clean sets brought by the user: an .npz file, or a folder of class folders of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ttabench.corruptions.names import IMAGE_SIZES
from ttabench.data.dataset import Labelled
from ttabench.data.files.arrays import open_npz
from ttabench.data.files.image_files import class_folders, decode, labelled_files, open_size
from ttabench.errors import UserError


def read_clean(source: Path, size: int = 0) -> Labelled:
    """Square images of 32 or 64 pixels, for which there are constants, and their labels.

    `size` asks for one of them: the largest centred square, bicubic. Raises UserError, also on images
    of another size where none was asked for.
    """
    if size and size not in IMAGE_SIZES:
        raise UserError(f"size {size}; the corruptions have constants for 32 and 64 pixels.")
    if source.is_dir():
        return _read_folders(source, size)
    if not source.is_file():
        raise UserError(f"there is no file or folder {source}; expected an .npz file or folders of images.")
    found = open_npz(source)
    height, width = found.images.shape[1:3]
    if not size:
        _check_size(source, width, height)
    elif (height, width) != (size, size):
        from PIL import Image, ImageOps

        bicubic = Image.Resampling.BICUBIC
        resized = [np.asarray(ImageOps.fit(Image.fromarray(i), (size, size), bicubic)) for i in found.images]
        return Labelled(np.stack(resized), found.labels)
    return found


def _read_folders(source: Path, size: int) -> Labelled:
    files, labels = labelled_files(source, class_folders(source))
    if not files:
        raise UserError(f"{source} has no images in class folders; expected {source}/<class>/<image>.")
    width, height = open_size(files[0])
    if not size:
        _check_size(source, width, height)
    side = size or width
    images = np.empty((len(files), side, side, 3), np.uint8)
    decode(files, images, side, "cover" if size else "exact")
    return Labelled(images, np.asarray(labels, np.int64))


def _check_size(source: Path, width: int, height: int) -> None:
    if height != width or height not in IMAGE_SIZES:
        raise UserError(
            f"{source} has images of {width}×{height} pixels; the corruptions have constants for 32×32 and "
            "64×64: ask for a resized version with --size 32 or --size 64."
        )
