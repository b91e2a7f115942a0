"""A method's state as JSON data and arrays: what can be stored, and what is refused with its name."""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from tests.cases import each
from tests.unit.measure.streams.test_streams import Coded, Stopped, protocol
from tests.unit.measure.streams.test_streams import random as drawing
from tests.unit.measure.test_scoring import toy
from ttabench.conformance.state import difference, snapshot
from ttabench.measure import scoring
from ttabench.measure.scoring import Progress
from ttabench.measure.streams import method_state
from ttabench.measure.streams.checkpoint import Checkpoint
from ttabench.measure.streams.images import corrupted_parts
from ttabench.measure.streams.method_state import NotStorable
from ttabench.observe.cost import count_passes
from ttabench.observe.label_free_scores import Collected


class Item(NamedTuple):
    image: torch.Tensor
    age: int


@dataclass(slots=True)
class Slotted:
    count: int


class Holder:
    """Attributes of all kinds; two that are the same object."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.optimizer = torch.optim.Adam(self.net.parameters(), 0.1)
        self.first = self.net[0]
        self.memory: deque[Item] = deque(maxlen=3)
        self.counts = Counter(a=1)
        self.ordered: OrderedDict[str, Any] = OrderedDict(b=2, a=1)
        self.by_default: defaultdict[str, list[int]] = defaultdict(list)
        self.draws = np.random.default_rng(0)
        self.generator = torch.Generator().manual_seed(3)
        self.python = random.Random(4)
        self.slotted = Slotted(1)
        self.array = np.arange(3.0)
        self.half = torch.ones(2, dtype=torch.bfloat16)
        self.turned = torch.arange(6.0).reshape(2, 3).T
        self.odd = (float("nan"), float("-inf"), b"\x00\xff", None, True, np.float64(0.1), 2**80, (1, "x"))
        self.empty = torch.empty(0, 3)
        self.late: Any = None

        def closed() -> torch.Tensor:
            return self.turned

        self.closed, self.part, self.bound = closed, partial(max, 1), self.step

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.net(torch.rand(5, 3)).square().sum().backward()
        self.optimizer.step()
        self.memory.append(Item(torch.rand(2), len(self.memory)))
        self.counts["steps"] += 1
        self.ordered["c"] = [*self.memory]
        self.by_default["x"].append(self.counts["steps"])
        self.slotted.count += 1
        self.array += self.draws.random(3)
        self.half += 1
        self.turned = self.turned + self.python.random() + torch.rand(1, generator=self.generator)
        self.late = {"same": self.array, "one": self.first.weight, 3: {1, 2}, "size": torch.rand(2, 3).shape}


def stored(thing: object) -> tuple[Any, dict[str, Any]]:
    node, arrays = method_state.store(thing)
    return json.loads(json.dumps(node)), arrays


def test_a_state_of_all_kinds_goes_on_bit_for_bit() -> None:
    old, new = Holder(), Holder()
    for _ in range(5):
        old.step()
    before = snapshot(old)
    method_state.restore(new, *stored(old))
    assert difference(before, snapshot(new)) == ""
    assert new.late["same"] is new.array
    assert new.late["one"] is new.net[0].weight is new.first.weight
    assert new.optimizer.param_groups[0]["params"][0] is new.first.weight
    assert new.turned.stride() == old.turned.stride()
    for holder in (old, new):
        torch.manual_seed(1)
        holder.step()
    assert difference(snapshot(old), snapshot(new)) == ""


def test_gradients_come_back_and_what_has_none() -> None:
    old, new = nn.Linear(2, 2), nn.Linear(2, 2)
    old.weight.requires_grad_(False)
    old(torch.ones(1, 2)).sum().backward()
    new(torch.ones(1, 2)).square().sum().backward()
    method_state.restore(new, *stored(old))
    assert (new.weight.requires_grad, new.weight.grad) == (False, None)
    assert new.bias.requires_grad
    assert torch.equal(new.bias.grad, old.bias.grad)  # type: ignore[arg-type]


def test_what_became_two_objects_stays_two() -> None:
    class Memory:
        def __init__(self) -> None:
            self.first = self.second = [0]

    old, new = Memory(), Memory()
    old.second = [2]
    method_state.restore(new, *stored(old))
    assert (new.first, new.second) == ([0], [2])


def test_storing_changes_nothing_and_takes_copies() -> None:
    holder = Holder()
    holder.step()
    before = snapshot(holder)
    node, arrays = stored(holder)
    assert difference(before, snapshot(holder)) == ""
    fresh = Holder()
    holder.step()
    method_state.restore(fresh, node, arrays)
    assert difference(before, snapshot(fresh)) == ""


@each(
    ("value", "message"),
    [
        (iter([1]), r"Holder\.extra is a list_iterator"),
        ({"deep": [(n for n in ())]}, r"Holder\.extra\.deep\[0\] is a generator"),
        (np.array([object()]), r"Holder\.extra is an array of objects"),
        (torch.ones(2, requires_grad=True) * 2, r"Holder\.extra is a tensor with a gradient graph"),
        ({object(): 1}, r"Holder\.extra has a key of type object"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_named(value: Any, message: str) -> None:
    holder = Holder()
    holder.extra = value  # type: ignore[attr-defined]
    with pytest.raises(NotStorable, match=message):
        method_state.store(holder)


def test_an_open_file_is_refused(tmp_path: Path) -> None:
    holder = Holder()
    with (tmp_path / "file").open("w") as opened:
        holder.late = opened
        with pytest.raises(NotStorable, match="TextIOWrapper"):
            method_state.store(holder)


def test_no_class_of_another_package_is_made() -> None:
    """A state names classes; a file that names others must not get them."""
    holder = Holder()
    holder.late = Slotted(3)
    node, arrays = stored(holder)
    fresh = Holder()
    method_state.restore(fresh, node, arrays)  # the package of the method itself
    assert fresh.late == Slotted(3)
    for name in ("subprocess:Popen", "builtins:dict", "os:system", "ttabench.errors:UserError.__init__"):
        node["parts"]["late"]["class"] = name
        with pytest.raises(NotStorable, match="late"):
            method_state.restore(Holder(), node, arrays)


def test_a_state_of_another_method_is_refused() -> None:
    with pytest.raises(NotStorable, match=r"Toy was a Holder"):
        method_state.restore(toy(), *stored(Holder()))


# ---- on disk


def test_a_damaged_file_is_reported_and_the_stream_starts_anew(tmp_path: Path) -> None:
    file = tmp_path / "state.npz"
    method = drawing()
    progress = Progress.start(10, 4)
    kept = Checkpoint(file, {"cell": "c"})
    kept.save(method, progress, "cpu")
    whole = file.read_bytes()
    assert kept.load(method, progress, "cpu")
    for damaged in (whole[: len(whole) // 2], b"", whole[:-100] + bytes(100)):
        file.write_bytes(damaged)
        with pytest.warns(UserWarning, match="damaged"):
            assert not kept.load(method, progress, "cpu")


def test_a_state_of_another_cell_or_code_is_not_used(tmp_path: Path) -> None:
    method, progress = drawing(), Progress.start(10, 4)
    Checkpoint(tmp_path / "s.npz", {"cell": "c", "code": "1"}).save(method, progress, "cpu")
    assert not Checkpoint(tmp_path / "s.npz", {"cell": "c", "code": "2"}).load(method, progress, "cpu")
    assert not Checkpoint(tmp_path / "none.npz", {}).load(method, progress, "cpu")


def test_the_file_holds_no_pickle(tmp_path: Path) -> None:
    file = tmp_path / "s.npz"
    Checkpoint(file, {}).save(drawing(), Progress.start(10, 4), "cpu")
    with np.load(file, allow_pickle=False) as held:
        assert {held[name].dtype.kind for name in held.files} <= set("biuf")
        json.loads(held["json"].tobytes())


def test_a_method_that_cannot_be_stored_runs_on_without(tmp_path: Path) -> None:
    method = drawing()
    method.source = iter([1])
    asked = protocol("recurring(3)")
    stream = corrupted_parts(Coded(), ("fog",), 5, asked, 0)
    file = tmp_path / "state.npz"
    with pytest.warns(
        UserWarning, match=r"random: the state cannot be stored \(Random\.source is a"
    ) as output:
        done = scoring.evaluate(method, stream, asked, 0, saved=Checkpoint(file, {}, 0.0))
    assert len(output) == 1
    assert len(done.correct) == stream.scored
    assert not file.exists()


def test_generators_of_python_and_numpy_go_on(tmp_path: Path) -> None:
    method, progress = drawing(), Progress.start(10, 4)
    kept = Checkpoint(tmp_path / "s.npz", {})
    kept.save(method, progress, "cpu")
    first = random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002
    kept.load(method, progress, "cpu")
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first  # noqa: NPY002


def test_nothing_of_a_state_is_left_out_of_a_result(tmp_path: Path) -> None:
    """Label-free scores and pass counts of a stream that was stopped are those of one that was not."""
    from tests.unit.measure.streams.test_streams import Coded

    asked = protocol("recurring(3)")
    stream = corrupted_parts(Coded(), ("fog",), 5, asked, 0)

    def run(after: int = 0, checkpoint: Checkpoint | None = None) -> tuple[Any, Any]:
        done: list[int] = []

        def report(*_: int) -> None:
            done.append(1)
            if len(done) == after:
                raise Stopped

        collected = Collected()
        with count_passes() as passes:
            if checkpoint is not None:
                checkpoint.beside = {"collected": collected, "passes": passes}
            scoring.evaluate(drawing(), stream, asked, 0, "cpu", report, (), collected.add, checkpoint)
        return collected.scores(), passes.forward

    whole = run()
    file = tmp_path / "s.npz"
    with pytest.raises(Stopped):
        run(4, Checkpoint(file, {}, 0.0))
    assert run(checkpoint=Checkpoint(file, {}, 0.0)) == whole
