"""Networks by Python path: ``package.module:callable``."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from torch import nn

from ttabench.data.dataset import Dataset
from ttabench.errors import UserError, unknown

__all__ = ["make"]


def make(arch: str, dataset: Dataset) -> nn.Module:
    """Call ``package.module:callable`` with those of num_classes, image_size and dataset (its name) it takes.

    Raises UserError where it cannot be imported or makes no network.
    """
    function = _find(arch)
    facts: dict[str, Any] = {
        "num_classes": dataset.num_classes, "image_size": dataset.image_size, "dataset": dataset.name,
    }  # fmt: skip
    parameters = inspect.signature(function).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    net = function(**{name: value for name, value in facts.items() if takes_any or name in parameters})
    if not isinstance(net, nn.Module):
        raise UserError(f"{arch} returned a {type(net).__name__}; expected an nn.Module or a Classifier.")
    return net


def _find(arch: str) -> Callable[..., Any]:
    module_name, _, name = arch.partition(":")
    if "" not in sys.path and "." not in sys.path:
        sys.path.append("")  # the user's folder, which an installed command does not search
    try:
        module = importlib.import_module(module_name)
    except ImportError as problem:
        raise UserError(
            f"{module_name} of '{arch}' cannot be imported ({problem}); run from the folder it is in, or "
            "install it."
        ) from None
    found = getattr(module, name, None)
    if found is None:
        raise unknown(f"callable in {module_name}", name, (n for n in vars(module) if not n.startswith("_")))
    if not callable(found):
        raise UserError(
            f"{arch} is a {type(found).__name__}; expected a function or class that makes a network."
        )
    return found  # type: ignore[no-any-return]
