"""Datasets of the user: reading a folder with corrupted images, and making one from clean images."""
