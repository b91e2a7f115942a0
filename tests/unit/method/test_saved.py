"""What was saved comes back bitwise, whatever happened in between, and in place where that is possible."""

from __future__ import annotations

import copy
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from types import MethodType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.cases import each
from ttabench.method.saved_state import Saved

STRANGE = SimpleNamespace  # its copies are made by a rule of its own


class Owner:
    """Something whose attributes are saved."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def note(self, *_: Any) -> None:
        self.noted = True


class Plain:
    def __init__(self) -> None:
        self.rate = 0.1


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


class Pair(NamedTuple):
    left: Any
    right: Any


class CopiesItself:
    def __init__(self, held: Any) -> None:
        self.held = held

    def __deepcopy__(self, memo: dict[int, Any]) -> CopiesItself:
        return CopiesItself(copy.deepcopy(self.held, memo))


def described(thing: Any) -> list[Any]:
    """All that is reachable from `thing`: types, values bit by bit, and which objects are the same ones."""
    numbers: dict[Any, int] = {}
    alive: list[Any] = []
    told: list[Any] = []

    def number(key: Any) -> int:
        return numbers.setdefault(key, len(numbers))

    def tell(part: Any) -> None:
        if (
            part is None
            or isinstance(part, (bool, int, float, str, type))
            or (callable(part) and not hasattr(part, "__dict__"))
        ):
            told.append((type(part), repr(part)))
            return
        alive.append(part)
        known = id(part) in numbers
        told.append((type(part), number(id(part))))
        if known:
            return
        if isinstance(part, Tensor):
            store = part.untyped_storage()
            alive.append(store)
            facts = tuple(part.shape), part.stride(), part.storage_offset(), part.dtype, part.requires_grad
            told.append((facts, number(("storage", store.data_ptr())), bytes(store)))
            told.append((part._backward_hooks, part.is_leaf))
            tell(part.grad)
        elif isinstance(part, np.ndarray):
            told.append((part.dtype, part.shape, part.tobytes()))
        elif isinstance(part, torch.Generator):
            told.append(part.get_state().tolist())
        elif isinstance(part, np.random.Generator):
            told.append(repr(part.bit_generator.state))
        elif isinstance(part, MethodType):
            told.append(part.__func__)
            tell(part.__self__)
        elif isinstance(part, partial):
            tell([part.func, part.args, part.keywords])
        elif isinstance(part, dict):
            told.append(getattr(part, "default_factory", None))
            for key, value in part.items():
                tell(key)
                tell(value)
        elif isinstance(part, (list, tuple, deque)):
            told.append(len(part))
            for value in part:
                tell(value)
        elif isinstance(part, (set, frozenset)):
            for value in sorted(part, key=repr):
                tell(value)
        for slot in getattr(type(part), "__slots__", ()):
            if not isinstance(part, tuple):
                tell(getattr(part, slot))
        if not isinstance(part, Tensor) and hasattr(part, "__dict__"):
            for name, value in vars(part).items():
                if name != "counts":
                    told.append(name)
                    tell(value)

    tell(thing)
    return told


def saved(owner: Any) -> Saved:
    """Saved attributes of `owner`, which already has the copy that is restored in place."""
    state = Saved(owner, kept=("counts",))
    state.restore(owner)
    return state


def in_place(state: Saved) -> bool:
    assert state._twin is not None
    return state._twin._in_place


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))


def learner() -> Owner:
    """As methods have it: a network, its teacher, an optimiser of some parameters, moving averages."""
    student = network()
    chosen = {name: p for name, p in student.named_parameters() if "1." in name}
    return Owner(
        model=student,
        teacher=copy.deepcopy(student),
        parameters=chosen,
        optimizer=torch.optim.Adam(chosen.values(), 0.1, fused=True),
        average=None,
        norms=[student[1]],
        counts=Counter(),
    )


def learn(owner: Owner, steps: int = 2) -> None:
    for _ in range(steps):
        loss = owner.model(torch.rand(5, 3, 4, 4)).square().sum()
        owner.optimizer.zero_grad()
        loss.backward()
        owner.optimizer.step()
        owner.average = loss.detach()


# ---- single traits


def test_a_learner_comes_back_in_the_same_tensors() -> None:
    owner = learner()
    state, before = saved(owner), described(owner)
    assert in_place(state)
    objects = [owner.model, owner.optimizer, *owner.model.parameters(), *owner.teacher.buffers()]
    for _ in range(3):
        learn(owner)
        assert described(owner) != before
        state.restore(owner)
        assert described(owner) == before
        now = [owner.model, owner.optimizer, *owner.model.parameters(), *owner.teacher.buffers()]
        assert all(old is new for old, new in zip(objects, now, strict=True))
    assert next(iter(owner.parameters.values())) is owner.optimizer.param_groups[0]["params"][0]


def test_the_same_steps_give_the_same_bits_after_each_restore() -> None:
    owner = learner()
    state = saved(owner)
    ends = []
    for _ in range(3):
        torch.manual_seed(3)
        learn(owner)
        ends.append(described(owner.model))
        state.restore(owner)
    assert ends[0] == ends[1] == ends[2]


def replace_layer(owner: Owner) -> None:
    owner.model[1] = nn.Identity()


def add_attributes(owner: Owner) -> None:
    owner.new = torch.ones(3)
    owner.model.extra = nn.Linear(2, 2)
    owner.model[0].register_buffer("noise", torch.ones(1))


def delete_attributes(owner: Owner) -> None:
    del owner.teacher, owner.model[0].bias
    owner.parameters.clear()


def change_modes(owner: Owner) -> None:
    owner.model.train(not owner.model.training)
    owner.model.requires_grad_(False)
    owner.model[1].momentum = 0.5


def other_storage(owner: Owner) -> None:
    owner.model[0].weight.data = torch.zeros(4, 3, 3, 3)


def other_shape(owner: Owner) -> None:
    owner.model[3].weight.data = torch.zeros(7, 16)


def resized_buffer(owner: Owner) -> None:
    owner.model[1].running_mean.resize_(400)


def other_type(owner: Owner) -> None:
    owner.model.double()


def hooks(owner: Owner) -> None:
    owner.model[0].register_forward_hook(lambda *_: None)
    owner.model[0].weight.register_hook(lambda g: g)
    owner.optimizer.register_step_pre_hook(lambda *_: None)


def grown_optimizer(owner: Owner) -> None:
    learn(owner)
    owner.optimizer.add_param_group({"params": [owner.model[0].weight], "lr": 1.0})
    owner.optimizer.param_groups[0]["lr"] = 0.7


def other_class(owner: Owner) -> None:
    owner.model[1].__class__ = nn.BatchNorm1d


def buffer_with_history(owner: Owner) -> None:
    owner.model[1].running_mean += owner.model[1].weight


def swapped(owner: Owner) -> None:
    owner.model, owner.teacher = owner.teacher, owner.model
    owner.model[0].weight.data, owner.model[0].weight.grad = (
        owner.teacher[0].weight.data,
        torch.ones(4, 3, 3, 3),
    )


def attribute_of_a_dictionary(owner: Owner) -> None:
    owner.model._forward_hooks.mark = 1


DEEDS = (
    replace_layer, add_attributes, delete_attributes, change_modes, other_storage, other_shape,
    resized_buffer, other_type, hooks, grown_optimizer, other_class, buffer_with_history, swapped,
    attribute_of_a_dictionary,
)  # fmt: skip


@each("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_every_change_is_undone(deed: Callable[[Owner], None]) -> None:
    owner = learner()
    state, before = saved(owner), described(owner)
    for _ in range(2):
        deed(owner)
        state.restore(owner)
        assert described(owner) == before
        learn(owner)
        state.restore(owner)
        assert described(owner) == before
    assert owner.optimizer.param_groups[0]["params"][0] is owner.model[1].weight


def test_a_step_after_hooks_were_added_does_not_run_them() -> None:
    owner, ran = learner(), []
    state = saved(owner)
    owner.optimizer.register_step_pre_hook(lambda *_: ran.append("step"))
    owner.model[1].weight.register_hook(lambda g: ran.append("weight"))
    owner.model.register_forward_hook(lambda *_: ran.append("forward"))
    state.restore(owner)
    learn(owner)
    assert ran == []


def test_views_of_one_storage_stay_views() -> None:
    base = torch.arange(12.0)
    owner = Owner(base=base, view=base[3:7], spread=base[:1].expand(5), held=Slotted(base[2:4]))
    state, before = saved(owner), described(owner)
    owner.view.zero_()
    state.restore(owner)
    assert described(owner) == before
    assert in_place(state)
    owner.base.fill_(9)
    assert owner.view.tolist() == [9.0] * 4
    assert owner.held.held.tolist() == [9.0] * 2


def test_nan_and_signed_zero_keep_their_bits() -> None:
    bits = torch.tensor([0x7FC00001, -0x80000000, 0x7F800001], dtype=torch.int32)
    owner = Owner(odd=bits.view(torch.float32).clone())
    state = saved(owner)
    owner.odd.zero_()
    state.restore(owner)
    assert owner.odd.view(torch.int32).tolist() == bits.tolist()


def test_references_to_the_owner_and_to_what_it_keeps_stay_references() -> None:
    owner = Owner(counts=Counter(a=1), helper=Plain())
    owner.call, owner.helper.counts = owner.note, owner.counts
    state = Saved(owner, kept=("counts",))
    for _ in range(3):
        owner.counts["a"] += 1
        owner.noted = False
        state.restore(owner)
        assert not hasattr(owner, "noted")
        owner.call()
        assert owner.noted
        assert owner.helper.counts is owner.counts
    assert owner.counts["a"] == 4


def test_kept_attributes_that_were_replaced_are_kept() -> None:
    owner = Owner(counts=Counter(), helper=Plain())
    owner.helper.counts = owner.counts
    state = saved(owner)
    owner.counts = Counter(new=1)
    state.restore(owner)
    assert owner.counts == Counter(new=1)
    assert owner.helper.counts is owner.counts


def test_what_cannot_be_filled_is_copied_and_points_to_what_was_filled() -> None:
    weight = torch.ones(3)
    owner = Owner(
        weight=weight,
        slotted=Slotted(weight),
        own=CopiesItself([weight]),
        pair=Pair(weight, [weight]),
        strange=STRANGE(weight=weight),
        partly=partial(max, weight),
        generator=torch.Generator().manual_seed(4),
        numpy=np.random.default_rng(5),
        array=np.arange(3),
    )
    owner.mixed = (owner.slotted, weight)
    state, before = saved(owner), described(owner)
    kept = owner.weight
    for _ in range(2):
        owner.weight.zero_()
        owner.slotted.held = None
        owner.own.held.append(1)
        owner.pair.right.append(2)
        owner.strange.weight = None
        torch.rand(3, generator=owner.generator)
        owner.numpy.random()
        owner.array[:] = 0
        state.restore(owner)
        assert described(owner) == before
        assert owner.weight is kept


@pytest.mark.parametrize("odd", ["sparse", "attribute"])
def test_tensors_of_other_kinds_come_back_too(odd: str) -> None:
    dense = torch.arange(4.0)
    owner = Owner(dense=dense, odd=dense.to_sparse() if odd == "sparse" else dense.clone())
    if odd == "attribute":
        owner.odd.label = [1]
    state = saved(owner)
    assert not in_place(state)
    owner.dense.zero_()
    if odd == "attribute":
        owner.odd.label.append(2)
    else:
        owner.odd.mul_(3)
    state.restore(owner)
    assert owner.dense.tolist() == [0, 1, 2, 3]
    if odd == "attribute":
        assert owner.odd.label == [1]
    assert owner.odd.to_dense().tolist() == [0, 1, 2, 3]


def test_copies_are_independent() -> None:
    class_ = learner()
    class_.state = None
    state, before = saved(class_), described(class_)
    twin, state_twin = pickle.loads(pickle.dumps((class_, state)))  # these bytes are made here
    other, state_other = copy.deepcopy((class_, state))
    learn(class_)
    now = described(class_)
    for owner, copied in ((twin, state_twin), (other, state_other)):
        for _ in range(2):
            learn(owner)
            copied.restore(owner)
            assert described(owner) == before
    assert described(class_) == now
    state.restore(class_)
    assert described(class_) == before


def test_a_shallow_copy_does_not_write_into_the_original() -> None:
    owner = Owner(weight=torch.zeros(2))
    state = saved(owner)
    other = copy.copy(owner)
    owner.weight.fill_(1)
    state.restore(other)
    assert owner.weight.tolist() == [1, 1]
    state.restore(owner)
    assert owner.weight.tolist() == [0, 0]


# ---- nested states drawn at random


def grown(draw: Random, depth: int, made: list[Any]) -> Any:
    """A nested state; some of its parts appear in several places."""
    if made and draw.random() < 0.2:
        return draw.choice(made)
    kinds: list[Callable[[], Any]] = [
        lambda: draw.choice([None, True, 3, 2.5, "text", len, Plain]),
        lambda: torch.tensor(
            [draw.random() for _ in range(6)], dtype=draw.choice([torch.float32, torch.float64])
        ),
        lambda: torch.arange(8)[draw.randrange(4) :: 2],
        lambda: nn.Parameter(torch.rand(3, generator=torch.Generator().manual_seed(draw.randrange(99)))),
        lambda: np.arange(draw.randrange(4)),
        lambda: {draw.choice("abc") for _ in range(3)},
        lambda: draw.choice([nn.BatchNorm1d(3), nn.Linear(2, 1), nn.Sequential(nn.LayerNorm(2))]),
    ]
    if depth:
        inner = partial(grown, draw, depth - 1, made)
        kinds += [
            lambda: [inner() for _ in range(draw.randrange(4))],
            lambda: {key: inner() for key in draw.sample(["a", "b", 3, (1, "x")], draw.randrange(4))},
            lambda: OrderedDict((key, inner()) for key in "xy"),
            lambda: defaultdict(list, k=inner()),
            lambda: deque([inner(), inner()], maxlen=3),
            lambda: (inner(), inner()),
            lambda: Owner(left=inner(), right=inner()),
            lambda: Slotted(inner()),
            lambda: Pair(inner(), inner()),
            lambda: CopiesItself(inner()),
            lambda: torch.optim.SGD([nn.Parameter(torch.ones(2))], 0.1, 0.9),
        ]
    thing = draw.choice(kinds)()
    made.append(thing)
    if isinstance(thing, list) and draw.random() < 0.1:
        thing.append(thing)
    return thing


def reachable(thing: Any) -> list[Any]:
    result: dict[int, Any] = {}
    queue = [thing]
    while queue:
        part = queue.pop()
        if id(part) in result or isinstance(part, (type, str, int, float)):
            continue
        result[id(part)] = part
        if isinstance(part, dict):
            queue += part.values()
        elif isinstance(part, (list, tuple, deque)):
            queue += part
        elif isinstance(part, Slotted):
            queue.append(part.held)
        elif (hasattr(part, "__dict__") and not callable(part)) or isinstance(part, nn.Module):
            queue += vars(part).values()
    return list(result.values())


def disturb(draw: Random, part: Any, others: list[Any]) -> None:
    """Change one object in a way that its kind allows."""
    new = draw.choice([0, torch.zeros(2), [], *others])
    if isinstance(part, Tensor):
        deed = draw.randrange(5)
        with torch.no_grad():
            if deed == 0:
                part.add_(1)
            elif deed == 1:
                part.data = torch.zeros(5, dtype=part.dtype)
            elif deed == 2 and part.is_floating_point() and part.is_leaf:
                part.requires_grad_(not part.requires_grad)
            elif deed == 3 and part.is_floating_point() and part.is_leaf and part.requires_grad:
                part.grad = torch.ones_like(part)
            else:
                part.mul_(-1)
    elif isinstance(part, np.ndarray):
        part += 1
    elif isinstance(part, torch.optim.Optimizer):
        for group in part.param_groups:
            group["lr"] *= 2
            for p in group["params"]:
                p.grad = torch.ones_like(p)
        if all(p.requires_grad for group in part.param_groups for p in group["params"]):
            part.step()
    elif isinstance(part, set):
        part.add("added")
    elif isinstance(part, dict):
        if draw.random() < 0.5:
            part[draw.choice(["a", "new"])] = new
        elif part and not any(isinstance(key, str) and key.startswith("_") for key in part):
            part.pop(next(iter(part)))
    elif isinstance(part, (list, deque)):
        draw.choice([part.clear, part.reverse, lambda: part.append(new)])()
    elif isinstance(part, Slotted):
        part.held = new
    elif isinstance(part, (Owner, CopiesItself, Plain)):
        vars(part)[draw.choice(["left", "added"])] = new
    elif isinstance(part, nn.Module):
        part.extra = new


@each("seed", range(60))
def test_any_nested_state_comes_back(seed: int) -> None:
    draw = Random(seed)
    made: list[Any] = []
    owner = Owner(**{name: grown(draw, 3, made) for name in ("one", "two", "three")})
    owner.me = [owner]
    state, before = saved(owner), described(owner)
    assert described(copy.deepcopy(owner)) == before
    disturbed = 0
    for _ in range(3):
        parts = [part for part in reachable(vars(owner)) if part is not owner]
        for _ in range(draw.randrange(1, 8)):
            with suppress(
                Exception
            ):  # an optimiser may have been disturbed before; half a step is a change too
                disturb(draw, draw.choice(parts), parts)
        if draw.random() < 0.5:
            owner.later = draw.choice(parts)
        disturbed += described(owner) != before
        state.restore(owner)
        assert described(owner) == before
    assert disturbed
