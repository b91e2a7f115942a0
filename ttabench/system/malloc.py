"""Let a process reuse freed memory for its next tensors."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Let glibc's malloc serve every size from its heap, and never give the heap back.

    By default, in every pass the kernel maps memory for each large activation, fills it with zeros page by
    page, and unmaps it (`scripts/bench_malloc.py`). Returns False, without a change, for another C library.
    """
    mallopt = _of_glibc("mallopt")
    return mallopt is not None and bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))


def give_back() -> None:
    """Let glibc give the memory that is free inside its heap back to the system; nothing elsewhere.

    Over a long time, small objects that live long lie between large objects that do not. Then the heap grows,
    although more and more of it is free.
    """
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_glibc(name: str) -> Any:
    """A function of glibc; None for another C library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
