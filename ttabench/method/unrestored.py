"""What :meth:`Method.reset` does not restore, found before the first image.

A reset replaces what a method had after `prepare` by copies. Some things are missing in a copy without a
warning, and a function in it still uses the originals. Then the numbers would be those of another method.
What modules and classes hold is not checked.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import dis
import enum
import functools
import inspect
import itertools
import pathlib
import re
import sys
import sysconfig
import weakref
from collections import deque
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ttabench.classifier import Classifier
from ttabench.method.contract import Method

Named = Iterator[tuple[str, Any]]

CONSTANT = (
    bool, int, float, complex, str, bytes, type(None), type(...), range, slice, enum.Enum, np.generic,
    re.Pattern, pathlib.PurePath, weakref.ref, type, ModuleType, torch.dtype, torch.device,
    torch.memory_format, torch.layout,
)  # fmt: skip
"""What cannot change, or is code: a copy shares it with its original."""
CODE = (FunctionType, BuiltinFunctionType, functools._lru_cache_wrapper)
"""Functions: a copy shares them with its original, and with them what they hold."""
FILLED = (list, dict, set, deque, Tensor)
TORCH, STANDARD = torch.__path__[0], sysconfig.get_path("stdlib")
SHOWN = ("_modules", "_parameters", "_buffers")
"""Where a module keeps what looks like its attributes."""

COMPILED = "_compiled_call_impl"
"""The code that a module was compiled to; its copy runs without."""


def unrestored(method: Method[Any], classifier: Classifier) -> str:
    """What a reset of a prepared method loses or leaves as it is, and how to write it; "" for nothing.

    classifier  the network that the method got; functions that this has too are not the method's.
    """
    known = {id(part) for _, part in _reached(vars(classifier), classifier) if isinstance(part, CODE)}
    attributes = {name: value for name, value in vars(method).items() if name not in ("_prepared", "counts")}
    for path, part in _reached(attributes, method):
        problem = ""
        if isinstance(part, Tensor):
            problem = _of_tensor(part, path)
        elif isinstance(part, Optimizer):
            problem = _of_optimiser(part, path)
        elif isinstance(part, CODE) and id(part) not in known:
            problem = _of_function(part, path, method)
        if problem:
            return f"reset() {problem}"
    return ""


def original_of_compiled(module: nn.Module) -> nn.Module | None:
    """The module that `torch.compile` was called with; None for one that is not compiled.

    All else in a compiled module is torch's, and a copy makes it anew.
    """
    parts = vars(module).get("_modules")
    return parts.get("_orig_mod") if isinstance(parts, dict) else None


def _of_tensor(tensor: Tensor, path: str) -> str:
    kind = "parameter" if isinstance(tensor, nn.Parameter) else "tensor"
    if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
        return (
            f"loses the hooks of the {kind} `{path}`; change gradients in adapt(), or hook the layer with a "
            "method of the class"
        )
    if type(tensor).__deepcopy__ is not nn.Parameter.__deepcopy__:
        return ""  # copies of other tensors have their attributes
    for name, value in vars(tensor).items():
        if not _is_flag(name, value):
            return f"loses `{path}.{name}`, an attribute of a {kind}; make it an attribute of the method"
    return ""


def _of_optimiser(optimiser: Optimizer, path: str) -> str:
    kept = vars(copy.copy(optimiser))
    for name, value in vars(optimiser).items():
        if name.endswith("_hooks") and value and not kept.get(name):
            return f"loses the hooks of the optimiser `{path}`; do in adapt() what they do"
        if name not in kept and not _is_flag(name, value) and not _is_of_library(value):
            return (
                f"loses `{path}.{name}`, as a copy of an optimiser has only its `state` and `param_groups`; "
                "make it an attribute of the method, or let __getstate__() of the optimiser return vars(self)"
            )
    return ""


def _is_flag(name: str, value: Any) -> bool:
    """Whether an attribute is a mark of a library, such as what an optimiser of torch can do."""
    return name[0] == "_" and isinstance(value, bool | str)


def _of_function(function: Any, path: str, owner: Any) -> str:
    for name, value in _held(function, "", owner, set()):
        kind = type(value).__name__
        what = f"`{name}` ({kind}), which" if name else f"the {kind} that"
        return (
            f"does not restore {what} the function `{path}` holds; make the function a method of the class, "
            "and what it holds an attribute of the method"
        )
    return ""


# ---- what a copy is made of


def _reached(attributes: dict[str, Any], owner: Any) -> Named:
    """All that is copied with the attributes of `owner`, and the functions there, by path."""
    queue: deque[tuple[str, Any]] = deque([("", attributes)])
    seen = {id(attributes), id(owner)}
    while queue:
        path, thing = queue.popleft()
        yield path, thing
        for name, part in _parts(thing):
            if id(part) not in seen and not isinstance(part, CONSTANT):
                seen.add(id(part))
                queue.append((f"{path}.{name}" if path and name else path or name, part))


def _parts(thing: Any) -> Named:
    if isinstance(thing, (Tensor, np.ndarray, *CODE)):
        return
    if isinstance(thing, MethodType | functools.partial):
        yield from (("", part) for part in _bound(thing))
    elif isinstance(thing, dict):
        for number, (key, value) in enumerate(thing.items()):
            yield str(key if isinstance(key, str | int) else number), value
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield from ((str(number), part) for number, part in enumerate(thing))
    elif isinstance(thing, nn.Module):
        yield from _parts_of_module(thing)
    elif isinstance(thing, Optimizer):
        kept = vars(copy.copy(thing))
        yield from ((name, value) for name, value in vars(thing).items() if name in kept)
    elif not _has_rules_of_its_own(thing):
        yield from _attributes(thing)


def _parts_of_module(module: nn.Module) -> Named:
    original = original_of_compiled(module)
    if original is not None:
        yield "", original
        return
    whole = not _has_rules_of_its_own(module)
    for name, value in vars(module).items():
        if name in SHOWN and isinstance(value, dict):
            yield from value.items()
        elif whole and name != COMPILED:
            yield name, value


def _attributes(thing: Any) -> Named:
    for kind in type(thing).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)
    yield from getattr(thing, "__dict__", {}).items()


def _bound(thing: MethodType | functools.partial[Any]) -> tuple[Any, ...]:
    """What a bound method or a partial call is made of."""
    if isinstance(thing, MethodType):
        return thing.__func__, thing.__self__
    return thing.func, *thing.args, *thing.keywords.values()


def _has_rules_of_its_own(thing: Any) -> bool:
    """Whether the class of an object says how it is copied."""
    kind: Any = type(thing)
    usual = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
    return hasattr(kind, "__deepcopy__") or not usual


# ---- what a function holds


def _held(thing: Any, name: str, owner: Any, seen: set[int]) -> Named:
    """What can change of what `thing` holds, by the name of its variable. `owner` stays the same object."""
    if thing is owner or id(thing) in seen or isinstance(thing, CONSTANT) or _is_stateless(thing):
        return
    seen.add(id(thing))
    parts: Named
    if isinstance(thing, FunctionType):
        reassigned = _reassigned(thing.__code__)
        for variable, value in _variables(thing):
            if variable in reassigned:
                yield variable, value
        parts = _variables(thing)
    elif isinstance(thing, functools._lru_cache_wrapper):
        parts = iter([(name, thing.__wrapped__)])
    elif isinstance(thing, BuiltinFunctionType):  # such as `append` of a list
        parts = iter([(name, thing.__self__)] if isinstance(thing.__self__, FILLED) else [])
    elif isinstance(thing, MethodType | functools.partial):
        parts = ((name, part) for part in _bound(thing))
    elif isinstance(thing, tuple | frozenset):
        parts = ((name, part) for part in thing)
    elif getattr(getattr(thing, "__dataclass_params__", None), "frozen", False):
        parts = ((name, getattr(thing, field.name)) for field in dataclasses.fields(thing))
    else:
        parts = iter(())
        yield name, thing
    for variable, part in parts:
        yield from _held(part, variable, owner, seen)


def _variables(function: FunctionType) -> Named:
    """What a function got when it was made, by variable; nothing for one of a module or a class."""
    if _is_of_module(function):
        return
    code, defaults = function.__code__, function.__defaults__ or ()
    last = code.co_varnames[: code.co_argcount][-len(defaults) or code.co_argcount :]
    variables = [*zip(last, defaults, strict=True), *(function.__kwdefaults__ or {}).items()]
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # nothing was assigned to it
            variables.append((name, cell.cell_contents))
    is_wrapper = _is_of_library(function)
    yield from ((name, value) for name, value in variables if not is_wrapper or _may_be_wrapped(value))


def _is_of_module(function: FunctionType) -> bool:
    """Whether a function is found in its module, by itself or in a class."""
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = inspect.getattr_static(found, part, None)
    return getattr(found, "__func__", found) is function


def _is_of_library(function: Any) -> bool:
    """Whether a function is written in torch or in the standard library."""
    if not isinstance(function, FunctionType):
        return False
    file = function.__code__.co_filename
    in_python = file.startswith((STANDARD, "<frozen")) and "-packages" not in file
    return in_python or file.startswith(TORCH)


def _may_be_wrapped(value: Any) -> bool:
    """Whether what a function of a library holds can be the user's, and not what the library works with."""
    if isinstance(value, MethodType):
        kind = type(value.__self__)
        return issubclass(kind, nn.Module | Tensor | Optimizer) or not kind.__module__.startswith("torch.")
    return isinstance(value, FunctionType | functools.partial)


def _reassigned(code: CodeType) -> set[str]:
    """The variables of an outer function that a function assigns to, by `nonlocal`."""
    inner = [_reassigned(part) for part in code.co_consts if isinstance(part, CodeType)]
    stored = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_DEREF"}
    return stored.union(*inner) & {*code.co_freevars}


def _is_stateless(thing: Any) -> bool:
    """Whether a module is made of layers of torch that have no tensors, such as a loss."""
    return isinstance(thing, nn.Module) and not (
        any(True for _ in itertools.chain(thing.parameters(), thing.buffers()))
        or any(not type(part).__module__.startswith("torch.nn.") for part in thing.modules())
    )
