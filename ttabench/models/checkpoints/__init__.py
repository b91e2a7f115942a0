"""Weights on disk: the cache of source classifiers, hashes, model cards, and reading weights files."""
