"""The folder that datasets are kept in."""

from __future__ import annotations

import os
from pathlib import Path

from ttabench.system.environment import cache_dir
from ttabench.system.files import user_path


def data_root(root: Path | str | None = None) -> Path:
    """Where datasets are kept: `root`, else ``$TTABENCH_DATA``, else ``data`` in the cache."""
    chosen = root or os.environ.get("TTABENCH_DATA")
    return user_path(chosen) if chosen else cache_dir() / "data"
