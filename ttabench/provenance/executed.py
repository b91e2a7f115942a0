"""Which branches of some definitions ran, also inside of a line: Python tells of each one that it takes."""

from __future__ import annotations

import dis
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

NOT_AT_ALL = "it did not run"
Arc = tuple[int, int]
Local = Callable[[FrameType, str, Any], Any]


class Executed:
    """What ran of some functions.

    functions   as they are shown → file and qualified name, see `shown_definitions.functions_of`. What stands
                in a function counts.
    """

    def __init__(self, functions: Mapping[str, tuple[Path, str]]) -> None:
        self._functions = functions
        self._wanted: dict[str, set[str]] = defaultdict(set)
        for file, name in functions.values():
            self._wanted[str(file)].add(name)
        self._arcs: dict[tuple[str, str, int], set[Arc]] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what runs in the block, in this thread and in threads that start in it."""
        if sys.version_info >= (3, 12):  # whose traces leave out instructions
            with _monitored(self._arcs_of):
                yield
            return
        before = sys.gettrace()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)

    def noted(self) -> Mapping[tuple[str, str, int], frozenset[Arc]]:
        """What ran so far."""
        return {key: frozenset(arcs) for key, arcs in self._arcs.items()}

    def go_back(self, noted: Mapping[tuple[str, str, int], frozenset[Arc]]) -> None:
        """Forget what ran since it was :meth:`noted`."""
        self._arcs = {key: set(arcs) for key, arcs in noted.items()}

    def _arcs_of(self, code: CodeType) -> set[Arc] | None:
        """What ran of code that runs now; None if it is of no function that is watched."""
        names = self._wanted.get(code.co_filename)
        if names is None or outer(code.co_qualname) not in names:
            return None
        return self._arcs.setdefault(_key(code), set())

    def _call(self, frame: FrameType, event: str, arg: Any) -> Local | None:
        arcs = self._arcs_of(frame.f_code)
        if arcs is None:
            return None
        frame.f_trace_opcodes = True
        before = -1

        def local(frame: FrameType, event: str, arg: Any) -> Local:
            nonlocal before
            if event == "opcode":
                arcs.add((before, frame.f_lasti))
                before = frame.f_lasti
            return local

        return local

    def missing(self) -> dict[str, list[tuple[int, str]]]:
        """Function, as it is shown → lines and texts of what did not run: all of it, or branches.

        A branch that only raises an error does not count: it gives no number.
        """
        codes = {file: [*_codes(compile(Path(file).read_bytes(), file, "exec"))] for file in self._wanted}
        found = {}
        for shown, (file, name) in self._functions.items():
            of_function = [code for code in codes[str(file)] if outer(code.co_qualname) == name]
            if lacking := [each for code in of_function for each in self._lacking(code, name)]:
                found[shown] = list(dict.fromkeys(lacking))
        return found

    def _lacking(self, code: CodeType, name: str) -> Iterator[tuple[int, str]]:
        arcs = self._arcs.get(_key(code))
        if arcs is not None:
            yield from ((line, f"a branch in line {line} did not run") for line in _untaken(code, arcs))
        elif not _does_nothing(code):  # else it stands for the functions of subclasses
            inner = f"{code.co_name} did not run"
            yield code.co_firstlineno, NOT_AT_ALL if code.co_qualname == name else inner


if sys.version_info >= (3, 12):

    @contextmanager
    def _monitored(arcs_of: Callable[[CodeType], set[Arc] | None]) -> Iterator[None]:
        """A block in which the branches of code are added to its arcs, in all threads."""
        monitoring = sys.monitoring
        tool = next(number for number in range(6) if monitoring.get_tool(number) is None)

        def start(code: CodeType, _offset: int) -> Any:
            return monitoring.DISABLE if arcs_of(code) is None else None

        def branch(code: CodeType, offset: int, to: int) -> Any:
            arcs = arcs_of(code)
            if arcs is None:
                return monitoring.DISABLE
            arcs.add((offset, to))
            return None

        def handled(code: CodeType, offset: int, _error: BaseException) -> None:  # it cannot be disabled
            if (arcs := arcs_of(code)) is not None:
                arcs.add((-1, offset))

        events = {
            monitoring.events.PY_START: start, monitoring.events.BRANCH: branch,
            monitoring.events.EXCEPTION_HANDLED: handled,
        }  # fmt: skip
        monitoring.use_tool_id(tool, "ttabench")
        try:
            for event, callback in events.items():
                monitoring.register_callback(tool, event, callback)
            monitoring.set_events(tool, sum(events))
            monitoring.restart_events()  # a block before may have disabled some
            yield
        finally:
            monitoring.set_events(tool, 0)
            for event in events:
                monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)


def outer(qualified: str) -> str:
    """The definition that a function stands in, such as ``Tent.adapt`` for a function inside of it."""
    return qualified.partition(".<locals>")[0]


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _does_nothing(code: CodeType) -> bool:
    """Whether a function has nothing but a docstring."""
    steps = [(each.opname, each.argval) for each in dis.get_instructions(code) if each.opname != "RESUME"]
    return steps in ([("LOAD_CONST", None), ("RETURN_VALUE", None)], [("RETURN_CONST", None)])


def _untaken(code: CodeType, arcs: Iterable[Arc]) -> list[int]:
    """The lines of conditions of which one outcome did not come, and of errors that were not handled.

    Python may ask one condition at several places: before the first turn of a while loop, and after each.
    """
    taken = set(arcs)
    instructions = list(dis.get_instructions(code))
    unhandled = _unhandled(instructions, {to for _, to in taken})
    lines: dict[tuple[Any, bool], int] = {}  # of each outcome of each condition
    came: set[tuple[Any, bool]] = set()
    line = code.co_firstlineno
    for at, instruction in enumerate(instructions):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        name = instruction.opname  # such as POP_JUMP_IF_TRUE, and POP_JUMP_FORWARD_IF_TRUE in Python 3.11
        if not ("JUMP" in name and "_IF_" in name) and name != "FOR_ITER":
            continue
        if "WITH_EXCEPT_START" in (each.opname for each in instructions[max(0, at - 2) : at]):
            continue  # after an error in a with block; it gives no number
        if not any(start == instruction.offset for start, _ in taken):
            continue  # the way to it is named already
        jumps_if = not ("IF_FALSE" in name or "IF_NOT_NONE" in name)
        where = instruction.positions if name != "FOR_ITER" else at
        for outcome, way in ((jumps_if, instruction.argval), (not jumps_if, instructions[at + 1].offset)):
            lines[where, outcome] = line
            past = (way, way + 2, way + 4) if name == "FOR_ITER" else (way,)  # Python jumps over END_FOR
            if any((instruction.offset, to) in taken for to in past) or _raises(instructions, way):
                came.add((where, outcome))
    return sorted({*unhandled, *(line for outcome, line in lines.items() if outcome not in came)})


def _unhandled(instructions: list[dis.Instruction], entered: Collection[int]) -> Iterator[int]:
    """The lines of handlers of errors that did not run; not of those that raise an error themselves."""
    for handler, first in pairwise(instructions):
        if handler.opname != "PUSH_EXC_INFO" or first.opname == "WITH_EXCEPT_START":
            continue
        if handler.offset not in entered and not _raises(instructions, handler.offset):
            yield next(
                each.positions.lineno
                for each in instructions[instructions.index(first) :]
                if each.positions is not None and each.positions.lineno is not None
            )


def _raises(instructions: list[dis.Instruction], offset: int) -> bool:
    """Whether all that follows from an instruction on is an error."""
    places = {instruction.offset: at for at, instruction in enumerate(instructions)}
    waiting, seen = [offset], set[int]()
    while waiting:
        at = places[waiting.pop()]
        instruction, name = instructions[at], instructions[at].opname
        if at in seen or name in ("RAISE_VARARGS", "RERAISE"):
            continue
        if name.startswith("RETURN"):
            return False
        seen.add(at)
        jumps = "JUMP" in name or name == "FOR_ITER"
        if jumps:
            waiting.append(instruction.argval)
        if not jumps or "_IF_" in name or name == "FOR_ITER":
            waiting.append(instructions[at + 1].offset)
    return True
