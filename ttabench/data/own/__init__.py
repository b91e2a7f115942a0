"""Datasets of the user: a folder is opened by `open_own`, and made by `generate_corrupted`.

`own_arrays` and `own_corruption_folders` are the two layouts.
"""
