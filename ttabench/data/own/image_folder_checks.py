"""Checks of folders of images: what in them is not read, links to nothing, photographs that lie on a side."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ttabench.data.files.image_folders import SUFFIXES, class_folders, labelled_files
from ttabench.errors import UserError, counted

LOOKED_AT = 200  # images whose orientation is read
FORMATS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
OTHER_FORMATS = (  # of images, that are not read
    ".tif", ".tiff", ".gif", ".heic", ".heif", ".avif", ".jfif", ".jp2", ".tga", ".pgm", ".pbm", ".pnm",
    ".dng", ".cr2", ".nef", ".arw",
)  # fmt: skip
ORIENTATION, UPRIGHT = 0x0112, 1  # the tag of EXIF, and its value for images that need no turn


def other_files(source: Path) -> list[str]:
    """What is no image in a class folder, relative to `source`, sorted; hidden files are not listed.

    Files, and folders in class folders that hold images, with ``/`` at the end.
    """
    if not source.is_dir():
        return []
    found = [entry.name for entry in _visible(source) if not entry.is_dir()]
    for name in class_folders(source):
        for entry in _visible(source / name):
            if entry.is_dir():
                found += [f"{name}/{entry.name}/"] if _holds_images(entry.path) else []
            elif not (entry.is_file() and _is_image(entry.name)):
                found.append(f"{name}/{entry.name}")
    return sorted(found)


def left_out(source: Path) -> str:
    """A sentence about :func:`other_files`; "" where there are none."""
    others = other_files(source)
    folders = [name for name in others if name.endswith("/")]
    loose = [name for name in others if "/" not in name and _is_image(name)]
    unread = [
        f"{counted(len(names), what)} {where}, such as {names[0]}"
        for names, what, where in (
            (loose, "image", "beside the class folders"),
            (folders, "folder", "in class folders"),
        )
        if names
    ]
    said = ", and ".join(filter(None, [_of_formats(sorted({*others} - {*folders, *loose})), *unread]))
    alone = ": images are read only from class folders" if unread else ""
    return f"left out {said}{alone}." if said else ""


def check_formats(source: Path) -> None:
    """Raise UserError for a class folder whose images all have formats that are not read."""
    for name in class_folders(source):
        if any(_is_image(entry.name) and entry.is_file() for entry in _visible(source / name)):
            continue
        names = sorted(entry.name for entry in _visible(source / name) if entry.is_file())
        if any(map(_is_convertible, names)):
            raise UserError(f"{source / name} holds no image that is read: {_of_formats(names)}.")


def _of_formats(files: Sequence[str]) -> str:
    """``20 files that are not .jpg … or .ppm, such as a/0.tif; convert them``; "" of no files."""
    if not files:
        return ""
    images = [name for name in files if _is_convertible(name)]
    them = "it" if len(files) == 1 else "them" if len(images) == len(files) else "the images of these"
    convert = f"; convert {them}" if images else ""
    verb = "is" if len(files) == 1 else "are"
    return f"{counted(len(files), 'file')} that {verb} not {FORMATS}, such as {(images or files)[0]}{convert}"


def doubts_about(folder: Path) -> Iterator[str]:
    """Sentences about what is left out of a folder of class folders, and about images that lie on a side."""
    files, _ = labelled_files(folder, class_folders(folder))
    yield from (f"{folder}: {text}" for text in (left_out(folder), turned(files)) if text)


def check_links(source: Path) -> None:
    """Raise UserError for a link to nothing, where a class folder or an image of one may have been.

    Else the set would be smaller, or the index of every later class another one, and nothing would say so.
    """
    for folder in (source, *(source / name for name in class_folders(source))):
        for entry in _visible(folder):
            if entry.is_symlink() and not os.path.exists(entry.path):
                raise UserError(
                    f"{entry.path} is a link to {os.readlink(entry.path)}, which is not there; put it there, "
                    "or delete the link."
                )


def turned(files: Sequence[Path]) -> str:
    """A sentence about photographs that a camera noted to be turned; "" where there are none.

    Up to about `LOOKED_AT` of the files, evenly spaced, are looked at.
    """
    some = files[:: max(1, len(files) // LOOKED_AT)]
    found = [file for file in some if _orientation(file) != UPRIGHT]
    if not found:
        return ""
    verb = "has" if len(found) == 1 else "have"
    return (
        f"{len(found)} of {counted(len(some), 'image')} that were looked at, such as {found[0]}, {verb} an "
        "orientation that the camera noted (EXIF). It is not applied: turn such files first, as with mogrify "
        "-auto-orient, unless the network was trained without it, too."
    )


def _visible(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        yield from (entry for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError as problem:
        raise UserError(f"{folder} cannot be read ({problem.strerror}).") from None


def _is_convertible(name: str) -> bool:
    return name.lower().endswith(OTHER_FORMATS)


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _holds_images(folder: str) -> bool:
    return any(any(map(_is_image, names)) for _, _, names in os.walk(folder))


def _orientation(file: Path) -> int:
    from PIL import Image

    try:
        with Image.open(file) as image:
            return int(image.getexif().get(ORIENTATION, UPRIGHT))
    except Exception:  # notes may be damaged in any way; what is no image is refused where it is read
        return UPRIGHT
