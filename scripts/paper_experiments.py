"""The experiments of the quantile paper: the sweeps of scripts/paper/*.toml, and training their networks.

Each sweep fills OUT/<its name>, and `ttabench report` writes its tables there. A sweep that was stopped goes
on where it was. What stands after -- goes to `ttabench sweep`, instead of what this script would give for
the same option.

    python scripts/paper_experiments.py --list
    python scripts/paper_experiments.py --only cifar10-c,ablation
    python scripts/paper_experiments.py --scale 0.01 --out /tmp/rehearsal

With --scale below 1 this is a rehearsal for any machine: small networks of the same kinds, images of 32
pixels, this share of the images, of the corruptions and of all epochs (at least one image of each class, one
corruption and one epoch), and one seed. Its numbers mean nothing. The images are those of
the dataset if it is here, else those in the folder --images, else digits-c.
"""

from __future__ import annotations

import argparse
import io
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from golden_corruptions import read_mosaic
from real_cifar10 import read_split
from reference_results import ROOT, names_of, refuse, run, split, title, without

from ttabench.data.catalog import EMBEDDED, dataset, listing
from ttabench.data.dataset import Labelled
from ttabench.data.files.array_files import save_npz
from ttabench.errors import UserError, unknown
from ttabench.models.resolve import resolve_model, resolve_trainable
from ttabench.parse_methods import parse_method, split_list
from ttabench.sweep.grid import Grid
from ttabench.sweep.options import make_grid
from ttabench.sweep.rules import plain_grids
from ttabench.sweep.sweep_file import read_sweep_file, with_flags
from ttabench_methods.quantile import QuantilePaperConfig

SWEEPS = ROOT / "scripts" / "paper"
SMALL = {
    "resnet18": "resnet18_w16", "cct": "cct_2_3x2_32", "cvt": "cvt_2_4_32", "vit_lite": "vit_2_4_32",
    "official/cct_7_3x1_32": "cct_2_3x2_32", "official/cct_7_3x1_32_c100": "cct_2_3x2_32",
}  # fmt: skip
"""The networks of a rehearsal. (ResNet18 of width 8 crashes some CPU builds of torch in training.)"""
SIDE = 32  # pixels of its images


def sweeps(only: Sequence[str] = ()) -> list[Path]:
    """The sweep files, those named in `only` if it names any. Raises UserError."""
    files = sorted(SWEEPS.glob("*.toml"))
    names = [file.stem for file in files]
    for name in only:
        if name not in names:
            raise unknown("experiment", name, names)
    return [file for file in files if not only or file.stem in only]


def grids(file: Path, flags: Mapping[str, Any]) -> list[Grid]:
    """What a sweep file measures, with these flags, without rules that add grids."""
    return plain_grids(make_grid(with_flags(read_sweep_file(file), flags)))


def missing(names: Sequence[str]) -> list[str]:
    """What is needed for datasets that are not here, one sentence each."""
    entries = {entry.name: entry for entry in listing()}
    return [
        f"{name} is {entries[name].state}: {entries[name].note}."
        for name in dict.fromkeys(names)
        if name in entries and entries[name].state != "here"
    ]


# ---- a rehearsal


def rehearse(file: Path, scale: float, images: Path, out: Path, workers: str, extra: Sequence[str]) -> int:
    """Run a sweep file at a small size, one network at a time, into the same folder; the exit code."""
    experiment = grids(file, {})
    corruptions = list(dict.fromkeys(c for grid in experiment for c in grid.corruptions))
    corruptions = corruptions[: max(1, round(scale * len(corruptions)))]
    severities = sorted({s for grid in experiment for s in grid.severities})
    names = dict.fromkeys(name for grid in experiment for name in grid.datasets)
    made = [small_dataset(name, scale, images, out / "data", corruptions, severities) for name in names]
    archs = dict.fromkeys(SMALL[arch] for grid in experiment for arch in grid.archs)
    methods = {parse_method(text)[0] for grid in experiment for text in grid.methods}
    epochs = max(1, round(scale * QuantilePaperConfig().epochs))
    settings = [f"--set={name}.epochs={epochs}" for name in ("quantile", "quantile_paper") if name in methods]
    worst = 0
    for data, arch in itertools.product(dict.fromkeys(made), archs):
        own = {"--corruptions": ",".join(corruptions), "--seeds": "0", "--workers": workers}
        if data == EMBEDDED:
            own["--limit"] = "60"  # the others are small already
        worst |= run(
            "sweep", "--config", file, "--out", out / file.stem, "--datasets", data, "--archs", arch,
            "--checkpoint", small_network(arch, data, scale), "--extend", *settings,
            *without(own, extra), *extra,
        )  # fmt: skip
    return worst


def small_network(arch: str, data: str, scale: float) -> Path:
    """The weights of a network that was trained for this share of its recipe's epochs, at least one."""
    epochs = max(1, round(scale * resolve_trainable(arch, dataset(data)).plan.recipe.epochs))
    run("train", "--archs", arch, "--datasets", data, "--epochs", str(epochs), "--workers", "0")
    return resolve_trainable(arch, dataset(data), epochs=epochs).load().path


