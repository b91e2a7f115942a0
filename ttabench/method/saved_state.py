"""Save the attributes of an object, and restore them bitwise, in place where that is possible."""

from __future__ import annotations

import copy
import copyreg
from collections import Counter, OrderedDict, defaultdict, deque
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Memo = dict[Any, Any]  # of copy.deepcopy: id of an object → its copy

DICTS = (dict, OrderedDict, defaultdict, Counter)
LISTS = (list, deque)
CONTAINERS = frozenset((*DICTS, *LISTS, set))


class Saved:
    """A deep copy of the attributes of `owner`, except those named in `kept`.

    The first :meth:`restore` gives the owner a deep copy of what was saved. The later ones write the saved
    values into the objects of this copy: tensors, modules, optimisers, lists, dictionaries, sets and plain
    objects. Objects of other kinds are copied each time. If an object can no longer be written to, for
    example a parameter that got another storage, everything is copied again. Attributes and contents that
    came later are removed. References to the owner itself and to the attributes in `kept` stay references.

    It can be pickled and deep-copied with its owner; the copy is independent.
    """

    def __init__(self, owner: Any, kept: tuple[str, ...]) -> None:
        attributes = {name: value for name, value in vars(owner).items() if name not in kept}
        self._marks = {name: _Mark() for name in ("", *kept) if not name or name in vars(owner)}
        memo = {id(_kept(owner, name)): mark for name, mark in self._marks.items()}
        self._attributes = copy.deepcopy(attributes, memo)
        self._twin: _Twin | None = None

    def restore(self, owner: Any) -> None:
        """Give `owner` the saved attributes; it keeps those in `kept` and loses all others."""
        marked = {id(mark): _kept(owner, name) for name, mark in self._marks.items()}
        twin, self._twin = self._twin, None
        if twin is None or not twin.restored(marked):
            twin = None  # frees its memory before the next copy is made
            twin = _Twin(self._attributes, marked)
        kept = {name: _kept(owner, name) for name in self._marks if name}
        vars(owner).clear()
        vars(owner).update(twin.live, **kept)
        self._twin = twin

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_twin": None}

    def __deepcopy__(self, memo: Memo) -> Saved:
        twin = object.__new__(Saved)
        vars(twin).update(self.__getstate__())  # saved values never change, so copies share them
        return twin


class _Mark:
    """Stands in saved values for the owner or for one of the attributes that it keeps."""


def _kept(owner: Any, name: str) -> Any:
    return vars(owner)[name] if name else owner


class _NotInPlace(Exception):
    """Some saved object can neither be restored in place nor be copied without the others."""


class _Facts(NamedTuple):
    """Properties of a tensor that must be unchanged before its memory is written to."""

    kind: type
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    address: int

    @classmethod
    def of(cls, tensor: Tensor) -> _Facts:
        return cls(type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.data_ptr())


class _Contents(NamedTuple):
    """What a live object gets: `values`, and at the keys of `copied` a fresh copy of a saved value."""

    thing: Any
    values: Any
    copied: tuple[tuple[Any, Any], ...]


class _Twin:
    """A deep copy `live` of saved attributes that can be restored in place.

    marked   id of a mark in the saved values → the object that it stands for.
    """

    def __init__(self, saved: dict[str, Any], marked: Memo) -> None:
        copies: Memo = dict(marked)
        self.live: dict[str, Any] = copy.deepcopy(saved, copies)
        # Ids, since references would be circular.
        self._marked = {key: id(thing) for key, thing in marked.items()}
        self._known: Memo = {}  # id of a saved object → the live one, which is the same after each restore
        self._objects: list[tuple[Any, type]] = []
        self._factories: list[tuple[Any, Any]] = []  # of each defaultdict
        self._with_attributes: list[Any] = []  # dictionaries that could have attributes, but had none
        self._contents: list[_Contents] = []
        self._tensors: list[tuple[Tensor, _Facts, bool, Tensor | None]] = []
        self._storages: dict[int, tuple[Tensor, Tensor, int]] = {}  # live, saved, bytes
        self._storage_copies: Memo = {}
        self._in_place = True
        try:
            _Pairing(self, copies).pair(saved)
        except _NotInPlace:
            self._in_place = False

    @torch.no_grad()
    def restored(self, marked: Memo) -> bool:
        """Write the saved values into the live objects; False, without a change, if that is impossible."""
        same_owner = self._marked == {key: id(thing) for key, thing in marked.items()}
        if not (self._in_place and same_owner and self._writable()):
            return False
        if self._storages:
            now, saved, _ = zip(*self._storages.values(), strict=True)
            torch._foreach_copy_(now, saved)
        for tensor, _, requires_grad, grad in self._tensors:
            if tensor.requires_grad != requires_grad:
                tensor.requires_grad_(requires_grad)
            if tensor.grad is not grad:
                tensor.grad = grad
        memo: Memo = {**self._known, **marked, "torch": dict(self._storage_copies)}
        for thing, values, copied in self._contents:
            if copied:
                values = values.copy()
                for key, value in copied:
                    values[key] = copy.deepcopy(value, memo)
            if type(thing) not in CONTAINERS:
                thing = vars(thing)
            if thing or values:
                _fill(thing, values)
        return True

    def _writable(self) -> bool:
        return (
            all(type(thing) is kind for thing, kind in self._objects)
            and all(thing.default_factory is factory for thing, factory in self._factories)
            and not any(map(vars, self._with_attributes))
            and all(whole.untyped_storage().nbytes() == size for whole, _, size in self._storages.values())
            and all(_is_plain(now) and _Facts.of(now) == facts for now, facts, _, _ in self._tensors)
        )


