"""When a script began: for one that imports this before what takes long to import, such as torch."""

from __future__ import annotations

import time

BEGAN = time.monotonic()
