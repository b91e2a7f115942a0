"""The cache folder, and the environment of a result: versions, machine, device."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

RECORDED = ("ttabench", "torch", "numpy", "scipy", "opencv-python-headless", "pillow", "scikit-learn")

ALSO_OPENCV = ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless")
"""Distributions with the same module as opencv-python-headless. The one installed last is imported."""


def cache_dir() -> Path:
    """The cache: ``$TTABENCH_CACHE``, else platformdirs' folder for this user."""
    if override := os.environ.get("TTABENCH_CACHE"):
        return Path(override).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("ttabench", appauthor=False)


def versions(others: Sequence[str] = ()) -> dict[str, str]:
    """Versions of Python and of the libraries that can change a number; `others` names other ones.

    The distributions of :data:`ALSO_OPENCV` are listed only where they are installed.
    """
    installed = {"python": platform.python_version()}
    for name in (*RECORDED, *others):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "not installed"
    for name in ALSO_OPENCV:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    return installed


def machine() -> str:
    """Operating system and processor architecture, e.g. ``Linux x86_64``."""
    return f"{platform.system()} {platform.machine()}"


def processor(device: str = "cpu") -> str:
    """The CPU with torch's instruction set, e.g. ``AMD EPYC, AVX512``, or the GPU that computes.

    Kernels are chosen by it, and with them the order of additions. "" where torch is not imported, and for
    a GPU that does not answer.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if device.startswith("cuda") and torch.cuda.is_available():
        with suppress(RuntimeError):
            return str(torch.cuda.get_device_name(device))
        return ""
    return f"{_cpu_model()}, {torch.backends.cpu.get_cpu_capability()}"


@cache
def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


def device_kind(device: str) -> str:
    """``cuda`` for ``cuda:1``: the number of a GPU says nothing of what it computes."""
    return device.partition(":")[0]


def pick_device(name: str = "auto") -> str:
    """ "auto" → "cuda" where there is one, else "cpu". Raises UserError where `name` cannot be had."""
    import torch

    from ttabench.errors import UserError, unknown

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        known = torch.device(name).type != "meta"  # tensors without content
    except RuntimeError:  # its message lists the devices of all builds of torch
        known = False
    if not known:
        raise unknown("device", name, ("auto", "cpu", "cuda", "cuda:1"))
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as problem:
        first = str(problem).splitlines()[0].partition(". ")[0]  # the rest is advice to torch's developers
        raise UserError(f"device '{name}' cannot be used ({first}); try --device auto or cpu.") from None
    return name
