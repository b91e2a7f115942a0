"""A third-party package of methods for ttabench: one that works, one that cannot be imported."""
