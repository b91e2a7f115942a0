"""The untrained classifiers of the unit tests, for a sweep by the installed wheel."""

from tests.unit.conftest import classifiers

__all__ = ["classifiers"]