def small_dataset(
    name: str, scale: float, images: Path, out: Path, corruptions: Sequence[str], severities: Sequence[int]
) -> str:
    """The folder of a share of a dataset, corrupted here; the embedded dataset where there are no images."""
    clean = clean_images(name, images)
    if clean is None:
        print(f"{name}: no images here or in {images}; rehearsed on {EMBEDDED}. For the experiment itself:")
        print("\n".join(missing([name])), flush=True)
        return EMBEDDED
    base = f"{name.removesuffix('-c')}-x{scale:g}"
    out.mkdir(parents=True, exist_ok=True)
    for part, labelled in zip(("train", "test"), clean, strict=True):
        save_npz(out / f"{base}.{part}.npz", share(labelled, scale))
    run("data", "generate", out / f"{base}.test.npz", "--train", out / f"{base}.train.npz", "--name", base,
        "--size", str(SIDE), "--corruptions", ",".join(corruptions),
        "--severities", ",".join(map(str, severities)), "--root", out)  # fmt: skip
    return dataset_folder(out, base)


def dataset_folder(out: Path, base: str) -> str:
    """Where `ttabench data generate` put a dataset. It is opened once, so that workers know its name."""
    folder = str(out / f"{base}-c-local")
    dataset(folder)
    return folder


def clean_images(name: str, images: Path) -> tuple[Labelled, Labelled] | None:
    """Clean training and test images: the dataset's, else those in the folder `images`, else None."""
    try:
        data = dataset(name)
        return data.train(), data.test()
    except UserError:
        pass
    folder = images / "data" / name.removesuffix("-c")
    if not folder.is_dir():
        return None
    if name == "cifar10-c":
        return read_split(folder, "train"), read_split(folder, "test")
    if name == "cifar100-c":
        return read_mosaics(folder, "train"), read_mosaics(folder, "test")
    return split_in_two(read_jpegs(folder / "val-1000.npz"))


def read_mosaics(folder: Path, split: str) -> Labelled:
    """The "train" or "test" images of a folder of mosaics of 32 × 32 pixels."""
    images = np.concatenate([read_mosaic(path, 32) for path in sorted(folder.glob(f"{split}*.webp"))])
    with np.load(folder / "labels.npz") as labels:
        return Labelled(images, labels[split].astype(np.int64))


def read_jpegs(file: Path) -> Labelled:
    """Images (N, 64, 64, 3) from an archive of JPEG files in one array of bytes."""
    from PIL import Image

    with np.load(file) as held:
        raw, offsets, labels = held["jpeg"].tobytes(), held["offsets"], held["labels"].astype(np.int64)
    opened = [Image.open(io.BytesIO(raw[a:b])) for a, b in itertools.pairwise(offsets)]
    return Labelled(np.stack([np.asarray(image.convert("RGB")) for image in opened]), labels)


def split_in_two(labelled: Labelled) -> tuple[Labelled, Labelled]:
    """The images of each class, alternately for training and for testing."""
    turn = rank_in_class(labelled.labels) % 2
    return tuple(Labelled(labelled.images[turn == t], labelled.labels[turn == t]) for t in (0, 1))  # type: ignore[return-value]


def rank_in_class(labels: np.ndarray) -> np.ndarray:
    """For each image, how many images of its class come before it."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order])
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - starts
    return ranks


def share(labelled: Labelled, scale: float) -> Labelled:
    """The first images of each class, so many that they are `scale` of all; at least one of each class."""
    classes = len(np.unique(labelled.labels))
    each = max(1, math.ceil(scale * len(labelled) / classes))
    kept = np.flatnonzero(rank_in_class(labelled.labels) < each)
    return Labelled(np.asarray(labelled.images)[kept], labelled.labels[kept])


# ---- run


def train(experiment: Sequence[Grid], workers: str) -> None:
    """Train the networks of a sweep that are trained here; those that are trained already stay."""
    for grid in experiment:
        for name in grid.datasets:
            archs = [arch for arch in grid.archs if resolve_model(arch, dataset(name)).trainable]
            if archs:
                run("train", "--archs", ",".join(archs), "--datasets", name, "--workers", workers)


def main() -> int:
    given, extra = split(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="NAMES", help="of experiments, comma-separated")
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: a rehearsal; default 1")
    parser.add_argument("--images", type=Path, default=ROOT.parent / "shared", help="for a rehearsal")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "paper", help="default: results/paper")
    parser.add_argument("--workers", default="auto", help="as of `ttabench sweep`")
    parser.add_argument("--list", action="store_true", help="list the experiments, run nothing")
    args = parser.parse_args(given)
    if not 0 < args.scale <= 1:
        raise UserError(f"--scale {args.scale:g}: expected a share above 0, at most 1.")
    refuse(extra, {"--out": "before the --", "--config": "with --only"})
    if args.scale < 1:
        refuse(extra, dict.fromkeys(("--datasets", "--archs", "--checkpoint"), "in a run without --scale"))
    chosen, out = sweeps(split_list(args.only)), args.out.resolve()
    if args.list:
        for file in chosen:
            print(f"{file.stem:<16} {title(file)}")
        return 0
    if args.scale == 1 and (
        lacking := missing([n for f in chosen for g in grids(f, {}) for n in g.datasets])
    ):
        raise UserError("some datasets are not here.\n" + "\n".join(lacking))
    worst = 0
    for file in chosen:
        print(f"\n{file.stem}: {title(file)}", flush=True)
        if args.scale < 1:
            worst |= rehearse(file, args.scale, args.images.resolve(), out, args.workers, extra)
        else:
            if "--checkpoint" not in names_of(extra):
                train(grids(file, {}), args.workers)
            own = {} if "workers" in read_sweep_file(file) else {"--workers": args.workers}
            worst |= run("sweep", "--config", file, "--out", out / file.stem, *without(own, extra), *extra)
        run("report", out / file.stem)
    return worst


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as problem:
        sys.exit(f"{Path(__file__).name}: {problem}")
