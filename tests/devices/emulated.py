"""A second device, emulated on the CPU, for machines without a GPU.

Inside :class:`Emulated`, tensors that are moved to "cuda", or made there, are marked as device tensors, and
so is all that is computed from them. Their memory is the CPU's. As on a GPU:

* an operation on device tensors and host tensors together raises :class:`MixedDevices`, but for the cases
  that torch allows: host scalars in pointwise operations, host indices of a device tensor, copies;
* ``torch.zeros(3)`` and other factories without a device make host tensors;
* a device tensor has no ``numpy()``.

Autocast on the device is that of the CPU, and random numbers come from the generator of the CPU.

What makes the host wait for the device is recorded in :attr:`Emulated.waits`: ``item()``, ``bool(tensor)``,
``tolist()``, copies to the host, and operations whose output has a size that depends on the data.
:attr:`Emulated.copies` has the copies from the host to the device. :attr:`Emulated.operations` counts what is
computed there, without views: about as many kernels are launched on a GPU.

A mark belongs to the storage of a tensor, so that views, parameters and gradients share it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("cuda", 0)
ROOT = Path(__file__).resolve().parents[2]
PRUNE = 20_000  # marks, after which those of freed storages are dropped

aten = torch.ops.aten
COPIES = {aten.copy_, aten._foreach_copy_}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
# Not pointwise, yet they take 0-dimensional host tensors beside device tensors.
SCALARS_ALLOWED = {aten.fill_, aten.fill, aten.masked_fill, aten.masked_fill_, aten.where}
# The size of the output depends on the data, or the result is a Python number.
WAITING = {
    aten._local_scalar_dense, aten.equal, aten.nonzero, aten.masked_select, aten.bincount, aten.unique_dim,
    aten.unique_consecutive, aten._unique, aten._unique2, aten.repeat_interleave, aten.histc,
}  # fmt: skip
# On the CPU they read values to check their arguments; on a GPU they do not.
CHECKED_ON_THE_CPU_ONLY = {torch.quantile, torch.Tensor.quantile, torch.nn.functional.one_hot}


class MixedDevices(RuntimeError):
    """Device tensors and host tensors met in one operation."""


class Emulated:
    """While active, "cuda" is a second device.

    waits  what made the host wait, in order, each as ``operation at file:line`` of the first caller in the
           repository.
    copies      what was copied to the device: tensors, lists of numbers, indices. The same form.
    operations  how many operations the device has done, forwards and backwards; a view is none.
    """

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.copies: list[str] = []
        self.operations = 0
        self._marks: dict[int, StorageWeakRef] = {}
        self._made_here: bool | None = None  # where factories make their tensors; None = as they say
        self._quiet = 0
        self._stack = ExitStack()

    def __enter__(self) -> Emulated:
        stack = self._stack
        group = torch._C._group_tensors_by_device_and_dtype
        stack.enter_context(
            patch.object(torch._C, "_group_tensors_by_device_and_dtype", self._grouped(group))
        )
        stack.enter_context(patch.object(torch, "Generator", _Generator))
        stack.enter_context(patch.object(torch.cuda, "synchronize", lambda *_: self._wait("synchronize")))
        stack.enter_context(patch.object(torch.cuda, "is_bf16_supported", lambda *_: False))
        stack.enter_context(patch.object(torch.cuda, "Event", MagicMock))
        stack.enter_context(patch.object(torch.cuda, "current_stream", MagicMock()))
        stack.enter_context(patch.object(torch.cuda, "get_rng_state", lambda *_: torch.get_rng_state()))
        stack.enter_context(patch.object(torch.cuda, "set_rng_state", lambda *_: None))
        stack.enter_context(patch.object(torch, "autocast", _Autocast))
        stack.enter_context(_Operations(self))
        stack.enter_context(_Functions(self))
        return self

    def __exit__(self, *problem: Any) -> None:
        self._stack.close()

    # ---- marks

    def on_device(self, tensor: Tensor) -> bool:
        return _storage(tensor)._cdata in self._marks

    def mark(self, tensor: Tensor, on_device: bool = True) -> None:
        reference = StorageWeakRef(_storage(tensor))
        if not on_device:
            self._marks.pop(reference.cdata, None)
            return
        self._marks.setdefault(reference.cdata, reference)
        if len(self._marks) > PRUNE:
            self._marks = {key: ref for key, ref in self._marks.items() if not ref.expired()}

    @contextmanager
    def _making(self, on_device: bool | None) -> Iterator[None]:
        before, self._made_here = self._made_here, on_device
        try:
            yield
        finally:
            self._made_here = before

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def _wait(self, operation: str) -> None:
        if not self._quiet:
            self.waits.append(f"{operation} at {_caller()}")

    def _copied(self, operation: str) -> None:
        if not self._quiet:
            self.copies.append(f"{operation} at {_caller()}")

    def _grouped(self, group: Callable[..., Any]) -> Callable[..., Any]:
        """Optimisers and gradient clipping group tensors by device in C++, which does not know of marks."""

        def grouped(lists: list[list[Tensor | None]], with_indices: bool = False) -> Any:
            result = group(lists, with_indices)
            named = {}
            for (device, dtype), value in result.items():
                first = next((t for t in value[0][0] if t is not None), None)
                named[DEVICE if first is not None and self.on_device(first) else device, dtype] = value
            return named

        return grouped

    # ---- what Python code calls

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        ours = args[0] if args and isinstance(args[0], Tensor) else None
        if ours is not None and func in _ON_TENSORS:
            return _ON_TENSORS[func](self, func, ours, args[1:], kwargs)
        if func in CHECKED_ON_THE_CPU_ONLY:
            with self._quietly():
                return self._plain(func, args, kwargs)
        return self._plain(func, args, kwargs)

    def _plain(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = kwargs.get("device")
        if device is not None:
            on_device = _is_device(device)
            with self._making(on_device):
                out = func(*args, **{**kwargs, "device": "cpu"})
            for tensor in _tensors(out):
                self.mark(tensor, on_device)
            if on_device and func in (torch.tensor, torch.as_tensor):
                self._copied(func.__name__)
            return out
        if func in (torch.tensor, torch.as_tensor) and isinstance(args[0], (list, tuple)):
            with self._making(False):
                return func(*args, **kwargs)
        if not any(map(self.on_device, _tensors((args, kwargs)))):
            return func(*args, **kwargs)
        with self._making(True):  # what an operation on device tensors makes inside, it makes there
            return func(*args, **kwargs)

    def move(self, tensor: Tensor, to_device: bool) -> Tensor:
        """A copy of `tensor` on the other device; gradients are copied back."""
        if to_device:
            self._copied("copy")
        else:
            self._wait("copy to the host")
        if tensor.requires_grad and torch.is_grad_enabled():
            moved: Tensor = _Move.apply(tensor, self, to_device)  # type: ignore[no-untyped-call]
            return moved
        return self.copy(tensor, to_device)

    def copy(self, tensor: Tensor, to_device: bool) -> Tensor:
        with self._making(to_device):
            out = tensor.detach().clone()
        self.mark(out, to_device)
        return out

    # ---- what torch computes

    def compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = list(_tensors((args, kwargs)))
        here = [self.on_device(tensor) for tensor in given]
        packet = func.overloadpacket
        if any(here):
            if not all(here):
                self._check(func, packet, args, kwargs, given, here)
            if packet in WAITING or (packet in INDEXING and _has_mask(args[1])):
                self._wait(str(packet).removeprefix("aten."))
        if not func.is_view and (any(here) or self._made_here):
            self.operations += 1
        out = func(*args, **kwargs)
        on_device = any(here) if self._made_here is None or any(here) else self._made_here
        if given and self._made_here is False and packet is aten.clone:
            on_device = False
        known = {_storage(tensor)._cdata for tensor in given}
        for tensor in _tensors(out):
            if _storage(tensor)._cdata not in known:
                self.mark(tensor, on_device)
        return out

    def _check(
        self,
        func: Any,
        packet: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: list[Tensor],
        here: list[bool],
    ) -> None:
        """Raise MixedDevices unless torch allows this operation to mix devices."""
        host = [tensor for tensor, there in zip(given, here, strict=True) if not there]
        if packet in COPIES:
            if here[0]:
                self._copied("copy")
            else:
                self._wait("copy to the host")
            return
        if packet in INDEXING and here[0]:
            indices = {id(tensor) for tensor in _tensors(args[1])}
            if all(id(tensor) in indices or tensor.dim() == 0 for tensor in host):
                if any(id(tensor) in indices for tensor in host):
                    self._copied("index")
                return
        if packet in SCALARS_ALLOWED or torch.Tag.pointwise in func.tags:
            written = {id(tensor) for tensor in _written(func, args, kwargs)}
            if all(tensor.dim() == 0 and id(tensor) not in written for tensor in host):
                return
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in host)
        raise MixedDevices(f"{func}: device tensors meet host tensors of shape {shapes}, at {_caller()}")


class _Generator(torch.Generator):
    """A generator on the host, whatever the device."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return torch._C.Generator()


