"""Variables of the environment that hold for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress


@contextmanager
def with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """In the block, the environment has these variables, and a process that is started there too.

    From the first one that no environment can hold, they are left out.
    """
    before = {name: os.environ.get(name) for name in variables}
    try:
        with suppress(ValueError):
            os.environ.update(variables)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
