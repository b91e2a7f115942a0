"""Training that makes the same weights, bit for bit, on every x86-64 processor with AVX2.

Torch and its libraries choose kernels by processor, and the kernels sum in different orders. The variables
below fix the kernels. They are read when a library is first used, so they are set before a process starts:
a portable recipe is trained in a worker process. The weights also depend on the version of torch. Each
gradient is computed in one thread: that of a whole batch, or those of its parts side by side, see
:mod:`ttabench.models.training.parts`. MKL's kernels are slow, so linear layers are computed without them, see
:mod:`ttabench.models.training.linear_as_convolution`. `scripts/bench_training.py` measures what this costs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ttabench.errors import UserError

KERNELS = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # convolutions
    "MKL_CBWR": "COMPATIBLE",  # matrix products; its other modes differ between makers of processors
}


def check_options(device: str, precision: str) -> None:
    """Raises UserError for a device or a precision that a portable recipe cannot have."""
    if device != "cpu":
        raise UserError(f"a portable recipe is trained on the CPU, not on {device}; give --device cpu.")
    if precision not in ("auto", "float32"):
        raise UserError(
            f"a portable recipe is trained in float32, not in {precision}; leave --precision out."
        )


def check_kernels(variables: Mapping[str, str] = os.environ) -> None:
    """Raises UserError if this process does not have the fixed kernels."""
    import torch

    if any(variables.get(name) != value for name, value in KERNELS.items()):
        raise UserError("a portable recipe needs a worker process; train with --workers 1 or more.")
    if (kernels := torch.backends.cpu.get_cpu_capability()) != "AVX2":
        raise UserError(
            f"a portable recipe needs an x86-64 processor with AVX2; torch has kernels for {kernels} here. "
            "Train with the plain recipe."
        )
