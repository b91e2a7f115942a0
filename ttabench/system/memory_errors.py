"""Errors of a process or a GPU that has no memory left. Imports no torch."""

from __future__ import annotations

__all__ = ["out_of_memory", "said"]

WORDS = (
    "out of memory",  # of CUDA and its driver, Triton, HIP
    "DefaultCPUAllocator",
    "ALLOC_FAILED",  # of cuBLAS, cuDNN, cuSOLVER, cuFFT
    "ALLOCATION_FAILED",  # of cuDNN 9
)
"""Parts of the texts of a plain RuntimeError, which torch raises on the CPU and for the libraries of CUDA."""


def said(problem: BaseException) -> str:
    """The text of an exception; "" where its class fails to make one."""
    try:
        return str(problem)
    except Exception:
        return ""


def out_of_memory(problem: BaseException) -> bool:
    """Whether this process or its GPU ran out of memory."""
    torchs = any(kind.__name__ == "OutOfMemoryError" for kind in type(problem).__mro__)
    text = said(problem)
    named = isinstance(problem, RuntimeError) and any(words in text for words in WORDS)
    return torchs or named or isinstance(problem, MemoryError)
