"""The functions of ``import ttabench``, by task.

`adapting` (your own network), `sweeping` (a sweep and its results), `names` (methods, datasets, corruptions).
"""
