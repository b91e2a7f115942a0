"""A sweep, from the options of a user to its results. The files in order of use:

`option_table`, `sweep_file`, `options`, `grid` (names and numbers), `rules`, `shifts`, `resolve` (objects),
`plan` (cells), `agenda` (open cells), `run`.
"""
