"""The state of a method as JSON data and arrays, and back into a method that was prepared in the same way.

Everything reachable from the attributes of a method is walked: modules, optimisers, tensors, containers,
random generators. Code (functions, classes) is not stored, since the prepared method has it. Values go back
*into* the objects of the prepared method wherever it has one of the same kind at the same place, so that
an optimiser still holds the parameters of the model. No pickle is written or read. A state can create objects
only of classes of the method's own package and of ttabench, and this calls none of their code.
"""

from __future__ import annotations

import base64
import copy
import io
import math
import sys
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import _lru_cache_wrapper, partial
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SKIPPED = ("_prepared",)  # the state that `Method.reset` restores; `prepare` makes it again
CODE = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType, torch.dtype, torch.device,
        torch.memory_format, _lru_cache_wrapper, weakref.ref)  # fmt: skip
DICTS: dict[str, type] = {c.__name__: c for c in (dict, OrderedDict, defaultdict, Counter)}
ROWS: dict[str, type] = {c.__name__: c for c in (list, deque, set)}
OURS = "ttabench"

Node = Any  # JSON data
Arrays = dict[str, NDArray[Any]]


class NotStorable(Exception):
    """A state has a value that cannot be stored, or a stored state does not fit a method."""


def store(method: object) -> tuple[Node, Arrays]:
    """The state of a method. Raises NotStorable."""
    encoder = _Encoder()
    try:
        node = encoder.instance(method, type(method).__name__)
    except (ValueError, TypeError, RecursionError) as problem:  # an empty closure, a tensor without storage
        raise NotStorable(f"it cannot be read ({type(problem).__name__}: {problem})") from None
    return node, encoder.arrays


