"""Whether a method fulfils the contract of `ttabench.method`, for `ttabench conform`.

`run` tries a method on the tiny nets of `nets`, each a `case`; `checks` has a function for each promise.
"""

from ttabench.conformance.run import Check, conform

__all__ = ["Check", "conform"]
