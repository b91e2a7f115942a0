"""What is known of one definition beside its text."""

from __future__ import annotations

import ast

from msgspec import convert, to_builtins

from tests.cases import each
from ttabench.provenance.definitions import Definition, definitions_of

HEAD = "def f(x, y=0):\n"
REMOVED = "    if x.std() < 0.1:\n        x = x * 2\n"


def of(body: str) -> Definition:
    return definitions_of(ast.parse(f"{HEAD}{body}    return x\n")).by_name["f"]


def test_a_branch_that_refers_to_nothing_counts() -> None:
    assert of(REMOVED).refers == of("").refers == ()
    assert (of(REMOVED).branches, of("").branches) == (1, 0)
    assert convert(to_builtins(of(REMOVED)), Definition) == of(REMOVED)


@each(
    "body, count",
    [
        ("    if x:\n        y = 1\n    elif y:\n        y = 2\n    else:\n        y = 3\n", 2),
        ("    y = 1 if x else 2\n", 1),
        ("    y = x and y or 3\n", 2),
        ("    for each in x:\n        y += each\n    while y:\n        y -= 1\n", 2),
        ("    y = [a for b in x for a in b if a]\n", 3),
        (
            "    try:\n        y = 1\n    except A:\n        y = 2\n    except B:\n        y = 3\n",
            2,
        ),
        ("    match x:\n        case 1:\n            y = 1\n        case _:\n            y = 2\n", 2),
        ("    def inner(z):\n        return z if z else x\n    y = inner(1)\n", 1),
        ("    if x and y:\n        raise ValueError(1 if x else 2)\n", 0),
    ],
)
def test_all_that_decides_what_runs_counts_but_for_errors(body: str, count: int) -> None:
    assert of(body).branches == count


def test_what_imports_mean() -> None:
    text = (
        "import a.b, c.d as e\nfrom . import f\nfrom ..g import h as i, j\nfrom k import *\n"
        "if x:\n    from l import m\ndef n():\n    import o\n    from p import q\n"
    )
    found = definitions_of(ast.parse(text))
    assert found.imports == {
        "a": "a", "e": "c.d", "f": ".:f", "i": "..g:h", "j": "..g:j", "*k": "k:*", "m": "l:m",
    }  # fmt: skip
    assert found.by_name["n"].imports == {"o": "o", "q": "p:q"}


def test_what_a_definition_refers_to_and_uses() -> None:
    found = definitions_of(
        ast.parse(
            "import k\nclass A(B[int], k.C):\n    x = g\n    @staticmethod\n    def one(): return 1\n"
            "    @classmethod\n    def two(cls): return cls.y\n    def three(self): return k.l.m + g\n"
        )
    ).by_name["A"]
    assert found.bases == ("B", "k.C")
    assert found.refers == ("B", "int", "k.C", "g")
    assert [*found.members] == ["one", "two", "three"]
    assert {name: of.free for name, of in found.members.items()} == {"one": True, "two": True, "three": False}
    assert found.members["three"].refers == ("k.l.m", "g")
    assert found.members["three"].uses == ("l", "m")
    assert found.members["two"].uses == ("y",)
