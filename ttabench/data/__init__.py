"""Datasets: `catalog` opens them by name or path; `digits` is the embedded one.

`published/` and `own/` read them; `fetch/` downloads, `verify/` audits, `files/` reads single files.
"""