class _Autocast(torch.autocast):
    """On the device as on the host: which operations run in bfloat16 is what torch does on a CPU."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if _is_device(device_type) else device_type, *args, **kwargs)


class _Functions(TorchFunctionMode):
    def __init__(self, emulated: Emulated) -> None:
        super().__init__()
        self.emulated = emulated

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Pinned memory of the host is memory of the host; without a GPU there is none.
        kwargs = {name: value for name, value in (kwargs or {}).items() if name != "pin_memory"}
        return self.emulated.call(func, args, kwargs)


class _Operations(TorchDispatchMode):
    def __init__(self, emulated: Emulated) -> None:
        super().__init__()
        self.emulated = emulated

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            return self.emulated.compute(func, args, kwargs or {})


class _Move(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, emulated: Emulated, to_device: bool) -> Tensor:
        ctx.emulated, ctx.to_device = emulated, to_device
        return emulated.copy(tensor, to_device)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.emulated.copy(grads[0], not ctx.to_device), None, None


# ---- functions of tensors that know about devices


def _device(emulated: Emulated, func: Any, ours: Tensor, args: Any, kwargs: Any) -> torch.device:
    return DEVICE if emulated.on_device(ours) else torch.device("cpu")


def _to(emulated: Emulated, func: Any, ours: Tensor, args: Any, kwargs: Any) -> Tensor:
    here = emulated.on_device(ours)
    other = kwargs.get("other", args[0] if args else None)
    if isinstance(other, Tensor):
        device, dtype = _device(emulated, func, other, (), {}), other.dtype
        layout = None
    else:
        device, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
    if device is not None and here != _is_device(device):
        ours = emulated.move(ours, not here)
    if dtype is not None and dtype != ours.dtype:
        ours = func(ours, dtype)
    return ours if layout is None else ours.contiguous(memory_format=layout)


def _numpy(emulated: Emulated, func: Any, ours: Tensor, args: Any, kwargs: Any) -> Any:
    if emulated.on_device(ours):
        raise TypeError("can't convert a device tensor to numpy; use Tensor.cpu() first")
    return func(ours, *args, **kwargs)


def _read(emulated: Emulated, func: Any, ours: Tensor, args: Any, kwargs: Any) -> Any:
    if emulated.on_device(ours):
        emulated._wait(func.__name__)
    with emulated._quietly():
        return func(ours, *args, **kwargs)


def _deepcopy(emulated: Emulated, func: Any, ours: Tensor, args: Any, kwargs: Any) -> Tensor:
    here = emulated.on_device(ours)
    with emulated._quietly():  # storages are copied by hand, past their marks
        out: Tensor = func(ours, *args, **kwargs)
    emulated.mark(out, here)
    if out.grad is not None:
        emulated.mark(out.grad, here)
    return out


def _new_tensor(emulated: Emulated, func: Any, ours: Tensor, args: Any, kwargs: Any) -> Tensor:
    device = kwargs.pop("device", None)
    out: Tensor = func(ours, *args, **kwargs)
    on_device = emulated.on_device(ours) if device is None else _is_device(device)
    emulated.mark(out, on_device)
    if on_device:
        emulated._copied("new_tensor")
    return out


_ON_TENSORS: dict[Any, Callable[..., Any]] = {
    Tensor.device.__get__: _device,  # type: ignore[attr-defined]
    Tensor.is_cuda.__get__: lambda e, f, ours, *_: e.on_device(ours),  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda e, f, ours, *_: not e.on_device(ours),  # type: ignore[attr-defined]
    Tensor.get_device: lambda e, f, ours, *_: 0 if e.on_device(ours) else -1,
    Tensor.to: _to,
    Tensor.cpu: lambda e, f, ours, *_: _to(e, Tensor.to, ours, ("cpu",), {}),
    Tensor.cuda: lambda e, f, ours, *_: _to(e, Tensor.to, ours, ("cuda",), {}),
    Tensor.type_as: lambda e, f, ours, args, kwargs: _to(e, Tensor.to, ours, args, {}),
    Tensor.numpy: _numpy,
    Tensor.__array__: _numpy,
    Tensor.tolist: _read,
    Tensor.__repr__: _read,
    Tensor.__format__: _read,
    Tensor.__deepcopy__: _deepcopy,
    Tensor.new_tensor: _new_tensor,
}


def _storage(tensor: Tensor) -> Any:
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The arguments that an operation writes to."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(args[place] if place < len(args) else kwargs.get(argument.name))


def _has_mask(indices: Any) -> bool:
    return any(tensor.dtype in (torch.bool, torch.uint8) for tensor in _tensors(indices))


def _is_device(device: Any) -> bool:
    return type(device) is int or torch.device(device).type == DEVICE.type


def _caller() -> str:
    """File and line of the innermost frame in the package, or in the tests."""
    frame = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file != Path(__file__) and file.is_relative_to(ROOT) and ".venv" not in file.parts:
            return f"{file.relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"
