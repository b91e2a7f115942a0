"""The functions behind ``import ttabench``, by what one wants to do.

`adapting` (a network of one's own), `sweeping` (a grid, its results), `names` (what there is).
"""
