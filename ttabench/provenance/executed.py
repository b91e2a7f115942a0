"""Which branches of some definitions ran, also inside of a line: Python traces each instruction of them."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

__all__ = ["NOT_AT_ALL", "Executed"]

NOT_AT_ALL = "it did not run"
Arc = tuple[int, int]
Local = Callable[[FrameType, str, Any], Any]


class Executed:
    """What ran of some functions.

    functions   file → qualified names of functions, such as ``Tent.adapt``; what stands in them counts.
    """

    def __init__(self, functions: dict[Path, set[str]]) -> None:
        self._wanted = {str(file): names for file, names in functions.items()}
        self._arcs: dict[tuple[str, str, int], set[Arc]] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what runs in the block, in this thread and in threads that start in it."""
        before = sys.gettrace()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Local | None:
        code = frame.f_code
        names = self._wanted.get(code.co_filename)
        if names is None or outer(code.co_qualname) not in names:
            return None
        arcs = self._arcs.setdefault(_key(code), set())
        frame.f_trace_opcodes = True
        before = -1

        def local(frame: FrameType, event: str, arg: Any) -> Local:
            nonlocal before
            if event == "opcode":
                arcs.add((before, frame.f_lasti))
                before = frame.f_lasti
            return local

        return local

    def missing(self) -> dict[tuple[str, str], list[tuple[int, str]]]:
        """(file, function) → what did not run: the function, or branches of it, as lines and texts.

        A branch that only raises an error does not count: it gives no number.
        """
        lacking: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for file, names in self._wanted.items():
            codes = list(_codes(compile(Path(file).read_bytes(), file, "exec")))
            for code in codes:
                name = outer(code.co_qualname)
                if name not in names:
                    continue
                texts = lacking.setdefault((file, name), [])
                arcs = self._arcs.get(_key(code))
                if arcs is None and _does_nothing(code):
                    continue  # it stands for the functions of subclasses
                if arcs is None:
                    inner = f"{code.co_name} did not run"
                    texts.append((code.co_firstlineno, NOT_AT_ALL if code.co_qualname == name else inner))
                else:
                    texts += ((line, f"a branch in line {line} did not run") for line in _untaken(code, arcs))
        return {key: list(dict.fromkeys(texts)) for key, texts in lacking.items() if texts}


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
    """The lines of conditions of which one outcome did not come.

    Python may ask one condition at several places: before the first turn of a while loop, and after each.
    """
    taken = set(arcs)
    instructions = list(dis.get_instructions(code))
    outcomes: dict[tuple[Any, bool], bool] = {}
    lines: dict[tuple[Any, bool], int] = {}
    line = code.co_firstlineno
    for at, instruction in enumerate(instructions):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            line = instruction.positions.lineno
        name = instruction.opname  # such as POP_JUMP_IF_TRUE, and POP_JUMP_FORWARD_IF_TRUE in Python 3.11
        if not ("JUMP" in name and "_IF_" in name) and name != "FOR_ITER":
            continue
        if instructions[at - 1].opname == "WITH_EXCEPT_START":
            continue  # after an error in a with block; it gives no number
        if not any(start == instruction.offset for start, _ in taken):
            continue  # the way to it is named already
        jumps_if = not ("IF_FALSE" in name or "IF_NOT_NONE" in name)
        where = instruction.positions if name != "FOR_ITER" else at
        for outcome, way in ((jumps_if, instruction.argval), (not jumps_if, instructions[at + 1].offset)):
            came = (instruction.offset, way) in taken or _raises(instructions, way)
            outcomes[where, outcome] = outcomes.get((where, outcome), False) or came
            lines[where, outcome] = line
    return sorted({lines[each] for each, came in outcomes.items() if not came})


def _raises(instructions: list[dis.Instruction], offset: int) -> bool:
    """Whether all that follows from an instruction on is an error."""
    for instruction in instructions:
        if instruction.offset < offset:
            continue
        if instruction.opname in ("RAISE_VARARGS", "RERAISE"):
            return True
        if "JUMP" in instruction.opname or instruction.opname.startswith("RETURN"):
            return False
    return False
