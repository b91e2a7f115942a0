"""A picture of a dataset: one test image, clean and under each corruption."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ttabench.corruptions.corruption_names import NATURAL, NO_SEVERITY, SEVERITIES
from ttabench.data.balanced_subset import undrawn
from ttabench.data.dataset import Dataset, Labelled
from ttabench.data.on_disk import OnDisk
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.own_corruption_folders import OwnImageFolders
from ttabench.errors import UserError, counted
from ttabench.system.progress import OnProgress, silent

PER_ROW = 5
SIDE = 128  # pixels at least; smaller images are enlarged by a whole number, so that each pixel stays one
LINE = 18  # pixels of a line of text
GAP = 10
MANY = 10_000  # images; those of a folder are all decoded before one is shown

Panel = tuple[str, NDArray[np.uint8] | None]  # a caption, and (H, W, 3); None: not there


def picture(
    data: Dataset, image: int = 0, severity: int | None = None, on_progress: OnProgress = silent
) -> Image.Image:
    """The test image number `image`, clean and under each corruption of `data`, with captions.

    severity   of the corruptions; 0: a row for each corruption, with all severities; None: the highest.
               A natural shift has other images than the clean set, so some of its images are shown.

    Raises UserError for an image or a severity that is not there.
    """
    if data.shifted_count() > MANY and len(data.corruptions) > 1 and data.image_size > 64:
        raise UserError(
            f"{data.name} has {data.shifted_count():,} images of each corruption, and all would be decoded; "
            f"name a part of them, such as {data.name}[1000]."
        )
    if data.corruptions == (NATURAL,):
        return _natural(data)
    clean = data.test()
    if not 0 <= image < len(clean):
        raise UserError(
            f"{data.name} has {counted(len(clean), 'test image')}; expected --image from 0 to "
            f"{len(clean) - 1}."
        )
    there = {corruption: severities(data, corruption) for corruption in data.corruptions}
    known = sorted({level for levels in there.values() for level in levels})
    if not known:
        raise UserError(f"{data.name} has no corrupted images; run `ttabench data generate` first.")
    if severity not in (None, 0, *known):
        raise UserError(f"{data.name} has no severity {severity}; there: {', '.join(map(str, known))}.")
    wanted = known if severity == 0 else [severity or known[-1]]
    panels: list[Panel] = []
    for done, (corruption, levels) in enumerate(there.items()):
        on_progress(corruption, done, len(there))
        for level in wanted:
            caption = corruption.replace("_", " ") + (f" {level}" if severity == 0 else "")
            shown = data.corrupted(corruption, level) if level in levels else None
            panels.append((caption, None if shown is None else shown.images[image]))
    on_progress(data.name, len(there), len(there))
    first: Panel = ("clean", clean.images[image])
    what = f"{data.name}: test image {image} of {len(clean):,}, {_class(data, clean, image)}"
    if severity == 0:
        return _grid([first, *[("", None)] * (len(known) - 1), *panels], len(known), what)
    return _grid([first, *panels], PER_ROW, f"{what}, severity {wanted[0]}")


def _class(data: Dataset, shown: Labelled, image: int) -> str:
    """``class 0``; ``class 0 (bird)`` where the images are in class folders of the user."""
    whole, label = undrawn(data), int(shown.labels[image])
    name = f" ({whole.classes[label]})" if isinstance(whole, OwnImageFolders | DomainFolders) else ""
    return f"class {label}{name}"


def severities(data: Dataset, corruption: str) -> tuple[int, ...]:
    """The severities of a corruption that are there."""
    whole = undrawn(data)
    return whole.severities(corruption) if isinstance(whole, OnDisk) else SEVERITIES


def _natural(data: Dataset) -> Image.Image:
    shown: Labelled = data.corrupted(NATURAL, NO_SEVERITY)
    chosen = np.linspace(0, len(shown) - 1, min(len(shown), 4 * PER_ROW)).astype(int)
    panels: list[Panel] = [(_class(data, shown, i), shown.images[i]) for i in chosen]
    return _grid(panels, PER_ROW, f"{data.name}: {len(chosen)} of its {len(shown):,} images")


def _grid(panels: Sequence[Panel], columns: int, title: str) -> Image.Image:
    side = next(image.shape[0] for _, image in panels if image is not None)
    side *= -(-SIDE // side)
    rows = -(-len(panels) // columns)
    font = ImageFont.load_default(size=13)
    width = max(columns * (side + GAP) + GAP, round(font.getlength(title)) + 2 * GAP)
    sheet = Image.new("RGB", (width, LINE + 2 * GAP + rows * (side + LINE + GAP)), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), title, "black", font)
    for number, (caption, image) in enumerate(panels):
        row, column = divmod(number, columns)
        x, y = GAP + column * (side + GAP), LINE + 2 * GAP + row * (side + LINE + GAP)
        if caption:
            draw.text((x, y), caption if image is not None else f"{caption}: not there", "black", font)
        if image is not None:
            enlarged = Image.fromarray(np.ascontiguousarray(image)).resize(
                (side, side), Image.Resampling.NEAREST
            )
            sheet.paste(enlarged, (x, y + LINE))
    return sheet
