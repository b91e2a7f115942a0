"""A sweep, from the options of a user to its results. The files in order of use:

`options`, `grid` (names and numbers), `resolve` (objects), `plan` (cells), `agenda` (open cells), `run`.
"""