class _Pairing:
    """Finds for every saved object the live one that was copied from it, and notes the values it gets."""

    def __init__(self, twin: _Twin, copies: Memo) -> None:
        self.twin = twin
        self.copies = copies
        self.queue: list[tuple[Any, Any]] = []

    def pair(self, saved: dict[str, Any]) -> None:
        self.twin._known[id(saved)] = self.twin.live
        self.queue.append((saved, self.twin.live))
        while self.queue:
            before, now = self.queue.pop()
            kind = type(before)
            if kind in DICTS:
                items = [(self.live(key), value) for key, value in before.items()]
                values: Any = dict(now)
            elif kind in LISTS:
                items, values = list(enumerate(before)), list(now)
            elif kind is set:
                items, values = [], set(now)
            else:
                self.twin._objects.append((now, kind))
                # An optimiser makes new hooks for itself; `copies` does not have them.
                items = [(k, v) for k, v in vars(before).items() if self.live(v) is vars(now)[k]]
                values = dict(vars(now))
            copied = tuple((key, value) for key, value in items if not self.stays(value))
            self.twin._contents.append(_Contents(now, values, copied))

    def live(self, saved: Any) -> Any:
        return self.copies.get(id(saved), saved)

    def stays(self, saved: Any) -> bool:
        """Whether the live object that belongs to `saved` is the same after every restore."""
        now, kind = self.live(saved), type(saved)
        if id(saved) in self.twin._known or now is saved or kind is _Mark:
            return True
        if type(now) is not kind:
            return False
        if kind in (tuple, frozenset):
            parts = [self.stays(part) for part in saved]  # a list, so that every part is visited
            unchanged = all(parts)
        elif kind is MethodType:
            unchanged = self.stays(saved.__self__)
        elif isinstance(saved, Tensor):
            self.take_tensor(saved, now)
            unchanged = True
        else:
            unchanged = self.can_be_filled(saved, now)
            if unchanged:
                self.queue.append((saved, now))
        if unchanged:
            self.twin._known[id(saved)] = now
        return unchanged

    def can_be_filled(self, saved: Any, now: Any) -> bool:
        """Whether an object consists only of its contents or attributes, and these were copied one by one."""
        kind = type(saved)
        if kind in CONTAINERS:
            if kind is defaultdict:
                if saved.default_factory is not now.default_factory:
                    return False
                self.twin._factories.append((now, now.default_factory))
            if hasattr(saved, "__dict__"):
                if vars(saved):
                    return False
                self.twin._with_attributes.append(now)
            return kind in LISTS or all(map(self.stays, saved))
        if not hasattr(saved, "__dict__") or list(vars(saved)) != list(vars(now)):
            return False
        others = [value for key, value in vars(now).items() if self.live(vars(saved)[key]) is not value]
        if not isinstance(saved, torch.optim.Optimizer):
            return not others and _has_only_attributes(saved)
        hooks = [value for value in others if type(value) is OrderedDict and not value]
        self.queue += [(OrderedDict(), hook) for hook in hooks]
        return all(isinstance(value, str) for value in others if not any(value is hook for hook in hooks))

    def take_tensor(self, saved: Tensor, now: Tensor) -> None:
        if type(now) not in (Tensor, nn.Parameter) or not (_is_plain(saved) and _is_plain(now)):
            raise _NotInPlace  # its storage may be that of another tensor
        facts, storage = _Facts.of(now), now.untyped_storage()
        size = storage.nbytes()
        same_layout = (
            facts[:-1] == _Facts.of(saved)[:-1]
            and saved.storage_offset() == now.storage_offset()
            and saved.requires_grad == now.requires_grad
            and saved.untyped_storage().nbytes() == size
            and size % now.element_size() == 0
        )
        if not same_layout or (saved.grad is not None and not self.stays(saved.grad)):
            raise _NotInPlace
        if storage._cdata not in self.twin._storages:
            self.twin._storages[storage._cdata] = _whole(now), _whole(saved), size
            self.twin._storage_copies[saved.untyped_storage()._cdata] = storage
        self.twin._tensors.append((now, facts, saved.requires_grad, now.grad))


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is a leaf with strided memory, without hooks and without attributes."""
    return (
        tensor.layout is torch.strided
        and tensor.is_leaf
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta or tensor.is_inference())
        and not (tensor.is_conj() or tensor.is_neg())
        and tensor._backward_hooks is None
        and tensor._post_accumulate_grad_hooks is None
        and not vars(tensor)
    )


def _whole(tensor: Tensor) -> Tensor:
    """All memory of a tensor's storage as one row of its type, with the tensor's version counter."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.detach().as_strided((count,), (1,), 0)


def _has_only_attributes(thing: Any) -> bool:
    """Whether an object is copied by the rules of `object`, from its ``__dict__`` alone."""
    kind: Any = type(thing)
    copy_rules = ("__deepcopy__", "__getnewargs__", "__getnewargs_ex__")
    if any(hasattr(kind, name) for name in copy_rules) or kind in copyreg.dispatch_table:
        return False
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return False
    if kind.__getstate__ not in (
        object.__getstate__,
        nn.Module.__getstate__,
    ):  # torch's leaves out compiled code
        return False
    try:
        _, _, state, *contents = thing.__reduce_ex__(4)
    except TypeError:  # the object has memory that Python does not see
        return False
    return isinstance(state, dict | None) and not any(part is not None for part in contents)


def _fill(thing: Any, values: Any) -> None:
    """Replace the contents of a dictionary, list or set."""
    thing.clear()
    if type(thing) in LISTS:
        thing.extend(values)
    else:
        thing.update(values)
