"""The hash of code: words do not change it, whatever can change a number does."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import ttabench
from tests.cases import each
from ttabench.provenance.normal_form import code_hash

FUNCTION = '''
import math

LIMIT = 3

class Thing(Base):
    """A thing."""

    deviations = "none that is known"
    mode = "online"

    def value(self, x, *, scale=1.0):
        """The value of x."""
        total, count = 0.0, 0  # so far
        for each in x:
            total += each * scale
            count += 1
        if count == 0:
            raise ValueError(f"{x} is empty; give at least {LIMIT} numbers")
        parts = [each / total for each in x if (first := each) > 0]
        def last(y):
            nonlocal count
            return y + total + count
        try:
            return last(parts), first, math.sqrt(total), lambda z: z + total
        except (KeyError, TypeError) as error:
            raise RuntimeError("it failed: " + str(error)) from error
'''

INNER = """def last(y):
            nonlocal count
            return y"""

SAME = {
    "a docstring": ('"""The value of x."""', '"""Another text."""'),
    "no docstring": ('        """The value of x."""\n', ""),
    "a comment": ("# so far", "# sum and number"),
    "layout": ("total, count = 0.0, 0", "(total,\n            count) = (0.0, 0)"),
    "a local variable": ("total", "summed"),
    "a variable of a comprehension and of a loop": ("each", "number"),
    "a variable of an except clause": (" as error:", " as problem:"),
    "a variable that a comprehension assigns": ("first", "positive"),
    "a sentence of an error": ("is empty; give at least", "has no numbers; expected"),
    "a description of the method": ("none that is known", "it is another one"),
}
OTHER = {
    "a number": ("count += 1", "count += 2"),
    "a parameter": ("scale", "factor"),
    "a parameter of an inner function": (INNER, INNER.replace("y", "w")),
    "the parameter of a lambda": ("lambda z: z", "lambda w: w"),
    "a global name": ("LIMIT = 3", "BOUND = 3"),
    "an import": ("math", "cmath"),
    "a method's name": ("def value", "def values"),
    "an inner function's name": ("last", "final"),
    "a nonlocal variable": ("count", "number"),
    "which variable is used": ("return y + total", "return y + count"),
    "the order of two variables": ("total, count =", "count, total ="),
    "a text of one word": ('"online"', '"offline"'),
    "the kind of an error": ("ValueError", "TypeError"),
    "a default": ("scale=1.0", "scale=1"),
    "a condition": ("count == 0", "count <= 0"),
    "a base class": ("(Base)", ""),
}  # fmt: skip


def changed(old: str, new: str) -> str:
    assert old in FUNCTION
    code = FUNCTION.replace(old, new)
    if old == " as error:":
        code = code.replace("str(error)", "str(problem)").replace("from error", "from problem")
    return code


def same(one: str, other: str) -> bool:
    return code_hash(one.encode()) == code_hash(other.encode())


@each("what", SAME)
def test_words_do_not_change_the_hash(what: str) -> None:
    assert same(FUNCTION, changed(*SAME[what]))


@each("what", OTHER)
def test_what_can_change_a_number_changes_the_hash(what: str) -> None:
    assert not same(FUNCTION, changed(*OTHER[what]))


@each(
    ("one", "other"),
    [
        # A name that is bound in a function is another one than the same name outside.
        ("def f():\n    a = b\n    return a", "def f():\n    a = b\n    return b"),
        ("def f():\n    a = 1\n    return a", "def f():\n    global a\n    a = 1\n    return a"),
        ("def f():\n    a = 1\n    return lambda: a", "def f():\n    a = 1\n    return lambda a: a"),
        ("def f(x):\n    return [a for a in x]", "def f(x):\n    return [x for a in x]"),
        # What the first loop goes over stands outside.
        ("def f(a):\n    return [b for b in a]", "def f(a):\n    return [b for b in b]"),
        # The body of a class is no scope for its functions.
        (
            "def f():\n    a = 1\n    class A:\n        a = 2\n        def g(self): return a",
            "def f():\n    b = 1\n    class A:\n        a = 2\n        def g(self): return a",
        ),
        # A parameter is another variable than the one around it, and it has its own value.
        ("def f():\n    a = 1\n    return lambda a: a", "def f():\n    b = 1\n    return lambda a: b"),
        ("def f(a, b):\n    a += 1\n    return a", "def f(a, b):\n    b += 1\n    return b"),
        # What a comprehension binds ends with it.
        *(
            (
                f"def f(x):\n    {made} for a in x{end}\n    return a",
                f"def f(x):\n    {made.replace('a', 'b')} for b in x{end}\n    return b",
            )
            for made, end in (("[a", "]"), ("{a", "}"), ("{a: 1", "}"), ("(a", ")"))
        ),
        # Who reads the names of variables depends on them.
        ("def f():\n    a = 1\n    return locals()", "def f():\n    b = 1\n    return locals()"),
        # Who reads the declared statistics depends on them.
        ("f(needs.source_data)", "f(needs.source_statistics)"),
        ("f(source_data=1)", "f(source=1)"),
        ("x = 'a text with words'", "x = 'another text with words'"),
        ("f'{a:>{b}}'", "f'{a:<{b}}'"),
        ("f'{a!r}'", "f'{a!s}'"),
        ("x = 1", "x = True"),
        ("x = -0.0", "x = 0.0"),
        ("x = None", "x = ''"),
        ("f(*a)", "f(**a)"),
        ("x[:1]", "x[1:]"),
        ("class A: scores = 'loss'", "class A: scores = 'margin'"),
        ("class A: scores = value = 'of the loss'", "class A: scores = value = 'of the margin'"),
        ("async def f(): pass", "def f(): pass"),
        ("from .a import b", "from ..a import b"),
        ("from .a import b", "from a import b"),
        ("self.align(x, source_statistics=a)", "self.align(x, source_statistics=2 * a)"),
        ("class A:\n    source_statistics: float = 0.5", "class A:\n    source_statistics: float = 0.9"),
        ("class Needs:\n    a: int = 1", "class Needs:\n    a: int = 2"),
        ("class Needs: source_statistics = 1", "class Needs: source_statistics = 2"),
        # A dataclass makes no field of these, or no attribute.
        *(
            (f"class A:\n    a: {one} = 1", f"class A:\n    a: {other} = 1")
            for one, other in (
                ("ClassVar[int]", "int"), ("InitVar[int]", "int"), ("Final[int]", "int"),
                ("ClassVar[int]", "InitVar[int]"), ("Final[ClassVar[int]]", "Final[int]"),
            )
        ),
        ("raise Stop('now')", "raise Other('now')"),
        ("raise", "raise Stop"),
        # Not the sentences and papers of a method.
        ("class A: scores, x = 'One sentence.', 1", "class A: scores, x = 'One sentence.', 2"),
        ("class A: paper = x = 'a b'", "class A: paper = x = 'a c'"),
        ("class A: x.paper = 1", "class A: x.paper = 2"),
        ("class A: per_class = f(1)", "class A: per_class = f(2)"),
        ("class A: per_class = 1", "class A: per_class = 2"),
        ("class A: per_class = x = 'one'", "class A: per_class = x = 'two'"),
    ],
)  # fmt: skip
def test_these_two_differ(one: str, other: str) -> None:
    assert not same(one, other)


@each(
    ("one", "other"),
    [
        ("def f():\n    a = 1\n    return lambda: a", "def f():\n    b = 1\n    return lambda: b"),
        ("def f(x):\n    return {a: b for a, b in x}", "def f(x):\n    return {k: v for k, v in x}"),
        ("def f():\n    'Text.'", "def f():\n    pass"),
        ("raise Stop('now')", "raise Stop('later') from problem"),
        ("raise errors.Stop", "raise other.Stop"),
        ("class A: per_class = 'one'", "class A: pass"),
        ("class A: per_class: str = 'one'", "class A: pass"),
        ("class A: paper = PAPER", "class A: paper = OTHER"),
        ("class A: papers = paper = 1", "class A: papers = paper = 2"),
        ("class A: scores = 'The loss.'", "class A: scores = 'The margin.'"),
        ("f'{a}' 'b'", "f'{a}b' ''"),
        ("def f(x: int) -> int: return x", "def f(x): return x"),
        ("class A:\n    'Text.'\n    x = 1\n    'About x.'", "class A:\n    x = 1"),
        ("def f():\n    with o() as a: a.b()", "def f():\n    with o() as c: c.b()"),
        ("def f(x):\n    del x.a; a = 1; del a", "def f(x):\n    del x.a; c = 1; del c"),
        # Which statistics a method asks for is declared for lists and the check of a method alone.
        ("Needs(a='b')", "Needs(a='b', source_statistics=('quantiles',))"),
        ("replace(a, b='c')", "replace(a, b='c', source_statistics=())"),
        ("class Needs:\n    a: int = 1", "class Needs:\n    a: int = 1\n    source_statistics: tuple = ()"),
    ],
)
def test_these_two_are_the_same(one: str, other: str) -> None:
    assert same(one, other)


def test_the_hash_is_the_same_in_every_version_of_python() -> None:
    """Pinned: `ast.dump`, which writes other texts since 3.12 and 3.13, would fail here."""
    code = (
        FUNCTION + "\n\nwide = f'  {name:<{width}} = {{{value}}}'\nasync def g(*a: int, **k) -> None: ...\n"
    )
    assert code_hash(code.encode()) == "a9671fe5bf75402e"


PACKAGE = Path(ttabench.__file__).parent
MODULES = sorted(file for file in PACKAGE.rglob("*.py") if file.stat().st_size > 2000)


def without_meaning(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that are words: what is raised, and annotations."""
    parts = [node] if isinstance(node, ast.Raise) else []
    return [*parts, *filter(None, (getattr(node, name, None) for name in ("annotation", "returns")))]


