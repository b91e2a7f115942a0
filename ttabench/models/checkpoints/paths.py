"""Where checkpoints are, and how their files are named."""

from __future__ import annotations

import re
from pathlib import Path

from ttabench.system.environment import cache_dir


def file_name(arch: str) -> str:
    return re.sub(r"[^\w.-]", "_", arch)


def folder(dataset: str) -> Path:
    return cache_dir() / "models" / dataset
