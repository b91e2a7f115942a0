"""Weights on disk: the cache of source classifiers, their hashes and cards, and weights files of others."""
