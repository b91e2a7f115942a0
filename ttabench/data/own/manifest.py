"""The manifest ``ttabench.json``: what `ttabench data generate` made, from what, with which checksums."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ttabench.errors import UserError, one_line, shortened

MANIFEST = "ttabench.json"
SUFFIX = "-local"
"""The names of all own datasets end in it, so that no name is also the name of a published dataset."""
NAME = re.compile(rf"[a-z0-9_][a-z0-9._-]{{0,200}}{SUFFIX}")
"""What `ttabench data generate` calls a dataset. A name becomes the name of a folder, so it holds no path."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a generated folder, or {} where the folder has none.

    `files` in it maps each file's name to its SHA-256 (hex). Raises UserError on a damaged manifest, and on a
    name that `ttabench data generate` gives to none.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = json.loads(path.read_text())
        name, files = manifest["name"], manifest["files"]
        if not isinstance(files, dict):
            raise TypeError("files is no table")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path} is damaged; delete the folder and generate it again.") from None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(
            f"{path} has the name '{shortened(one_line(str(name)))}'; expected lower-case letters, digits, "
            f"'.', '_' and '-', and {SUFFIX} at the end. Generate the folder again."
        )
    return dict(manifest)
