"""Where the names of the public Python interface are defined."""

from __future__ import annotations

HOMES = {
    "Adapted": "api.adapted",
    "Classifier": "classifier",
    "Dataset": "data.dataset",
    "Evaluation": "api.evaluate",
    "Method": "method",
    "Protocol": "cell.protocol",
    "UserError": "errors",
    "adapt": "api.adapt",
    "corrupt": "api.names",
    "evaluate": "api.evaluate",
    "get_dataset": "api.names",
    "get_method": "api.names",
    "list_corruptions": "api.names",
    "list_datasets": "api.names",
    "list_methods": "api.names",
    "load_results": "api.sweeping",
    "name_norm_layers": "api.named_norm_layers",
    "run_sweep": "api.sweeping",
}
"""The module of each public name, below ttabench."""
