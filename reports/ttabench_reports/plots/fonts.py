"""A small copy of Matplotlib's font.

Each PDF embeds the letters that it uses. To cut them out of the whole font takes longer than to draw.
"""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

WHOLE = "DejaVu Sans"
SMALL = "DejaVu Sans of Latin, Greek and signs"
LETTERS = (*range(0x20, 0x250), *range(0x370, 0x400), *range(0x2000, 0x2300))


@cache
def families() -> list[str]:
    """Families for ``font.family``: the small copy, then the whole font for all other letters."""
    folder = tempfile.TemporaryDirectory(prefix="ttabench-fonts-")
    atexit.register(folder.cleanup)
    for weight in ("normal", "bold"):
        small = Path(folder.name, f"{weight}.ttf")
        _cut(Path(findfont(FontProperties(family=WHOLE, weight=weight))), small)
        fontManager.addfont(small)
    return [SMALL, WHOLE]


def _cut(whole: Path, small: Path) -> None:
    from fontTools.subset import Options, Subsetter  # type: ignore[import-untyped]
    from fontTools.ttLib import TTFont  # type: ignore[import-untyped]

    options = Options(layout_features=[], hinting=False, notdef_outline=True, glyph_names=False)
    options.drop_tables += ["FFTM"]  # dates of the font's editor
    cutter = Subsetter(options)
    cutter.populate(unicodes=LETTERS)
    with TTFont(whole, recalcTimestamp=False) as font:
        cutter.subset(font)
        for record in font["name"].names:
            if record.nameID in (1, 16):  # the family, by which Matplotlib finds it
                record.string = SMALL
        font.save(small)


@cache
def width_of_one_point(text: str, weight: str) -> float:
    """Width in inches of a line of text, one point in size."""
    font = get_font(str(findfont(FontProperties(family=families(), weight=weight))))
    font.set_size(100, 72)
    font.set_text(text, 0.0)
    width, _ = font.get_width_height()
    return float(width) / 64 / 72 / 100
