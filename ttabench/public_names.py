"""Where the names of the public Python interface are defined."""

HOMES = {
    "Adapted": "api.adapted",
    "Classifier": "classifier",
    "Dataset": "data.dataset",
    "Evaluation": "api.evaluate",
    "Method": "method",
    "Protocol": "cell.protocol",
    "UserError": "errors",
    "adapt": "api.adapt",
    "corrupt": "api.lookup",
    "evaluate": "api.evaluate",
    "get_dataset": "api.lookup",
    "get_method": "api.lookup",
    "list_corruptions": "api.lookup",
    "list_datasets": "api.lookup",
    "list_methods": "api.lookup",
    "load_results": "api.sweeping",
    "name_norm_layers": "api.named_norm_layers",
    "run_sweep": "api.sweeping",
}
"""The module of each public name, below ttabench."""
