"""What torch and the libraries of CUDA say when memory is over."""

from __future__ import annotations

import torch

from tests.cases import each
from ttabench.errors import UserError, out_of_memory


class Unprintable(RuntimeError):
    def __str__(self) -> str:
        raise ValueError


@each(
    "problem",
    [
        MemoryError(),
        torch.OutOfMemoryError("gone"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in …"),
        RuntimeError("CUDA driver error: out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_is_over_is_known_by_class_or_text(problem: Exception) -> None:
    assert out_of_memory(problem)


@each(
    "problem",
    [
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(…)`"),
        UserError("its process was lost 2 times (killed, out of memory or of time)."),
        Unprintable(),
    ],
)
def test_other_errors_are_not_of_memory(problem: Exception) -> None:
    assert not out_of_memory(problem)