def restore(method: object, node: Node, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put a stored state into a method that was prepared in the same way. Raises NotStorable.

    After an error the method is unusable until its `reset`.
    """
    package = type(method).__module__.partition(".")[0]
    try:
        _Decoder(arrays, {package, OURS}).into_object(method, node, type(method).__name__)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as problem:
        raise NotStorable(f"the stored state does not fit ({type(problem).__name__}: {problem})") from None


def check(method: Any) -> None:
    """Raise NotStorable unless the state of a method, stored and put into a fresh one, is the same state."""
    node, arrays = store(method)
    fresh = object.__new__(type(method))
    fresh.counts = Counter()
    copy.deepcopy(method._prepared).restore(fresh)
    restore(fresh, node, arrays)
    node_again, arrays_again = store(fresh)
    same = node == node_again and arrays.keys() == arrays_again.keys()
    if not same or any(arrays[k].tobytes() != arrays_again[k].tobytes() for k in arrays):
        raise NotStorable("a restored state is not the same as the stored one")


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        names = base.__dict__.get("__slots__", ())
        yield from (names,) if isinstance(names, str) else names


def _attributes(thing: object) -> dict[str, Any]:
    """Attributes in slots and in `__dict__`."""
    in_slots = {
        name: getattr(thing, name)
        for name in _slots(type(thing))
        if name not in ("__dict__", "__weakref__") and hasattr(thing, name)
    }
    return {**in_slots, **{k: v for k, v in getattr(thing, "__dict__", {}).items() if k not in SKIPPED}}


class _Encoder:
    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._numbers: dict[int, int] = {}
        self._alive: list[object] = []  # an id is unique only while its object lives

    def encode(self, thing: Any, path: str) -> Node:
        if thing is None or isinstance(thing, bool) or type(thing) in (int, str):
            return thing
        if type(thing) is float:
            return thing if math.isfinite(thing) else {"kind": "float", "value": repr(thing)}
        if isinstance(thing, bytes):
            return {"kind": "bytes", "value": base64.b64encode(thing).decode()}
        if isinstance(thing, np.generic):
            return {"kind": "scalar", "array": self._keep(np.asarray(thing), path)}
        if isinstance(thing, torch.Size):
            return {"kind": "size", "items": list(thing)}
        if type(thing) is tuple:
            return {"kind": "tuple", "items": self._items(thing, path)}
        if isinstance(thing, tuple) and hasattr(thing, "_fields"):
            return {"kind": "named", "class": _name(type(thing)), "items": self._items(thing, path)}
        if isinstance(thing, (*CODE, partial)):
            return self._code(thing, path)
        if id(thing) in self._numbers:
            return {"kind": "same", "number": self._numbers[id(thing)]}
        return self._numbered(thing, path)

    def _numbered(self, thing: Any, path: str) -> Node:
        number = self._number(thing)
        if isinstance(thing, Tensor):
            return {**self._tensor(thing, path), "number": number}
        if isinstance(thing, np.ndarray):
            return {"kind": "ndarray", "array": self._keep(thing, path), "number": number}
        if type(thing) in DICTS.values():
            return {**self._dict(thing, path), "number": number}
        if type(thing) in ROWS.values():
            items = sorted(thing, key=repr) if isinstance(thing, set) else thing
            node = {"kind": type(thing).__name__, "items": self._items(items, path), "number": number}
            return node | ({"most": thing.maxlen} if isinstance(thing, deque) else {})
        if isinstance(thing, torch.optim.Optimizer):
            state = thing.state_dict()
            self._alive.append(state)
            return {"kind": "optimizer", "state": self.encode(state, path), "number": number}
        if isinstance(thing, torch.Generator):
            return {
                "kind": "generator",
                "array": self._keep(thing.get_state().numpy(), path),
                "number": number,
            }
        if isinstance(thing, np.random.Generator):
            numbers = dict(thing.bit_generator.state)
            self._alive.append(numbers)
            return {"kind": "numpy", "state": self.encode(numbers, path), "number": number}
        if isinstance(thing, Random):
            return {"kind": "random", "state": self.encode(thing.getstate(), path), "number": number}
        if isinstance(thing, io.IOBase) or not (
            hasattr(thing, "__dict__") or hasattr(type(thing), "__slots__")
        ):
            raise NotStorable(f"{path} is a {type(thing).__name__}")
        return self.instance(thing, path, number)

    def instance(self, thing: object, path: str, number: int | None = None) -> Node:
        number = self._number(thing) if number is None else number
        parts = {name: self.encode(value, f"{path}.{name}") for name, value in _attributes(thing).items()}
        return {"kind": "object", "class": _name(type(thing)), "number": number, "parts": parts}

    def _number(self, thing: object) -> int:
        self._alive.append(thing)
        return self._numbers.setdefault(id(thing), len(self._numbers))

    def _items(self, things: Any, path: str) -> list[Node]:
        return [self.encode(part, f"{path}[{place}]") for place, part in enumerate(things)]

    def _dict(self, thing: Any, path: str) -> Node:
        for key in thing:
            if not isinstance(key, (str, int, float, tuple, type(None))) and id(key) not in self._numbers:
                raise NotStorable(f"{path} has a key of type {type(key).__name__}")
        keys = [self.encode(key, path) for key in thing]
        values = [self.encode(value, f"{path}.{key}") for key, value in thing.items()]
        return {"kind": type(thing).__name__, "keys": keys, "values": values}

    def _code(self, thing: Any, path: str) -> Node:
        """A function is not stored, only the variables that it captures."""
        node = {"kind": "code", "name": getattr(thing, "__qualname__", type(thing).__name__)}
        if isinstance(thing, MethodType):
            owner = thing.__self__
            return node if isinstance(owner, type) else {**node, "closed": [self.encode(owner, path)]}
        if isinstance(thing, partial):
            parts = (thing.func, *thing.args, *thing.keywords.values())
            return {**node, "closed": [self.encode(part, path) for part in parts]}
        cells = getattr(thing, "__closure__", None) or ()
        return {**node, "closed": [self.encode(cell.cell_contents, path) for cell in cells]}

    def _tensor(self, thing: Tensor, path: str) -> Node:
        if thing.grad_fn is not None or thing.layout != torch.strided:
            raise NotStorable(f"{path} is a tensor with a gradient graph, or is not dense")
        node: dict[str, Any] = {
            "kind": "parameter" if isinstance(thing, nn.Parameter) else "tensor",
            "dtype": str(thing.dtype).removeprefix("torch."), "device": str(thing.device),
            "shape": list(thing.shape), "requires_grad": thing.requires_grad,
            "array": self._keep(_bytes_of(thing), path),
        }  # fmt: skip
        if not thing.is_contiguous() and 0 not in thing.stride():
            node["stride"] = list(thing.stride())
        if thing.is_leaf and thing.grad is not None:
            node["grad"] = self.encode(thing.grad, f"{path}.grad")
        return node

    def _keep(self, array: NDArray[Any], path: str) -> str:
        if array.dtype.hasobject:
            raise NotStorable(f"{path} is an array of objects")
        name = f"a{len(self.arrays)}"
        self.arrays[name] = np.array(array)  # a copy, since the method goes on
        return name


def _bytes_of(thing: Tensor) -> NDArray[np.uint8]:
    flat = thing.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)


class _Decoder:
    def __init__(self, arrays: Mapping[str, NDArray[Any]], packages: set[str]) -> None:
        self._arrays, self._packages = arrays, packages
        self._made: dict[int, Any] = {}
        self._taken: set[int] = set()  # ids of the fresh objects that already got a state

    def decode(self, node: Node, fresh: Any, path: str) -> Any:
        if not isinstance(node, dict):
            return node
        kind = node["kind"]
        if kind == "float":
            return float(node["value"])
        if kind == "bytes":
            return base64.b64decode(node["value"])
        if kind == "scalar":
            return self._arrays[node["array"]][()]
        if kind == "size":
            return torch.Size(node["items"])
        if kind in ("tuple", "named"):
            return self._tuple(node, fresh, path)
        if kind == "code":
            return self._code(node, fresh, path)
        if kind == "same":
            return self._made[node["number"]]
        if id(fresh) in self._taken:
            fresh = None
        return getattr(self, f"_{'row' if kind in ROWS else 'dict' if kind in DICTS else kind}")(
            node, fresh, path
        )

    def into_object(self, thing: Any, node: Node, path: str) -> Any:
        if _name(type(thing)) != node["class"]:
            raise NotStorable(f"{path} was a {node['class'].partition(':')[2]}")
        self._note(node, thing)
        before = _attributes(thing)
        instance_dict = getattr(thing, "__dict__", {})
        after = {
            name: self.decode(part, before.get(name), f"{path}.{name}")
            for name, part in node["parts"].items()
        }
        slots = set(_slots(type(thing)))
        for name in (before.keys() - after.keys()) & slots:
            object.__delattr__(thing, name)
        for name in after.keys() & slots:
            if name not in before or before[name] is not after[name]:
                object.__setattr__(thing, name, after[name])
        if hasattr(thing, "__dict__"):  # refilled in the order in which it was stored
            skipped = {name: instance_dict[name] for name in SKIPPED if name in instance_dict}
            instance_dict.clear()
            instance_dict.update(
                {name: value for name, value in after.items() if name not in slots}, **skipped
            )
        return thing

    def _object(self, node: Node, fresh: Any, path: str) -> Any:
        if fresh is None or _name(type(fresh)) != node["class"]:
            cls = self._class(node["class"], path)
            fresh = cls.__new__(cls)
        return self.into_object(fresh, node, path)

    def _class(self, name: str, path: str) -> Any:
        """A class of the method's package or of ttabench, by name. Nothing is imported."""
        module, _, qualified = name.partition(":")
        if (
            module.partition(".")[0].partition("_")[0] != OURS
            and module.partition(".")[0] not in self._packages
        ):
            raise NotStorable(f"{path} is a {qualified} of {module}, which a fresh method does not have")
        value: Any = sys.modules[module]
        for part in qualified.split("."):
            value = getattr(value, part)
        if not isinstance(value, type):
            raise NotStorable(f"{path}: {name} is not a class")
        return value

    def _note(self, node: Node, thing: Any) -> None:
        self._made[node["number"]] = thing
        self._taken.add(id(thing))

    def _tuple(self, node: Node, fresh: Any, path: str) -> Any:
        current = fresh if isinstance(fresh, tuple) and len(fresh) == len(node["items"]) else None
        items = [
            self.decode(item, current[place] if current is not None else None, f"{path}[{place}]")
            for place, item in enumerate(node["items"])
        ]
        if current is not None and all(a is b for a, b in zip(current, items, strict=True)):
            return current
        if node["kind"] == "tuple":
            return tuple(items)
        cls = self._class(node["class"], path)
        return tuple.__new__(cls, items)

    def _row(self, node: Node, fresh: Any, path: str) -> Any:
        cls = ROWS[node["kind"]]
        options = {"maxlen": node["most"]} if "most" in node else {}
        same_type = type(fresh) is cls and getattr(fresh, "maxlen", None) == node.get("most")
        current = list(fresh) if same_type and cls is not set else []
        row = fresh if same_type else cls((), **options)
        self._note(node, row)
        items = [
            self.decode(item, current[place] if place < len(current) else None, f"{path}[{place}]")
            for place, item in enumerate(node["items"])
        ]
        row.clear()
        row.update(items) if cls is set else row.extend(items)
        return row

    def _dict(self, node: Node, fresh: Any, path: str) -> Any:
        cls = DICTS[node["kind"]]
        same_type = type(fresh) is cls
        if not same_type and cls is defaultdict:
            raise NotStorable(f"{path} is a defaultdict, which a fresh method does not have")
        dictionary = fresh if same_type else cls()
        self._note(node, dictionary)
        current = dict(dictionary)
        current_values = list(current.values())
        only_hooks = all(isinstance(value, dict) and value.get("kind") == "code" for value in node["values"])
        if only_hooks and len(current_values) == len(node["values"]):  # the keys of hooks count registrations
            for value, current_value in zip(node["values"], current_values, strict=True):
                self.decode(value, current_value, path)
            return dictionary
        keys = [self.decode(key, None, path) for key in node["keys"]]
        values = [
            self.decode(value, current.get(key), f"{path}.{key}")
            for key, value in zip(keys, node["values"], strict=True)
        ]
        dictionary.clear()
        for key, value in zip(keys, values, strict=True):
            dictionary[key] = value
        return dictionary

    def _code(self, node: Node, fresh: Any, path: str) -> Any:
        name = getattr(fresh, "__qualname__", type(fresh).__name__)
        if not isinstance(fresh, (*CODE, partial)) or name != node["name"]:
            raise NotStorable(f"{path} is code ({node['name']}) that a fresh method does not have")
        captured = node.get("closed", ())
        if isinstance(fresh, MethodType):
            for part in captured:
                self.decode(part, fresh.__self__, path)
        elif isinstance(fresh, partial):
            parts = (fresh.func, *fresh.args, *fresh.keywords.values())
            for part, current_value in zip(captured, parts, strict=True):
                if self.decode(part, current_value, path) is not current_value and isinstance(part, dict):
                    raise NotStorable(f"{path} is a partial function whose arguments changed")
        else:
            for part, cell in zip(captured, getattr(fresh, "__closure__", None) or (), strict=True):
                value = self.decode(part, cell.cell_contents, path)
                if value is not cell.cell_contents:
                    cell.cell_contents = value
        return fresh

    def _tensor(self, node: Node, fresh: Any, path: str) -> Tensor:
        dtype, shape = getattr(torch, node["dtype"]), node["shape"]
        data = torch.from_numpy(np.array(self._arrays[node["array"]], np.uint8))
        value = data.view(dtype).reshape(shape) if data.numel() else torch.empty(shape, dtype=dtype)
        stride = node.get("stride")
        same_layout = (
            isinstance(fresh, Tensor)
            and isinstance(fresh, nn.Parameter) == (node["kind"] == "parameter")
            and (str(fresh.dtype), str(fresh.device)) == (f"torch.{node['dtype']}", node["device"])
            and list(fresh.shape) == shape
            and (list(fresh.stride()) == stride if stride else fresh.is_contiguous())
            and fresh.grad_fn is None
        )
        if same_layout:
            with torch.no_grad():
                fresh.copy_(value)
            tensor: Tensor = fresh
        else:
            tensor = (
                torch.empty_strided(shape, stride, dtype=dtype) if stride else torch.empty(shape, dtype=dtype)
            )
            tensor.copy_(value)
            tensor = tensor.to(node["device"])
            if node["kind"] == "parameter":
                tensor = nn.Parameter(tensor, requires_grad=False)
        tensor.requires_grad_(node["requires_grad"])
        self._note(node, tensor)
        tensor.grad = self.decode(node["grad"], None, path) if "grad" in node else None
        return tensor

    _parameter = _tensor

    def _ndarray(self, node: Node, fresh: Any, path: str) -> Any:
        value = np.array(self._arrays[node["array"]])
        if isinstance(fresh, np.ndarray) and (fresh.shape, fresh.dtype) == (value.shape, value.dtype):
            fresh[...] = value
            value = fresh
        self._note(node, value)
        return value

    def _optimizer(self, node: Node, fresh: Any, path: str) -> Any:
        if not isinstance(fresh, torch.optim.Optimizer):
            raise NotStorable(f"{path} is an optimiser that a fresh method does not have")
        self._note(node, fresh)
        fresh.load_state_dict(self.decode(node["state"], None, path))
        return fresh

    def _generator(self, node: Node, fresh: Any, path: str) -> Any:
        generator = fresh if isinstance(fresh, torch.Generator) else torch.Generator()
        generator.set_state(torch.from_numpy(np.array(self._arrays[node["array"]])))
        self._note(node, generator)
        return generator

    def _numpy(self, node: Node, fresh: Any, path: str) -> Any:
        if not isinstance(fresh, np.random.Generator):
            raise NotStorable(f"{path} is a random generator that a fresh method does not have")
        self._note(node, fresh)
        fresh.bit_generator.state = self.decode(node["state"], None, path)
        return fresh

    def _random(self, node: Node, fresh: Any, path: str) -> Any:
        generator = fresh if isinstance(fresh, Random) else Random()
        self._note(node, generator)
        generator.setstate(self.decode(node["state"], None, path))
        return generator
