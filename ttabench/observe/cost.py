"""The cost of adaptation: passes counted in images, seconds, memory and adapted parameters.

Counting changes no number: hooks only read. It follows every :class:`Classifier` in the process, so
teachers and copies of a model count too, also copies made during adaptation.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.method import Method
from ttabench.nn.pixels import to_tensor

SOURCE_SECONDS = 0.1  # about how long Source's forward pass is timed


@dataclass
class Passes:
    """Images that went through classifiers.

    forward   images of all forward passes; a pass of half of a batch counts as half of its images.
    backward  images of all backward passes: those whose features have a gradient other than zero. An image
              with a weight of zero in the loss does not count. Where a loss depends on inner layers alone,
              all images of the forward pass count.
    """

    forward: int = 0
    _backward: int = 0
    _on_device: Tensor | None = None

    @property
    def backward(self) -> int:
        if self._on_device is not None:
            self._backward += int(self._on_device)
            self._on_device = None
        return self._backward

    def add_backward(self, gradient: Tensor, images: int) -> None:
        """Count the rows of a gradient (B, …) that are not zero, without waiting for a GPU."""
        with torch.no_grad():
            if len(gradient) != images:  # rows that are not images
                self._backward += images
                return
            rows = gradient.flatten(1).any(dim=1).sum()
            self._on_device = rows if self._on_device is None else self._on_device + rows


@contextmanager
def count_passes() -> Iterator[Passes]:
    """Count the passes of all classifiers inside the block. Blocks can be nested; each counts for itself."""
    counter = _Counter()
    before = Classifier.__call__
    replaced = "__call__" in vars(Classifier)

    def counted(model: Classifier, x: Tensor) -> Any:
        return counter.run(before, model, x)

    setattr(Classifier, "__call__", counted)  # noqa: B010 (mypy does not allow the assignment)
    try:
        yield counter.passes
    finally:
        if replaced:
            setattr(Classifier, "__call__", before)  # noqa: B010
        else:
            delattr(Classifier, "__call__")


class _Counter:
    """Counts forward passes when they are made, and backward passes through hooks on their tensors."""

    def __init__(self) -> None:
        self.passes = Passes()
        self._inside = False  # a classifier around another one counts once
        self._modules: weakref.WeakKeyDictionary[nn.Module, list[nn.Module]] = weakref.WeakKeyDictionary()

    def run(self, forward: Callable[[Classifier, Tensor], Any], model: Classifier, x: Tensor) -> Any:
        if self._inside:
            return forward(model, x)
        self.passes.forward += len(x)
        self._inside = True
        try:
            with self._watched(model, len(x)) if torch.is_grad_enabled() else nullcontext():
                return forward(model, x)
        finally:
            self._inside = False

    @contextmanager
    def _watched(self, model: Classifier, images: int) -> Iterator[None]:
        """Inside the block, note the tensors of one forward pass that its backward pass can start from.

        These are the features, and the outputs or inputs of layers that the method itself has hooks on.
        """
        counted = False

        def from_features(gradient: Tensor) -> None:
            nonlocal counted
            counted = True
            self.passes.add_backward(gradient, images)

        def from_layer(_gradient: Tensor) -> None:
            # Gradients reach the features before the inner layers, so here the loss does not depend on them.
            nonlocal counted
            if not counted:
                counted = True
                self.passes._backward += images

        def features(_layer: nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs[0].requires_grad:
                inputs[0].register_hook(from_features)

        def logits(_layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            if output.requires_grad and not inputs[0].requires_grad:
                output.register_hook(from_features)  # type: ignore[no-untyped-call]

        def entered(_layer: nn.Module, inputs: tuple[Any, ...]) -> None:
            _hook(inputs, from_layer)

        def left(_layer: nn.Module, _inputs: tuple[Any, ...], output: Any) -> None:
            _hook(output, from_layer)

        head = model.linear
        handles = [head.register_forward_pre_hook(features), head.register_forward_hook(logits)]
        for layer in self._layers(model):
            if layer is not head and layer._forward_pre_hooks:
                handles.append(layer.register_forward_pre_hook(entered))
            if layer is not head and layer._forward_hooks:
                handles.append(layer.register_forward_hook(left))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _layers(self, model: nn.Module) -> list[nn.Module]:
        if model not in self._modules:
            self._modules[model] = [module for module in model.modules() if module is not model]
        return self._modules[model]


def _hook(value: Any, note: Callable[[Tensor], None]) -> None:
    first = value[0] if isinstance(value, tuple) and value else value
    if isinstance(first, Tensor) and first.requires_grad:
        first.register_hook(note)  # type: ignore[no-untyped-call]


# ---- a cell


@dataclass
class Meter:
    """What was measured inside :func:`measured`; seconds as :func:`clock` has them."""

    passes: Passes
    seconds: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)

    def cost(self, method: Method[Any], images: int, seconds: float, source_seconds: float) -> dict[str, Any]:
        """The values that are stored with a cell.

        images          of the stream, foreign ones included.
        seconds         of adapting to all of them and scoring them, wall-clock.
        source_seconds  per image, of Source's forward pass, see :func:`source_forward`.

        Returns `images`; `ms_per_image`; `forward` and `backward`, see :class:`Passes`; `compute_ratio`, time
        over the time of Source's forward pass of these images; `adapted_parameters`; and memory in MB (10⁶
        bytes), as far as the system tells: `device_mb`, the peak that torch had allocated on a GPU, and
        `host_mb`, see :func:`measured`.
        """
        return {
            "images": images,
            "ms_per_image": round(1e3 * seconds / max(1, images), 6),
            "forward": self.passes.forward,
            "backward": self.passes.backward,
            "compute_ratio": round(self.seconds / max(1, images) / source_seconds, 4),
            "adapted_parameters": adapted_parameters(method),
            **self.memory,
        }


@contextmanager
def measured(device: str, host: dict[str, float] | None = None) -> Iterator[Meter]:
    """Measure passes, time and memory of what runs inside the block.

    host   what an earlier cell with the same method, classifier and protocol found of the memory of the host.
           It is measured and added where there is nothing yet: how far the peak of resident memory is above
           what was resident before. This takes time, since freed memory goes back to the system first.
    """
    cuda = device.startswith("cuda")
    host = {} if host is None else host
    resident = None if host else _reset_peak()
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    with count_passes() as passes:
        meter = Meter(passes)
        started = clock(device)
        try:
            yield meter
        finally:
            meter.seconds += clock(device) - started
            if cuda:
                meter.memory["device_mb"] = round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
            if resident is not None:
                host["host_mb"] = round((_resident("VmHWM") - resident) / 1e6, 1)
            meter.memory |= host


def clock(device: str) -> float:
    """Seconds: of the CPU for one thread, so that other work on the machine counts less; else wall-clock."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif torch.get_num_threads() == 1:
        return time.process_time()
    return time.perf_counter()


