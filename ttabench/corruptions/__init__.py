"""The 15 + 4 common corruptions of CIFAR-10-C and Tiny-ImageNet-C, and the 10 of CIFAR-10-C-bar (`bar`).

All are vectorised over the batch. The names are light to import; NumPy, SciPy and OpenCV are loaded when
something is corrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttabench.corruptions.names import (
    ALL_CORRUPTIONS,
    BAR_CORRUPTIONS,
    CORRUPTIONS,
    EXTRA_CORRUPTIONS,
    IMAGE_SIZES,
    KNOWN_CORRUPTIONS,
    SEVERITIES,
    VERSION,
)

if TYPE_CHECKING:
    from ttabench.corruptions.engine import check_request, corrupt
    from ttabench.corruptions.frost_textures import (
        FrostTextures,
        load_frost_textures,
        procedural_frost_textures,
    )

__all__ = [
    "ALL_CORRUPTIONS",
    "BAR_CORRUPTIONS",
    "CORRUPTIONS",
    "EXTRA_CORRUPTIONS",
    "IMAGE_SIZES",
    "KNOWN_CORRUPTIONS",
    "SEVERITIES",
    "VERSION",
    "FrostTextures",
    "check_request",
    "corrupt",
    "load_frost_textures",
    "procedural_frost_textures",
]

_ENGINE = ("check_request", "corrupt")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{'engine' if name in _ENGINE else 'frost_textures'}")
    return getattr(module, name)
