"""Python's collector of cycles, kept away from many objects that have none.

The more objects exist, the longer each of its runs takes. Records and tables of results have no cycles, so
their memory is freed without it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Without the collector, while many objects are made; a with statement or a decorator."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def frozen() -> Iterator[None]:
    """The collector looks only at objects that are made from now on, such as figures.

    Within :func:`paused` it runs for so long.
    """
    was = gc.isenabled()
    gc.freeze()
    gc.enable()
    try:
        yield
    finally:
        gc.unfreeze()
        if not was:
            gc.disable()
