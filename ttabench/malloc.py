"""Memory that a process has freed, kept for its next tensor."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_freed_memory"]

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Let glibc's malloc serve every size from its heap, and never give the heap back.

    Otherwise each large activation is mapped, filled with zeros by the kernel page by page, and unmapped,
    in every pass anew (`scripts/bench_malloc.py`). False where the C library is another: nothing changes.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
