"""docs/api.md: signatures and docstrings of the public names, as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

import api_from_code
import pages_from_code
import pytest
import torch

import ttabench.nn

ROLE = re.compile(r":(?:func|meth|class|attr|exc|data):`~?([\w.]+)`")


@dataclass
class Part:
    """A part of something.

    names, more  what they are called, in
                 two lines.
    longest_name one space is before this.
    """

    names: tuple[str, ...]
    made: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Always in [0, 1]."""
        return 0

    @classmethod
    def parse(cls, text: str) -> Part:
        """``text`` as a :class:`Part`."""
        return cls((text,))

    def undocumented(self) -> None:
        return None


class Layer(torch.nn.Module):
    """A layer."""

    def forward(self, x: int) -> int:
        return x


class Given(Protocol):
    """What others make."""

    count: int


@contextmanager
def block(x: int, *rest: str, key: float = 0.5) -> Iterator[None]:
    yield


def test_a_signature_has_no_quotes_around_types() -> None:
    assert api_from_code.signature("found", api_from_code.found) == "found(name: str) -> Any"


def test_a_class_shows_what_it_is_made_with_and_its_documented_members() -> None:
    shown = api_from_code.entries([f"{__name__}.Part"])
    assert "class Part(names: tuple[str, ...], made: dict[str, int] = ...)" in shown
    assert "size: int\n" in shown
    assert "@classmethod\nparse(text: str) -> Part\n" in shown
    assert "undocumented" not in shown


def test_a_class_shows_no_words_of_other_packages_and_a_protocol_no_constructor() -> None:
    assert "forward" not in api_from_code.entries([f"{__name__}.Layer"])
    assert "class Given\n" in api_from_code.entries([f"{__name__}.Given"])


def test_a_context_manager_is_told_from_a_function() -> None:
    shown = api_from_code.signature("block", block)
    assert shown == "@contextmanager\nblock(x: int, *rest: str, key: float = 0.5) -> Iterator[None]"


def test_a_long_signature_means_the_same_in_lines() -> None:
    adapt = api_from_code.signature("adapt", ttabench.adapt)
    assert max(map(len, adapt.splitlines())) <= api_from_code.WIDTH
    names: dict[str, Any] = {}
    exec(f"from __future__ import annotations\ndef {adapt}: ...", names)  # our own text
    given, own = (inspect.signature(f).parameters.values() for f in (names["adapt"], ttabench.adapt))
    assert [(p.name, p.kind, p.default) for p in given] == [(p.name, p.kind, p.default) for p in own]


def test_columns_become_a_list_and_nothing_else_is_read_as_markdown() -> None:
    shown = api_from_code.prose(inspect.getdoc(Part) or "")
    assert shown.splitlines()[2:] == [
        "- `names, more`: what they are called, in two lines.",
        "- `longest_name`: one space is before this.",
    ]
    assert api_from_code.prose("a_b_c in [0, 1], see :meth:`~x.y` and ``a_b`` * `c`.") == (
        r"a\_b\_c in \[0, 1\], see `x.y` and `a_b` \* `c`."
    )


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError):
        api_from_code.entries(["ttabench.nothing"])


def test_what_the_descriptions_refer_to_exists() -> None:
    page = (pages_from_code.DOCS / "api.md").read_text(encoding="utf-8")
    shown = {name.replace("\\", "") for name in re.findall(r"^### (\S+)$", page, re.MULTILINE)}
    things = [thing for thing in map(api_from_code.found, sorted(shown)) if inspect.getdoc(thing)]
    owners = [ttabench, ttabench.nn, *(thing for thing in things if inspect.isclass(thing))]
    checked = 0
    for thing in things:
        module = inspect.getmodule(thing)
        for name in ROLE.findall(inspect.getsource(module)) if module and _ours(module) else ():
            checked += 1
            inside = name.removeprefix("ttabench.")
            assert any(_has(owner, inside) for owner in [*owners, module]), f"{module}: {name}"
    assert checked > 50


def _ours(module: ModuleType) -> bool:
    return module.__name__.startswith("ttabench")


def _has(owner: object, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True
