"""``ttabench data``: fetch, verify, list, show and generate datasets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ttabench.errors import UserError, printable

data = typer.Typer(no_args_is_help=True, help="Fetch, verify, list, show and generate datasets.")
Root = Annotated[
    Path | None,
    Option(metavar="DIR", help="The folder with datasets.", show_default="$TTABENCH_DATA, else in the cache"),
]
Into = Annotated[
    Path | None,
    Option(
        "--root", "--out",
        metavar="DIR", help="The folder with datasets. The new one becomes a folder in it.",
        show_default="$TTABENCH_DATA, else in the cache",
    ),
]  # fmt: skip


@data.command()
def fetch(
    name: Annotated[str, Argument(metavar="NAME", help="e.g. cifar10-c")],
    root: Into = None,
    mirror: Annotated[str | None, Option(metavar="URL", help="A web folder to try first.")] = None,
    keep: Annotated[bool, Option("--keep", help="Keep the archives.")] = False,
) -> None:
    """Download, check and unpack a published dataset. An interrupted download continues."""
    from ttabench.data.fetch.fetch import fetch as run
    from ttabench.sweep.progress.display import Meter

    with Meter("bytes") as meter:
        sentences = run(name, root, meter, mirror, keep)
    for sentence in sentences:
        print(printable(sentence))


@data.command()
def verify(
    name: Annotated[str, Argument(metavar="NAME", help="A dataset's name, or the path of a -C folder.")],
    root: Root = None,
    deep: Annotated[bool, Option("--deep", help="Compare checksums and decode every image.")] = False,
) -> None:
    """Check a dataset on disk. The exit code is 1 if it must not be used."""
    from ttabench.data.verify.audit_dataset import verify as run
    from ttabench.sweep.progress.display import Meter

    with Meter("steps") as meter:
        findings = run(name, root, deep=deep, on_progress=meter)
    for finding in findings:
        print(f"{finding.level:<8} {printable(finding.text)}")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)


@data.command("list")
def list_(root: Root = None) -> None:
    """List all datasets: which are on this machine, and how large they are."""
    from ttabench.cli._table import table
    from ttabench.data.catalog import listing

    rows = [
        (e.name, e.state, f"{e.size / 1e6:,.0f} MB" if e.size else "", e.path, e.note) for e in listing(root)
    ]
    table(["dataset", "state", "on disk", "folder", "note"], rows)


@data.command()
def show(
    name: Annotated[str, Argument(metavar="NAME", help="A dataset's name, or the path of a -C folder.")],
    root: Root = None,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="The PNG file.", show_default="NAME.png, in this folder")
    ] = None,
    image: Annotated[int, Option(metavar="NUMBER", help="Which test image, from 0.", min=0)] = 0,
    severity: Annotated[
        int | None,
        Option(
            metavar="NUMBER",
            help="The severity of the corruptions; 0 = all severities, in a row for each corruption.",
            show_default="the highest",
            min=0,
            max=5,
        ),
    ] = None,
) -> None:
    """Draw one test image, clean and under each corruption, as a PNG."""
    from ttabench.data.catalog import dataset
    from ttabench.data.show import picture
    from ttabench.sweep.progress.display import Meter
    from ttabench.system.files import replacing, writing

    opened = dataset(name, root)
    path = out or Path(f"{opened.name}.png")
    if path.suffix.lower() != ".png":
        raise UserError(f"--out is {path}; expected the name of a PNG file, such as {path.stem}.png.")
    with Meter("steps") as meter:
        drawn = picture(opened, image, severity, meter)
    with writing(path, "choose another --out"), replacing(path) as part:
        drawn.save(part, "PNG")
    print(printable(str(path)))


@data.command()
def generate(
    source: Annotated[
        Path,
        Argument(
            metavar="SOURCE",
            help="A clean test set: an .npz file (images, labels), or class folders of images.",
        ),
    ],
    name: Annotated[
        str,
        Option(
            metavar="NAME",
            help="The name of the dataset.",
            show_default="the name of SOURCE; for birds/test: birds",
        ),
    ] = "",
    train: Annotated[
        Path | None, Option(metavar="SOURCE", help="The training set, in one of the same forms.")
    ] = None,
    size: Annotated[
        int,
        Option(
            metavar="PIXELS", help="Resize to 32, 64 or 224 pixels; 0 = to the nearest, if needed.", min=0
        ),
    ] = 0,
    corruptions: Annotated[
        str, Option(metavar="NAMES", help="all (the 15), extra (the 4), every (the 19), or names.")
    ] = "every",
    severities: Annotated[str, Option(metavar="NUMBERS", help="Severities from 1 to 5.")] = "1,2,3,4,5",
    seed: Annotated[int, Option(metavar="NUMBER", help="The seed of the corruptions.", min=0)] = 0,
    frost: Annotated[
        Path | None,
        Option(
            metavar="DIR", help="Folder with the published frost pictures.", show_default="built-in pictures"
        ),
    ] = None,
    jpeg: Annotated[
        int,
        Option(
            metavar="QUALITY",
            help="Compress corrupted images as JPEG with this quality, as in ImageNet-C (85); 0 = no JPEG.",
            min=0,
            max=100,
        ),
    ] = 0,
    workers: Annotated[
        int | None,
        Option(
            metavar="COUNT",
            help="Worker processes; 0 = run in this process.",
            show_default="one per core",
            min=0,
        ),
    ] = None,
    root: Into = None,
) -> None:
    """Make the -C version of a clean test set. After an interruption, the same command continues."""
    from ttabench.corruptions.sizes import IMAGENET_SIZE
    from ttabench.data.own.class_checks import classes_in_order
    from ttabench.data.own.generate_corrupted import generate as run
    from ttabench.data.own.manifest import read_manifest
    from ttabench.sweep.options_to_grid import corruption_names, whole_numbers
    from ttabench.sweep.progress.display import Meter
    from ttabench.system.files import user_path

    names, numbers = corruption_names(corruptions), whole_numbers(severities, "--severities")
    with Meter("files") as meter:
        folder = run(
            source,
            name=name,
            root=root,
            train=train,
            size=size,
            corruptions=names,
            severities=numbers,
            seed=seed,
            frost=frost,
            jpeg=jpeg,
            workers=workers,
            on_progress=meter,
        )
    if order := classes_in_order(user_path(source)):
        print(f"{printable(order)}. The outputs of a network must have this order.")
    print(f"{printable(str(folder))} is ready: {_sweep_of(folder, root, names, numbers)}")
    if not jpeg and read_manifest(folder)["image_size"] == IMAGENET_SIZE:
        print("The published images of ImageNet-C are JPEG files of quality 85; for such images: --jpeg 85.")
    if (folder / "train.npz").exists():
        print(
            "The sweep trains networks of ttabench on its training images. A small one takes minutes: "
            "--archs resnet18_w8. To train your own network: ttabench train --archs MODULE:CALLABLE."
        )
    else:
        print(
            "It has no training images: name a network with weights, as --archs MODULE:CALLABLE, or give the "
            "sweep weights with --checkpoint FILE, or run this command again with --train SOURCE."
        )


def _sweep_of(folder: Path, root: Path | None, corruptions: Sequence[str], severities: Sequence[int]) -> str:
    """A sweep that only needs what was generated; the defaults of its options are left out."""
    from ttabench.corruptions.corruption_names import CORRUPTIONS

    dataset = folder.name if root is None else str(folder)
    command = f"ttabench sweep --datasets {printable(shlex.quote(dataset))}"
    if not set(CORRUPTIONS) <= set(corruptions):
        command += f" --corruptions {','.join(corruptions)}"
    if 5 not in severities:
        command += f" --severities {','.join(map(str, severities))}"
    return command
