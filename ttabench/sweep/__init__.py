"""A sweep from what a user asks for to its results, in the order of the files below.

`grid` (as asked for), `resolve` (names to objects), `plan` (cells), `agenda` (what is left), `run`.
"""
