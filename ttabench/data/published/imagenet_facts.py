"""What is known of the datasets made from ImageNet: sizes, addresses, checksums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ttabench.data.published.description import Archive, PublishedDataset, zenodo

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


def _natural_imagenet(name: str, url: str, shifted: int, classes: int, **archive: Any) -> PublishedDataset:
    """A natural shift of ImageNet. Its archive is called as its address ends, where `archive` has no name."""
    whole = Archive(**({"file": url.rpartition("/")[2], "urls": (url,)} | archive))
    return replace(
        IMAGENET_C, name=name, layout="natural", corrupted_folder=whole.folder, archives=(whole,),
        shifted=shifted, shifted_classes=classes,
    )  # fmt: skip


VAISHAAL = "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main"
BERKELEY = "https://people.eecs.berkeley.edu/~hendrycks"

IMAGENET_R = _natural_imagenet(
    "imagenet-r", f"{BERKELEY}/imagenet-r.tar", 30_000, 200, folder="imagenet-r", size=2_191_079_936,
    md5="a61312130a589d0ca1a8fca1f2bd3337",
    sha256="18c6bf493b39a0d975d48e587437f562caab9c52ae6327dcfa9dd8eb54aa1b52",
)  # fmt: skip

IMAGENET_A = _natural_imagenet(
    "imagenet-a", f"{BERKELEY}/imagenet-a.tar", 7_500, 200, folder="imagenet-a", size=687_552_512,
    md5="c3e55429088dc681f30d81f4726b6595",
    sha256="3bb3632277e6ba6392ea64c02ddbf4dd2266c9caffd6bc09c9656d28f012589e",
)  # fmt: skip

IMAGENET_V2 = _natural_imagenet(
    "imagenet-v2", f"{VAISHAAL}/imagenetv2-matched-frequency.tar.gz", 10_000, 1_000,
    folder="imagenetv2-matched-frequency-format-val", size=1_264_079_360,
    sha256="f0c37fdf925916b19ea1323cd9a2208cdb6959ba2c32eef2a7fc393835c9ca7c",
)  # fmt: skip
"""The "matched frequency" set."""

IMAGENET_SKETCH = _natural_imagenet(
    "imagenet-sketch",
    "https://drive.google.com/u/0/uc?id=1Mj0i5HBthqH1p_yeXzsg22gZduvgoNeA&export=download", 50_889, 1_000,
    file="ImageNet-Sketch.zip", folder="ImageNet-Sketch", inside="sketch", size=7_593_573_012,
    sha256="4d3ce6b82a7c48aabf14aeac105eb533e75707f152cc858f55bfc022031a72ed",
)  # fmt: skip
"""Google Drive may send a web page for a file of this size: then it has to be downloaded in a browser."""

DATASETS = (TINYIMAGENET_C, IMAGENET_C, IMAGENET_V2, IMAGENET_R, IMAGENET_A, IMAGENET_SKETCH)