def test_every_other_name_in_an_expression_changes_the_hash() -> None:
    """In modules drawn at random, a name that is read becomes another one of the same module."""
    draw = random.Random(0)
    for file in draw.sample(MODULES, 20):
        source = file.read_text()
        tree = ast.parse(source)
        ignored = {
            id(each) for node in ast.walk(tree) for part in without_meaning(node) for each in ast.walk(part)
        }
        read = [
            node for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in ignored
        ]  # fmt: skip
        before = code_hash(source.encode())
        for node in draw.sample(read, min(5, len(read))):
            name = node.id
            node.id = draw.choice(sorted({each.id for each in read} - {name}))
            assert code_hash(ast.unparse(tree).encode()) != before, (file, node.lineno, name, node.id)
            node.id = name
        assert code_hash(ast.unparse(tree).encode()) == before


BINDING = """
def f(a, /, b: int = 1, *c, d=2, **e) -> int:
    global g, h
    import os.path, numpy as np
    from math import log as ln, exp
    import json
    x = y = a
    def inner(z):
        nonlocal x, y
        x, y = z, b
        return x
    class Local:
        w = a
        def method(self, a): return a + w
    try:
        with open(a) as handle, b: del handle.name
    except (OSError, ValueError) as problem:
        raise errors.Stop(problem) from None
    for i, (j, *k) in enumerate(c): i += j
    match a:
        case {"one": one, **rest}: return rest, one
        case [first, *others] | (first, *others): return others, first
        case Point(x=0) as point: return point
        case _: pass
    if (walrus := len(a)) > 1: g = walrus
    h = [i for i in a if i], {i: j for i, j in b}, {i for i in c}, (lambda a, q=d: a + q + e)
    return inner(x), Local, os, np, ln, exp, json, f"{a!r:>{b}}" "text", (yield y)
async def later(a):
    async with a as b:
        async for c in b: await c
    return locals()
class A(metaclass=M):
    "Words."
    x: ClassVar[int] = 1
    y: Final[InitVar[int]] = 2
    z: int
    paper = PAPER
    per_class = "text"
    scores = "One sentence."
    source_statistics: tuple = ()
"""


def test_the_hash_of_a_text_that_binds_names_in_all_ways_stays() -> None:
    """Results have such hashes, in which local names are numbers."""
    assert code_hash(BINDING.encode()) == "75cd39e3e1dfd623"
