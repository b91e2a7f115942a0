"""Let a process reuse freed memory for its next tensors."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["give_back", "keep_freed_memory"]

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h of glibc


def keep_freed_memory() -> bool:
    """Let glibc's malloc serve every size from its heap, and never give the heap back.

    By default, in every pass the kernel maps memory for each large activation, fills it with zeros page by
    page, and unmaps it (`scripts/bench_malloc.py`). Returns False, without a change, for another C library.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))


def give_back() -> None:
    """Let glibc give the memory that is free inside its heap back to the system; nothing elsewhere.

    Over a long time, small objects that live long lie between large objects that do not. Then the heap grows,
    although more and more of it is free.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
