"""The manifest ``ttabench.json``: what `ttabench data generate` made, from what, with which checksums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ttabench.errors import UserError

MANIFEST = "ttabench.json"
SUFFIX = "-local"
"""The names of all own datasets end in it, so that no name is also the name of a published dataset."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a generated folder, or {} where the folder has none.

    `files` in it maps each file's name to its SHA-256 (hex). Raises UserError on a damaged manifest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = json.loads(path.read_text())
        name, files = manifest["name"], manifest["files"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} is damaged; delete the folder and generate it again.") from None
    if not isinstance(files, dict) or not str(name).endswith(SUFFIX):
        raise UserError(f"{path} has the name '{name}'; the name of a generated dataset ends in {SUFFIX}.")
    return dict(manifest)