def adapted_parameters(method: Method[Any]) -> int:
    """The numbers that a method learns: parameters that optimisers hold.

    Where there is no optimiser, the number of parameters or numbers that :meth:`Method.adapted` states.
    """
    held = {id(p): p.numel() for optimizer in _optimizers(method, set()) for p in _parameters(optimizer)}
    if held:
        return sum(held.values())
    stated = re.search(r"([\d,]+) (?:parameters|numbers)\b", method.adapted())
    return int(stated[1].replace(",", "")) if stated else 0


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _optimizers(part: Any, seen: set[int]) -> Iterator[torch.optim.Optimizer]:
    """The optimisers of a method and of its parts."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, torch.optim.Optimizer):
        yield part
        return
    inner: Iterable[Any] = ()
    if isinstance(part, list | tuple):
        inner = part
    elif isinstance(part, Method) or isinstance(getattr(part, "optimizer", None), torch.optim.Optimizer):
        inner = [value for name, value in vars(part).items() if name != "_prepared"]  # what `reset` restores
    for each in inner:
        yield from _optimizers(each, seen)


# ---- Source's forward pass, and the compute ratio


def source_forward(
    classifier: Classifier,
    images: NDArray[np.uint8] | Any,
    batch_size: int,
    device: str = "cpu",
    precision: str = "float32",
) -> float:
    """Seconds per image, by :func:`clock`, in which Source classifies images (n, H, W, 3) uint8.

    The first batch is classified again and again, see :func:`_usual`. On a GPU the first pass of a process
    loads libraries and kernels; it is not timed.
    """
    x = np.ascontiguousarray(images[np.arange(min(batch_size, len(images)))])
    half = precision == "bfloat16"
    times: list[float] = []
    with torch.no_grad(), torch.autocast(torch.device(device).type, torch.bfloat16, half):
        if device.startswith("cuda"):
            classifier(to_tensor(x, device))
        while len(times) < 2 or sum(times) <= SOURCE_SECONDS:
            started = clock(device)
            classifier(to_tensor(x, device)).argmax(dim=1).cpu()
            times.append(clock(device) - started)
            if times[0] > SOURCE_SECONDS:  # large networks: once is enough
                break
    return _usual(times) / len(x)


def _usual(times: Sequence[float]) -> float:
    """The median without the first; the mean where a clock shows nothing of most of them.

    The clock of :func:`clock` may go on with the ticks of the system alone, which are longer than a pass of a
    small network: on Linux so in a process whose CPU time is limited (ulimit -t).
    """
    return float(np.median(times[1:] or times) or np.mean(times))


def compute_ratio(
    method: Method[Any],
    classifier: Classifier,
    batches: Sequence[NDArray[np.uint8]],
    device: str = "cpu",
    precision: str = "float32",
) -> float:
    """C = t_method / t_forward (Alfarra et al., ICML 2024) on batches of images (b, H, W, 3) uint8.

    As measured: it differs from run to run. Time is that of all batches but the first, which takes longer
    than the others. The prepared method adapts to each batch from the state after `prepare` on, and is reset
    at the end.

    Raises ValueError without a batch.
    """
    if not batches:
        raise ValueError("a compute ratio needs at least one batch")
    half = precision == "bfloat16"
    times: list[float] = []
    kind = torch.device(device).type
    method.reset()
    with torch.autocast(kind, torch.bfloat16, half, cache_enabled=False):
        while not any(times):
            for images in batches:
                started = clock(device)
                method.adapt(to_tensor(images, device))
                times.append((clock(device) - started) / len(images))
    method.reset()
    source_seconds = source_forward(classifier, batches[0], len(batches[0]), device, precision)
    return _usual(times) / source_seconds


# ---- resident memory, on Linux


def _reset_peak() -> int | None:
    """Give freed memory back to the system and forget the peak so far; the bytes that are resident now.

    None where the system cannot do that.
    """
    if sys.platform != "linux":
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    try:
        with open("/proc/self/clear_refs", "w") as file:
            if trim is not None:
                trim(0)
            file.write("5")
        return _resident("VmRSS")
    except (OSError, StopIteration):
        return None


def _resident(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))
