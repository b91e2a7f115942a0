"""1,000 photographs of ImageNet, one of each class, as datasets of one's own for `ttabench sweep`.

FILE is an .npz file with the JPEG files of the photographs one after the other (`jpeg`, uint8), where each
begins and ends (`offsets`, n + 1), and the WordNet id of each (`wnids` at `labels`). They have 224 pixels
already. It is not published. Class folders of your own photographs go to `ttabench data generate` directly.

    OUT/imagenet-1000/            <wnid>/<number>.jpg
    OUT/imagenet-1000-c-local/    fifteen corruptions at severity 5, saved as JPEG of quality 85
    OUT/imagenet-500-c-local/     a half of them as test images, corrupted as above; the other half, clean, as
                                  training images, for methods that need source images

As there is one photograph of each class, source images and test images are of different classes. A seed
decides which photographs are in which half. A network keeps its 1,000 outputs.

Usage: python scripts/imagenet_1000.py FILE FROST OUT       FROST: the pictures published with ImageNet-C
Then:  ttabench sweep --archs efficientnet_lite/lite0 --datasets OUT/imagenet-1000-c-local …
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench_suite import arguments

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import open_npz, save_npz
from ttabench.data.own.generate_corrupted import generate
from ttabench.system.files import replacing

NAME = "imagenet-1000"
HALF = "imagenet-500-c-local"
SEED = 0
SEVERITY, QUALITY = 5, 85


def unpack(file: Path, folder: Path) -> None:
    """Write the photographs into class folders. Files that are there stay."""
    with np.load(file, allow_pickle=False) as packed:
        content, offsets = packed["jpeg"].tobytes(), packed["offsets"].tolist()
        wnids = packed["wnids"][packed["labels"]].tolist()
    for number, wnid in enumerate(wnids):
        path = folder / wnid / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            path.write_bytes(content[offsets[number] : offsets[number + 1]])


def make(file: Path, frost: Path, out: Path) -> Path:
    """Write the dataset's folder and return it."""
    unpack(file, out / NAME)
    return generate(
        out / NAME, root=out, corruptions=CORRUPTIONS, severities=[SEVERITY], frost=frost, jpeg=QUALITY
    )


def halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices of the test images and of the source images: drawn by a seed, each half in order."""
    drawn = np.random.Generator(np.random.PCG64(SEED)).permutation(count)
    return np.sort(drawn[: count // 2]), np.sort(drawn[count // 2 :])


def make_half(whole: Path) -> Path:
    """Write the dataset with source images beside that of all photographs; return its folder.

    Nothing is corrupted again. Files that are there stay.
    """
    folder, clean = whole.parent / HALF, open_npz(whole / "test.npz")
    test, source = halves(len(clean))
    for name, rows in (("train.npz", source), ("test.npz", test)):
        if not (folder / name).exists():
            with replacing(folder / name) as part:
                save_npz(part, Labelled(clean.images[rows], clean.labels[rows]))
    for file in sorted(whole.glob(f"*-{SEVERITY}.npy")):
        if not (folder / file.name).exists():
            with replacing(folder / file.name) as part, part.open("wb") as out:
                np.save(out, np.load(file, mmap_mode="r", allow_pickle=False)[test])
    return folder


def main() -> None:
    parser = arguments(__doc__)
    for name in ("file", "frost", "out"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    whole = make(args.file, args.frost, args.out)
    print(whole, make_half(whole), sep="\n")


if __name__ == "__main__":
    main()
