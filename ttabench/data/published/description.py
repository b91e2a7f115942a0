"""How a published dataset and its archives are described, as plain data. Imports no numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


def zenodo(record: int, file: str) -> str:
    """The address of a file in a Zenodo record."""
    return f"https://zenodo.org/records/{record}/files/{file}?download=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One file to download and unpack.

    file     its name.
    urls     addresses, tried in this order; the checksum is the same for all.
    folder   the folder below the data root that the files go to. Leading folders inside the archive are
             dropped up to and including this name or, where `split` is set, up to the name of a
             corruption: all archives of a dataset then have one layout.
    inside   the name of that folder inside the archive, where it is not `folder`.
    packed   False: the file is not an archive and goes to the folder as it is.
    size     bytes; 0 = not published.
    md5      as published; "" = none is published.
    sha256   as published; "" = none is published.
    """

    file: str
    urls: tuple[str, ...]
    folder: str
    size: int = 0
    md5: str = ""
    sha256: str = ""
    split: bool = False
    inside: str = ""
    packed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDataset:
    """A corruption benchmark and the clean dataset it was made from.

    layout           cifar: one array per corruption, severities one after the other, and pickled clean
                     batches; cifar-bar: pickled clean batches, corrupted here on first use;
                     tiny, imagenet: folders ``<corruption>/<severity>/<wnid>/*.JPEG``;
                     cifar10.1: one array of images and one of labels, and pickled clean batches;
                     natural: folders ``<class>/*``.
    test, train      images in the clean sets, and so per corruption and severity.
    mean, std        of the training pixels in [0, 1], per channel.
    corrupted_folder, clean_folder   below the data root.
    shifted          images of a natural shift; 0 = the dataset has corruptions.
    shifted_classes  classes of a natural shift.
    by_hand          what the user must download, and where to put it; "" = nothing.
    """

    name: str
    layout: Literal["cifar", "cifar-bar", "cifar10.1", "tiny", "imagenet", "natural"]
    num_classes: int
    image_size: int
    test: int
    train: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    corrupted_folder: str
    clean_folder: str
    archives: tuple[Archive, ...]
    shifted: int = 0
    shifted_classes: int = 0
    by_hand: str = ""
