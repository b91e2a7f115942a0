"""The usual protocols by name, ``--protocol wild:mixed``: sweep files in `protocols`, with their sources."""

from __future__ import annotations

from pathlib import Path

from ttabench.errors import unknown

FOLDER = Path(__file__).parent / "protocols"


def presets() -> dict[str, str]:
    """Name → what it is, the first line of its file."""
    return {
        name: file.read_text(encoding="utf-8").partition("\n")[0].strip("# ")
        for name, file in _files().items()
    }


def preset_file(name: str) -> Path:
    """The sweep file of a protocol. Raises UserError for an unknown name."""
    files = _files()
    if name not in files:
        raise unknown("protocol", name, files, "`ttabench list protocols`")
    return files[name]


def _files() -> dict[str, Path]:
    """By name: ``wild-mixed.toml`` is ``wild:mixed``."""
    return {file.stem.replace("-", ":", 1): file for file in sorted(FOLDER.glob("*.toml"))}
