"""Make the -C version of a clean test set: in parallel processes, resumable, every file whole."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ttabench.corruptions.any_size import check_quality
from ttabench.corruptions.corruption_names import ALL_CORRUPTIONS, KNOWN_CORRUPTIONS, SEVERITIES, VERSION
from ttabench.corruptions.engine import check_request
from ttabench.corruptions.frost_textures import load_frost_textures, procedural_frost_textures
from ttabench.corruptions.sizes import CONSTANTS
from ttabench.data.data_root import data_root
from ttabench.data.dataset import Labelled
from ttabench.data.files.postscript import refuse_postscript
from ttabench.data.own.clean_images import automatic_size, cropped_again, enlarged
from ttabench.data.own.clean_sets import read_clean_sets
from ttabench.data.own.corrupting_processes import Task, corrupted_files, number_of_processes
from ttabench.data.own.generated_folder import (
    TRAIN,
    add_to_manifest,
    alone,
    digest,
    is_unchanged,
    manifest_of_same,
    start,
)
from ttabench.data.own.manifest import SUFFIX
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.errors import UserError, printable
from ttabench.system.files import user_path
from ttabench.system.progress import OnProgress, silent

SPLITS = ("test", "val", "valid", "validation", "train")  # folders named after what they hold of a dataset
# Started first, so that no process still works on a slow one when all others are done.
SLOW = ("glass_blur", "frost", "zoom_blur", "snow", "motion_blur")


def generate(
    source: Path | str,
    *,
    name: str = "",
    root: Path | str | None = None,
    train: Path | str | None = None,
    size: int = 0,
    corruptions: Sequence[str] = ALL_CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    frost: Path | str | None = None,
    jpeg: int = 0,
    workers: int | None = None,
    on_progress: OnProgress = silent,
) -> Path:
    """Make ``<root>/<name>-c-local`` with the given corruptions × severities; returns that folder.

    source   a clean test set: .npz with `images` (N, H, W, 3) uint8 and `labels` (N,), or a folder of
             class folders of images.
    name     of the dataset; "" = the name of the file or folder, of birds/test that of birds.
    train    the training set, in one of the same forms. Training and methods that need source images
             read it.
    size     32, 64 or 224: resize to it. 0 = images of another size are resized to the nearest of these, and
             a warning says so. 32 pixels get the constants of CIFAR-10-C, 64 pixels those of Tiny
             ImageNet-C, 224 pixels those of ImageNet-C.
    frost    folder with the published frost pictures; None = the built-in pictures.
    jpeg     0, or the JPEG quality that corrupted images are saved with before they are stored as arrays.
             The published files of ImageNet-C and Tiny ImageNet-C have 85.
    workers  processes; None = one per core, 0 = this process.

    Worker processes make the same bytes on every x86-64 processor with AVX2. Elsewhere, and in this process,
    a few values of ``elastic_transform`` (about one in two million) may differ by 1, as matrix products are
    summed in another order.

    After an interruption, the same call makes the files that are missing. A folder made from other images,
    another training set, another seed or another version of the corruptions is refused. While another process
    works in the folder, also on another machine, the call waits. Raises UserError.
    """
    for what, given in (("corruptions", corruptions), ("severities", severities)):
        if not given:
            raise UserError(f"no {what} were given; name at least one.")
    for corruption in corruptions:
        for severity in severities:
            check_request(corruption, severity, seed)
    check_quality(jpeg)
    processes = number_of_processes(workers)
    refuse_postscript()
    source, train = user_path(source), None if train is None else user_path(train)
    folder = data_root(root) / _folder_name(source, name)
    frost_folder = None if frost is None else user_path(frost)
    side = size or _nearest(source)
    clean_sets = read_clean_sets(source, train, side)
    for text in (enlarged(source, side), cropped_again(source, side)) if side else ():
        if text:
            warnings.warn(printable(f"{source}: {text}"), UserWarning, stacklevel=2)
    content = _content(folder.name, clean_sets["test.npz"], seed, frost_folder)
    if jpeg:
        content["jpeg"] = jpeg
    if training_set := clean_sets.get("train.npz"):
        content[TRAIN] = digest(training_set)
    # A wrong folder is refused before anything is written into it.
    manifest_of_same(folder, content)
    tasks = [
        Task(folder, c, s, seed, frost_folder, jpeg)
        for c in sorted(corruptions, key=lambda c: (c not in SLOW, KNOWN_CORRUPTIONS.index(c)))
        for s in sorted(set(severities), reverse=True)
    ]
    with alone(folder):
        manifest = start(folder, content, clean_sets)
        todo = [task for task in tasks if not is_unchanged(task.file, folder, manifest)]
        done = len(tasks) - len(todo)
        with closing(corrupted_files(todo, min(processes, len(todo)))) as results:
            for task, sha256 in results:
                done += 1
                add_to_manifest(folder, {task.file: sha256})
                on_progress(task.file, done, len(tasks))
    return folder


def _folder_name(source: Path, name: str) -> str:
    path = source.resolve()
    if not path.suffix and path.name.lower() in SPLITS:  # birds/test is about birds
        path = path.parent
    chosen = name or (path.name if path.is_dir() else path.stem)
    plain = re.sub(r"[^a-z0-9._]+", "-", chosen.lower()).strip("-.")
    if not plain or (name and plain != name.lower()):
        another = "use" if name else "give one with --name, of"
        raise UserError(
            f"'{chosen}' cannot be the name of a dataset; {another} letters, digits, '.', '_' and '-'."
        )
    plain = plain.removesuffix(SUFFIX).removesuffix("-c")
    if plain in PUBLISHED:
        raise UserError(f"'{chosen}' is the name of a published dataset; choose another one.")
    return f"{plain}-c{SUFFIX}"


def _nearest(source: Path) -> int:
    """The size to resize to where none is given; 0 = the images have one already. A warning says so."""
    if size := automatic_size(source):
        warnings.warn(
            printable(
                f"{source}: its images have no size with published constants, so all are resized to "
                f"{size}×{size} pixels, as --size {size} does. Another one: --size 32, 64 or 224."
            ),
            UserWarning,
            stacklevel=3,
        )
    return size


def _content(name: str, test: Labelled, seed: int, frost: Path | None) -> dict[str, Any]:
    """The manifest without its files: what the folder is made from."""
    side = test.images.shape[1]
    textures = procedural_frost_textures() if frost is None else load_frost_textures(frost)
    return {
        "format": 1,
        "name": name,
        "made_from": digest(test),
        "images": len(test),
        "image_size": side,
        "constants": CONSTANTS[side],
        "corruptions": VERSION,
        "frost": textures.fingerprint,
        "seed": seed,
    }
