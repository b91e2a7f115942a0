"""ttabench: a benchmark harness for test-time adaptation of image classifiers.

What is in ``__all__`` is the public Python interface; everything else may change. Names are imported when
they are first used, so that ``import ttabench`` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttabench.public_names import HOMES

if TYPE_CHECKING:
    from ttabench.api.adapt import adapt
    from ttabench.api.adapted import Adapted
    from ttabench.api.evaluate import Evaluation, evaluate
    from ttabench.api.lookup import (
        corrupt,
        get_dataset,
        get_method,
        list_corruptions,
        list_datasets,
        list_methods,
    )
    from ttabench.api.named_norm_layers import name_norm_layers
    from ttabench.api.sweeping import load_results, run_sweep
    from ttabench.cell.protocol import Protocol
    from ttabench.classifier import Classifier
    from ttabench.data.dataset import Dataset
    from ttabench.errors import UserError
    from ttabench.method import Method

__version__ = "0.1.0"

__all__ = [
    "Adapted",
    "Classifier",
    "Dataset",
    "Evaluation",
    "Method",
    "Protocol",
    "UserError",
    "adapt",
    "corrupt",
    "evaluate",
    "get_dataset",
    "get_method",
    "list_corruptions",
    "list_datasets",
    "list_methods",
    "load_results",
    "name_norm_layers",
    "run_sweep",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'ttabench' has no attribute '{name}'")
    from importlib import import_module

    # Not kept in globals(): so a method that uses a name while it runs is noticed, see
    # `ttabench.provenance.forbidden_imports`.
    return getattr(import_module(f"ttabench.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
