"""Models that others trained, one module per origin. `external_model` measures them on clean images first."""
