"""``ttabench doctor``: what is here, what is missing and how to get it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import typer

GPU_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg", "/dev/dri")

WITH_TTABENCH = ("torchvision", "timm")
EXTRAS = {"transformers": "hf", "robustbench": "robustbench", "open_clip": "clip"}
"""The extra of pip that has a package of networks."""


def doctor() -> None:
    """Versions, devices, caches, plugins; exit code 1 if something needed is missing."""
    from ttabench.errors import counted
    from ttabench.system.cores import available_cores
    from ttabench.system.environment import cache_dir, machine, versions

    problems = []
    print(f"{'machine':<14} {machine()}, {available_cores()} cores")
    for name, version in versions().items():
        print(f"{name.removesuffix('-python-headless'):<14} {version}")
        if version == "not installed":
            problems.append(f"{name} is missing: pip install {name}")
    problems += _devices()
    usable = _networks_of_others()
    problems += _cache(cache_dir())
    problems += _plugins()
    for problem in problems:
        print(f"problem: {problem}")
    print(counted(len(problems), "problem") if problems else f"all is well{' otherwise' * (not usable)}")
    if problems:
        raise typer.Exit(1)


def _networks_of_others() -> bool:
    """Prints which packages of networks there are; whether all that come with ttabench can be used.

    None is imported, since they import torch.
    """
    from ttabench.models.external.packages import made_for_another_torch

    for name in WITH_TTABENCH:
        print(f"{name:<14} {'installed' if _is_here(name) else f'not installed: pip install {name}'}")
    for name, extra in EXTRAS.items():
        lacks = f"optional, not installed: ttabench[{extra}]"
        print(f"{name:<14} {'installed' if _is_here(name) else lacks}")
    if problem := made_for_another_torch():
        print(f"{'':<14} {problem}; networks of timm, torchvision, RobustBench and open_clip need it")
    return not problem and all(map(_is_here, WITH_TTABENCH))


def _is_here(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _cache(folder: Path) -> list[str]:
    """Whether the cache can be written, and what it holds."""
    from ttabench.system.files import bytes_below

    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free / 1e9
        held = bytes_below(folder) / 1e6
    except OSError as problem:
        return [
            f"the cache {folder} cannot be used ({problem.strerror}): set TTABENCH_CACHE to another folder"
        ]
    print(f"{'cache':<14} {folder} ({held:.0f} MB, {free:.0f} GB free)")
    for model in sorted(folder.glob("models/**/*.safetensors")):
        print(f"{'':<14} {model.relative_to(folder)}")
    if not os.access(folder, os.W_OK):
        return [f"the cache {folder} cannot be written: set TTABENCH_CACHE to another folder"]
    return []


def _devices() -> list[str]:
    """Prints the GPUs that torch sees; returns those that cannot compute.

    Without a driver of a GPU, torch is not imported.
    """
    if sys.platform.startswith("linux") and not any(map(Path.exists, map(Path, GPU_DRIVERS))):
        print(f"{'devices':<14} cpu only (no driver of a GPU is loaded)")
        return []
    import torch

    from ttabench.errors import first_line

    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        print(f"{'devices':<14} cpu only (torch {torch.__version__} is a build without CUDA)")
        return []
    gpus, problems = [], []
    for i in range(torch.cuda.device_count()):
        try:
            gpus.append(torch.cuda.get_device_name(i))
            torch.ones(1, device=f"cuda:{i}").add_(1).item()
        except RuntimeError as problem:
            problems.append(
                f"GPU {i} cannot compute ({first_line(problem)}): look at its driver, or give --device cpu"
            )
    print(f"{'devices':<14} {', '.join(gpus) or 'cpu only'}")
    return problems


def _plugins() -> list[str]:
    """Prints the methods that can be used; returns why others cannot."""
    from ttabench.cli._facts import tried_methods
    from ttabench.cli._table import pairs

    usable, broken = tried_methods()
    pairs([("methods".ljust(13), ", ".join(usable))])
    return broken
