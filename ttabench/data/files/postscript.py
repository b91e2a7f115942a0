"""PostScript among image files: a program, which Pillow would run with Ghostscript."""

from __future__ import annotations


def refuse_postscript() -> None:
    """From now on, Pillow does not start Ghostscript in this process; such a file cannot be decoded.

    Pillow looks at what a file holds, and not at its name: a .jpg of somebody else may be PostScript.
    """
    from PIL import EpsImagePlugin

    EpsImagePlugin.gs_binary = False
