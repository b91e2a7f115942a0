"""Run torch with the settings of a new process, whatever the program of a user has set.

A script may set a default type, or how precise matrix products are, before it calls ttabench. Python runs the
top of that script in worker processes too. Such settings change numbers, and are not in the identity of a
result. Imports torch when it is first used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ttabench.errors import UserError


@contextmanager
def default_modes() -> Iterator[None]:
    """In the block, new tensors are float32 on the CPU, and operations have gradients.

    Inference mode and autocast are off. All but the default type holds for the current thread only.
    """
    import torch

    dtype = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def default_kernels() -> Iterator[None]:
    """In the block, kernels have the precision and the algorithms that torch starts with, in all threads."""
    with ExitStack() as stack:
        for read, write, default in _switches():
            if (before := read()) != default:
                stack.callback(write, before)
                write(default)
        stack.enter_context(_default_precision())
        yield


@contextmanager
def matrix_products(precision: str, device: str) -> Iterator[None]:
    """In the block, matrix products on a GPU are in TF32 where the protocol says so.

    Convolutions are in TF32 at any precision, as torch starts. Raises UserError for TF32 on another device.
    """
    if precision != "tf32":
        yield
        return
    if not device.startswith("cuda"):
        raise UserError(f"precision tf32 is for NVIDIA GPUs; on {device}, use float32 or bfloat16.")
    import torch

    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@contextmanager
def own_settings() -> Iterator[dict[str, Any]]:
    """In the block, torch is as in a new process, whatever such a block before has changed: its settings.

    A method, or a module when it is imported, may set a default type or hook all modules. This would count
    for the cells that happen to come next in the same process.
    """
    import torch

    threads, hooks = torch.get_num_threads(), [(each, each.copy()) for each in _hooks_of_all_modules()]
    with default_modes(), default_kernels():
        try:
            yield settings()
        finally:
            torch.set_num_threads(threads)
            torch.set_flush_denormal(False)
            torch.autograd.set_detect_anomaly(False)
            for each, before in hooks:
                each.clear()
                each.update(before)


def settings() -> dict[str, Any]:
    """The settings of torch that :func:`own_settings` keeps, by name, as far as torch lets them be read."""
    import torch

    return {
        "the default type": torch.get_default_dtype(),
        "the default device": torch.get_default_device(),
        "whether operations have gradients": torch.is_grad_enabled(),
        "whether autocast is on": torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
        "the number of threads": torch.get_num_threads(),
        "whether anomalies are detected": torch.is_anomaly_enabled(),
        "the precision of matrix products": _read(torch.get_float32_matmul_precision),
        "the switches of torch.backends": tuple(read() for read, _, _ in _switches()),
        "the number of hooks of all modules": sum(map(len, _hooks_of_all_modules())),
    }


def changed_setting(before: Mapping[str, Any]) -> str:
    """``a setting of torch, the default type, from torch.float32 to torch.float64``; "" for no change."""
    now = settings()
    name = next((name for name, value in before.items() if now[name] != value), "")
    return name and f"a setting of torch, {name}, from {before[name]} to {now[name]}"


def _hooks_of_all_modules() -> list[dict[int, Any]]:
    from torch.nn.modules import module

    tables = (value for name, value in vars(module).items() if name.startswith("_global_"))
    return [table for table in tables if isinstance(table, dict)]


def _switches() -> Iterator[tuple[Callable[[], Any], Callable[[Any], None], Any]]:
    """How to read and set each switch, and the value that torch starts with."""
    import torch
    from torch import backends

    for owner, name, default in (
        (backends.cudnn, "enabled", True), (backends.cudnn, "benchmark", False),
        (backends.cudnn, "deterministic", False), (backends.mkldnn, "enabled", True),
    ):  # fmt: skip
        yield partial(getattr, owner, name), partial(setattr, owner, name), default
    # 0: off, 1: warn of what is not deterministic, 2: raise an error
    yield torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 0


@contextmanager
def _default_precision() -> Iterator[None]:
    """float32 is not shortened in matrix products; torch starts with TF32 in cuDNN's convolutions.

    Torch has two ways to set this, and reading the older one is an error after the newer one was used.
    """
    import torch
    from torch import backends

    cudnn, mkldnn = backends.cudnn, backends.mkldnn
    parts = ("matmul", "conv", "rnn")
    of_cudnn = [getattr(cudnn, name, None) for name in parts]  # their value is that of `allow_tf32`
    of_mkldnn = [getattr(mkldnn, name, None) for name in parts]
    places: list[Any] = [backends, backends.cuda.matmul, cudnn, mkldnn, *of_cudnn, *of_mkldnn]
    newer = [(place, place.fp32_precision) for place in places if hasattr(place, "fp32_precision")]
    with warnings.catch_warnings():  # some versions warn of the older way
        warnings.simplefilter("ignore")
        products, convolutions = _read(torch.get_float32_matmul_precision), _read(lambda: cudnn.allow_tf32)
    shortened = any(how in ("tf32", "bf16") for place, how in newer if place not in of_cudnn)
    if products == "highest" and convolutions and not shortened:
        yield  # as in a new process; setting it again could make the older way an error
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place, _ in newer:
            place.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")
        cudnn.allow_tf32 = True
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if products is not None:
                torch.set_float32_matmul_precision(products)
            if convolutions is not None:
                cudnn.allow_tf32 = convolutions
            for place, precision in newer:
                place.fp32_precision = precision


def _read(value: Callable[[], Any]) -> Any:
    """None where torch refuses to read it."""
    try:
        return value()
    except RuntimeError:
        return None
