"""The functions of ``import ttabench``, by task.

`adapt` and `evaluate` (your own network), `sweeping` (a sweep and its results), `names` (methods, datasets,
corruptions).
"""
