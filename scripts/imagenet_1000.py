"""1,000 photographs of ImageNet, one of each class, as a dataset of one's own for `ttabench sweep`.

FILE is an .npz file with the JPEG files of the photographs one after the other (`jpeg`, uint8), where each
begins and ends (`offsets`, n + 1), and the WordNet id of each (`wnids` at `labels`). They have 224 pixels
already. It is not published. Class folders of your own photographs go to `ttabench data generate` directly.

    OUT/imagenet-1000/            <wnid>/<number>.jpg
    OUT/imagenet-1000-c-local/    fifteen corruptions at severity 5, saved as JPEG of quality 85

Usage: python scripts/imagenet_1000.py FILE FROST OUT       FROST: the pictures published with ImageNet-C
Then:  ttabench sweep --archs efficientnet_lite/lite0 --datasets OUT/imagenet-1000-c-local …
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ttabench.corruptions.names import CORRUPTIONS
from ttabench.data.own.generate_corrupted import generate

NAME = "imagenet-1000"
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("file", "frost", "out"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    print(make(args.file, args.frost, args.out))


if __name__ == "__main__":
    main()
