"""Datasets and the corruption functions."""
