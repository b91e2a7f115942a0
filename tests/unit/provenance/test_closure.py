# ruff: noqa: E501 - two texts side by side
"""The hash of definitions: names of definitions do not count, what they do and reach does."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache, partial
from textwrap import dedent

from tests.cases import each
from ttabench.provenance.closure import WHOLE, Graph, Module, Node, Reached, closure
from ttabench.provenance.definitions import definitions_of
from ttabench.provenance.normal_form import code_hash


def reached(
    texts: Mapping[str, str],
    *roots: Node,
    whole: tuple[str, ...] = (),
    left_out: tuple[str, ...] = (),
    cut: Mapping[str, frozenset[Node]] | None = None,
) -> Reached:
    """The code that the roots reach in modules with these texts; without roots, ``m: f``."""

    @cache
    def module(name: str) -> Module | None:
        if name not in texts:
            return None
        text = dedent(texts[name]).encode()
        found = definitions_of(ast.parse(text))
        return Module(found.by_name, found.imports, partial(code_hash, text), name in whole)

    return closure(roots or (("m", "f", ""),), Graph(module, left_out.__contains__), cut)


def same(one: str, other: str, further: str = "") -> bool:
    """Whether ``f`` is the same in two texts of a module, beside which the module ``n`` stands."""
    return reached({"m": one, "n": further}).source == reached({"m": other, "n": further}).source


TWO = "def a(x): return x + 1\ndef b(x): return x * 2\n"


@each(
    ("one", "other"),
    [
        ("def f(): return g()\ndef g(): return 1", "def f(): return h()\ndef h(): return 1"),
        ("def f(): return A\nA = 1", "def f(): return B\nB = 1"),
        (f"{TWO}def f(x): return a(b(x))", f"def f(x): return a(b(x))\n{TWO}"),
        (TWO + "def f(x): return a(x)", TWO + "def f(x): return a(x)\ndef c(x): return b(x)"),
        # Functions that call each other, with other names and in another order.
        (
            "def f(n): return n and g(n - 1)\ndef g(n): return n and f(n - 2)",
            "def h(n): return n and f(n - 2)\ndef f(n): return n and h(n - 1)",
        ),
        ("def f(n): return f(n - 1)", "def f(k): return f(k - 1)".replace("k", "n")),
        ("import n\ndef f(x): return n.a(x)", "from n import a\ndef f(x): return a(x)"),
        ("import n as k\ndef f(x): return k.a(x)", "from n import a as g\ndef f(x): return g(x)"),
        ("import os.path\ndef f(x): return os.path.join(x)", "from os import path\ndef f(x): return path.join(x)"),
        ("import numpy as np\ndef f(x): return np.log(x)", "from numpy import log\ndef f(x): return log(x)"),
        ("class A:\n    def one(self): return 1\ndef f(): return A()", "class A:\n    pass\ndef f(): return A()"),
        ("class A: pass\ndef f(): return A()", "class B: pass\ndef f(): return B()"),
        # Members that nobody calls.
        *(
            (f"from typing import Generic\nclass A({base}):\n    {kind}\n    def one(x): return 1\ndef f(): return A()",
             f"from typing import Generic\nclass A({base}):\n    {kind}\n    def one(x): return 2\ndef f(): return A()")
            for base, kind in (
                ("nn.Module", "@staticmethod"), ("nn.Module", "@classmethod"), ("Generic[T]", "@property"),
                ("object", "@property"),
            )
        ),
        ("class A:\n    def one(self): return 1\ndef f(): return A(), 'one'",
         "class A:\n    def one(self): return 2\ndef f(): return A(), 'one'"),
        ("class A:\n    def one(self): return 1\ndef f(x): return A(), getattr(x, 'two')",
         "class A:\n    def one(self): return 2\ndef f(x): return A(), getattr(x, 'two')"),
        # What only packages and type checkers read.
        ("__all__ = ['f']\ndef f(): return 1", "def f(): return 1"),
        ("import typing\nif typing.TYPE_CHECKING:\n    A = 1\nelse:\n    B = 2\ndef f(): return B",
         "B = 2\ndef f(): return B"),
        ("if not TYPE_CHECKING:\n    B = 2\ndef f(): return B", "B = 2\ndef f(): return B"),
        ("class A:\n    if TYPE_CHECKING:\n        x = 1\n    y = 1\ndef f(): return A",
         "class A:\n    y = 1\ndef f(): return A"),
    ],
)  # fmt: skip
def test_names_places_and_what_is_not_used_change_nothing(one: str, other: str) -> None:
    assert same(one, other, TWO)


@each(
    ("one", "other"),
    [
        # Which of two is used, and in which order.
        (TWO + "def f(x): return a(x)", TWO + "def f(x): return b(x)"),
        (TWO + "def f(x): return a(b(x))", TWO + "def f(x): return b(a(x))"),
        (TWO + "def f(x): return a(x) - b(x)", TWO + "def f(x): return b(x) - a(x)"),
        ("A, B = 1, 2\ndef f(): return A", "A, B = 1, 2\ndef f(): return B"),
        ("A = B = 1\ndef f(): return A, B", "A = 1\nB = 2\ndef f(): return A, B"),
        ("(A, B), C = x\ndef f(): return B - C", "(A, B), C = x\ndef f(): return C - B"),
        # Far away.
        ("def f(): return g()\ndef g(): return h()\ndef h(): return 1",
         "def f(): return g()\ndef g(): return h()\ndef h(): return 2"),
        # Mutual recursion.
        ("def f(n): return n and g(n - 1)\ndef g(n): return n and f(n - 2)",
         "def f(n): return n and g(n - 1)\ndef g(n): return n and f(n - 3)"),
        ("def f(n): return g(n - 1)\ndef g(n): return f(n - 2)", "def f(n): return f(n - 1)\ndef g(n): return f(n - 2)"),
        # Decorators, defaults, statements and global variables.
        ("@d\ndef f(): return 1\ndef d(g): return g", "@d\ndef f(): return 1\ndef d(g): return g()"),
        ("def f(x=A): return x\nA = 1", "def f(x=A): return x\nA = 2"),
        ("def f(): return 1\nprint(1)", "def f(): return 1\nprint(2)"),
        ("T = []\ndef f(): return T\nfor x in 1, 2:\n    T.append(x)",
         "T = []\ndef f(): return T\nfor x in 1, 3:\n    T.append(x)"),
        ("T = {}\ndef f(): return T\nT['a'] = 1", "T = {}\ndef f(): return T\nT['a'] = 2"),
        ("A = 1\ndef f():\n    global A\n    return A", "A = 2\ndef f():\n    global A\n    return A"),
        ("try:\n    from n import a as g\nexcept ImportError:\n    g = 1\ndef f(x): return g(x)",
         "try:\n    from n import b as g\nexcept ImportError:\n    g = 1\ndef f(x): return g(x)"),
        *(
            (f"{text.format(1)}\ndef f(): return A", f"{text.format(2)}\ndef f(): return A")
            for text in (
                "if x:\n    A = {}", "if x:\n    A = 3\nelse:\n    A = {}", "if x:\n    B = 0\n    A = {}\n    C = 0",
                "with x:\n    if y:\n        A = {}", "A = x\nA.b.c[0].d = {}", "A = x\nif y:\n    A[1] = {}",
                "A = 0\nA = {}", "A: int = {}", "B = A = {}", "A = 1\nif x:\n    if y:\n        g({})\n    A = 1",
                "A = 1\nwhile x:\n    B = 1\n    for y in x: g({})\n    C = 1", "if x:\n    def A(): return {}",
                "if x.RUNS:\n    A = {}", "if not x:\n    A = {}", "if -x:\n    A = {}",
            )
        ),
        # Several imports.
        *(
            (text.format("a"), text.format("b"))
            for text in (
                "from n import {} as g\nimport os\ndef f(): return g(os)",
                "import os\nfrom n import {} as g\ndef f(): return g(os)",
                "def f(x):\n    from n import {} as g\n    import os\n    return g(os)",
                "def f(x):\n    import os\n    from n import {} as g\n    return g(os)",
                "def f(x):\n    if x:\n        from n import {} as g\n    return g(x)",
            )
        ),
        # A class inside of a function has a member with the name of a global function.
        *(
            (f"def a(x): return {value}\ndef f(x):\n    class C:\n        def a(self): return 1\n    return a(x)",
             f"def a(x): return 2 * {value}\ndef f(x):\n    class C:\n        def a(self): return 1\n    return a(x)")
            for value in (1, 2)
        ),
        # Classes: values, bases, special members, members that are used, members that name each other.
        ("class A:\n    x = 1\ndef f(): return A", "class A:\n    x = 2\ndef f(): return A"),
        ("class A:\n    x = 1\ndef f(): return A", "class A:\n    y = 1\ndef f(): return A"),
        ("class B: x = 1\nclass A(B): pass\ndef f(): return A", "class B: x = 2\nclass A(B): pass\ndef f(): return A"),
        *(
            (f"class A:\n    def {name}(self): return 1\ndef f(): return {use}",
             f"class A:\n    def {name}(self): return 2\ndef f(): return {use}")
            for name, use in (
                ("__len__", "A()"), ("one", "A().one()"), ("one", "A.one"), ("one", "getattr(A(), 'one')"),
                ("one", "getattr(A(), f'o{n}')"), ("one", "methodcaller('one')(A())"),
                ("one", "getattr(A(), 'o' + n)"), ("one", "setattr(A(), f'o{n}', 1)"), ("one", "hasattr(A(), 'one')"),
                ("one", "attrgetter(f'o{n}')(A())"), ("one", "methodcaller('o' + n)(A())"), ("one", "attrgetter('one')(A())"),
                ("one", "operator.attrgetter('one')(A())"),
            )
        ),
        ("class A:\n    def one(self): return 1\n    two = one\ndef f(): return A().two()",
         "class A:\n    def one(self): return 2\n    two = one\ndef f(): return A().two()"),
        ("class A:\n    @property\n    def one(self): return 1\ndef f(a): return A, a.one",
         "class A:\n    @property\n    def one(self): return 2\ndef f(a): return A, a.one"),
        *(
            ("class A:\n    @property\n    def one(self): return 1\n    @one.setter\n    def one(self, x): self.x = 1\n"
             "def f(a): return A, a.one",
             f"class A:\n    @property\n    def one(self): return {got}\n    @one.setter\n    def one(self, x): self.x = {given}\n"
             "def f(a): return A, a.one")
            for got, given in ((1, 2), (2, 1))
        ),
        # Members that a class of another package may call.
        *(
            (f"{text.format(1)}\ndef f(): return A()", f"{text.format(2)}\ndef f(): return A()")
            for text in (
                "class A(nn.Base[int]):\n    def hook(self): return {}",
                "class A(object, nn.Base):\n    def hook(self): return {}",
                "class B: pass\nclass A(B, nn.Base):\n    def hook(self): return {}",
                "class C(nn.Base): pass\nclass B(C): pass\nclass A(B):\n    def hook(self): return {}",
                "class A(Function):\n    @staticmethod\n    def forward(x): return {}",
            )
        ),
        ("class A(nn.Module):\n    def forward(self): return 1\ndef f(): return A()",
         "class A(nn.Module):\n    def forward(self): return 2\ndef f(): return A()"),
        ("class B(nn.Module): pass\nclass A(B):\n    def hook(self): return 1\ndef f(): return A()",
         "class B(nn.Module): pass\nclass A(B):\n    def hook(self): return 2\ndef f(): return A()"),
        ("class A(Function):\n    @staticmethod\n    def backward(x): return 1\ndef f(): return A.apply()",
         "class A(Function):\n    @staticmethod\n    def backward(x): return 2\ndef f(): return A.apply()"),
        # An attribute of a class with the name of a global function.
        ("def e(x): return 1\nclass A:\n    e = staticmethod(e)\ndef f(): return A",
         "def e(x): return 2\nclass A:\n    e = staticmethod(e)\ndef f(): return A"),
        ("def e(x): return 1\nclass A:\n    e = 1\ndef f(): return A", "def e(x): return 1\nclass A:\n    d = 1\ndef f(): return A"),
        # What is imported.
        ("from n import a as g\ndef f(x): return g(x)", "from n import b as g\ndef f(x): return g(x)"),
        ("def f(x):\n    from n import a as g\n    return g(x)", "def f(x):\n    from n import b as g\n    return g(x)"),
        ("import n\ndef f(x): return n.a(x)", "import n\ndef f(x): return n.b(x)"),
        ("import numpy as np\ndef f(x): return np.log(x)", "import numpy as np\ndef f(x): return np.exp(x)"),
        ("from math import log\ndef f(x): return log(x)", "from numpy import log\ndef f(x): return log(x)"),
    ],
)  # fmt: skip
def test_what_may_change_a_value_changes_the_hash(one: str, other: str) -> None:
    assert not same(one, other, TWO)


def test_members_that_are_not_used_do_not_count_and_their_names_stay() -> None:
    one = "class A:\n    def one(self): return 1\n    def two(self): return 2\ndef f(a): return A, a.one()"
    assert same(one, one.replace("return 2", "return 3"))
    assert not same(one, one.replace("one", "first"))  # callers of other modules use it by name


def test_a_name_that_a_package_passes_on_means_what_it_passes_on() -> None:
    texts = {
        "m": "from p import g\ndef f(): return g()",
        "p": "from p.inner import g",
        "p.inner": "def g(): return 1",
    }
    before = reached(texts)
    assert ("p.inner", "g", "") in before.texts
    assert reached(texts | {"p": "from p.inner import g\nA = 1"}).source == before.source
    assert reached(texts | {"m": "from p.inner import g\ndef f(): return g()"}).source == before.source
    assert reached(texts | {"p.inner": "def g(): return 2"}).source != before.source


def test_a_name_that_came_by_a_star_means_what_it_passes_on() -> None:
    texts = {
        "m": "from p import g\ndef f(): return g()",
        "p": "from p.one import *\nfrom p.other import *",
        "p.one": "def h(): return 1",
        "p.other": "def g(): return 1",
    }
    before = reached(texts)
    assert ("p.other", "g", "") in before.texts
    assert ("p", WHOLE, "") not in before.texts
    assert reached(texts | {"p.other": "def g(): return 2"}).source != before.source
    assert reached(texts | {"p.one": "def h(): return 2"}).source == before.source


def test_what_a_package_makes_when_it_is_asked_for_counts_whole() -> None:
    texts = {"m": "from p import g\ndef f(): return g()", "p": "def __getattr__(name): return 1"}
    assert ("p", WHOLE, "") in reached(texts).texts
    assert reached(texts).source != reached(texts | {"p": "def __getattr__(name): return 2"}).source


def test_modules_of_strangers_count_whole() -> None:
    texts = {"m": "from s import g\ndef f(): return g()", "s": "def g(): return 1\ndef other(): return 1\n"}
    changed = texts | {"s": texts["s"] + "A = 1\n"}
    assert reached(texts).source == reached(changed).source
    assert reached(texts, whole=("s",)).source != reached(changed, whole=("s",)).source
    # and what they use of ttabench
    texts |= {"s": "from n import a\ndef g(): return a", "n": "def a(): return 1\ndef b(): return 1"}
    root = ("s", WHOLE, "")
    before = reached(texts, root, whole=("s",)).source
    assert reached(texts | {"n": "def a(): return 1\ndef b(): return 2"}, root, whole=("s",)).source == before
    assert reached(texts | {"n": "def a(): return 2\ndef b(): return 1"}, root, whole=("s",)).source != before


def test_what_is_left_out_does_not_count() -> None:
    texts = {"m": "from n import a\nimport n\ndef f(): return a(), n.b()", "n": TWO}
    for left_out in (("n",), ("n:a", "n:b")):
        code = reached(texts, left_out=left_out)
        assert {name for name, _, _ in code.texts} == {"m"}
    texts = {"m": "class A:\n    def one(self): return 1\ndef f(): return A().one()"}
    other = {"m": texts["m"].replace("return 1", "return 2")}
    assert reached(texts, left_out=("m:A.one",)).source == reached(other, left_out=("m:A.one",)).source


def test_what_is_cut_counts_for_others() -> None:
    texts = {"m": "from n import a, b\ndef f(): return a, b", "n": TWO}
    other = {**texts, "n": TWO.replace("x * 2", "x * 3")}
    cut = {"m": frozenset({("n", "b", "")})}
    assert reached(texts, cut=cut).source == reached(other, cut=cut).source
    assert reached(texts).source != reached(other).source
    texts["m"] = other["m"] = "from n import a, b\nfrom k import g\ndef f(): return a, b, g"
    texts["k"] = other["k"] = "from n import b\ndef g(): return b"
    assert reached(texts, cut=cut).source != reached(other, cut=cut).source


def test_the_order_of_roots_does_not_count() -> None:
    roots = ("m", "a", ""), ("m", "b", "")
    assert reached({"m": TWO}, *roots).source == reached({"m": TWO}, *reversed(roots)).source
    assert reached({"m": TWO}, roots[0]).source != reached({"m": TWO}, *roots).source


def test_long_chains_and_circles_are_followed() -> None:
    chain = "\n".join(f"def g{i}(): return g{i + 1}()" for i in range(1200)) + "\ndef g1200(): return "
    one, other = (reached({"m": f"def f(): return g0()\n{chain}{end}"}) for end in ("1", "2"))
    assert one.source != other.source
    assert len(one.texts) == 1202  # more than Python's calls may be deep


def test_what_is_for_types_only_does_not_count() -> None:
    one = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from n import a\ndef f(x: a) -> a: return x"
    )
    assert same(one, "def f(x): return x", TWO)


def test_names_that_a_module_imports_when_they_are_used_count() -> None:
    """A package may give its names by ``__getattr__``, and import them for type checkers only."""
    lazy = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from n import a\n"
        "def __getattr__(name): return getattr(import_module('n'), name)"
    )
    user = "from p import a\ndef f(): return a()"
    one, other = (
        reached({"m": user, "p": lazy, "n": f"def a(): return {value}"}, ("m", "f", "")) for value in (1, 2)
    )
    assert one.source != other.source
    eager = reached({"m": user, "p": "from n import a", "n": "def a(): return 1"}, ("m", "f", ""))
    assert one.texts.keys() >= eager.texts.keys() - {("p", "", "")}


@each(
    ("before", "after", "alike"),
    [
        (TWO + "def f(x): return a(x) + b(x)", TWO + "def f(x): return a(x) - b(x)", True),
        (TWO + "def f(x): return a(x)", TWO.replace("+ 1", "+ 3") + "def f(x): return a(x)", True),
        (TWO + "def f(x): return a(x) + b(x)", TWO + "def f(x): return b(x) - a(x)", False),
        (TWO + "def f(x): return a(b(x))", TWO.replace("+ 1", "+ 3") + "def f(x): return b(a(x))", False),
        ("def f(x): return abs(x) if x.std() < 1 else x", "def f(x): return x", False),
    ],
)  # fmt: skip
def test_old_texts_with_new_references_give_the_old_hash_where_references_are_the_same(
    before: str, after: str, alike: bool
) -> None:
    then, now = reached({"m": before}), reached({"m": after})
    texts = {node: then.texts.get(node, text) for node, text in now.texts.items()}
    assert now.source_with(now.texts) == now.source != then.source
    assert (now.source_with(texts) == then.source) == alike


def test_a_class_that_is_made_from_itself_or_from_a_value_has_no_members_that_others_call() -> None:
    for head in ("A = make()\nclass A(A):", "class A(B):", "class B(A): pass\nclass A(B):"):
        one = f"B = make()\n{head}\n    def one(self): return 1\ndef f(): return A"
        assert same(one, one.replace("return 1", "return 2")) == (not head.startswith("A = "))


def test_how_often_each_definition_decides_what_runs() -> None:
    texts = {
        "m": "from s import g\nclass A:\n    def one(self, x): return 1 if x else 2\n"
        "def f(x):\n    if x:\n        return A().one(x)\n    return g(x)",
        "s": "def g(x): return x or 1",
    }
    code = reached(texts, whole=("s",))
    assert code.branches == {("m", "f", ""): 1, ("m", "A", ""): 0, ("m", "A", "one"): 1}
    assert code.texts.keys() - code.branches.keys() == {("s", WHOLE, "")}


def test_what_a_name_refers_to() -> None:
    texts = {
        "m": "import numpy as np\nimport p\nfrom k import a\n"
        "def f(x): return np.linalg.norm(x), abs(x), p.inner.g.one, p.inner.deep.h, p.two.three, a, p",
        "p": "", "p.inner": "def g(): return 1", "p.inner.deep": "def h(): return 1", "k": "a = 1",
    }  # fmt: skip
    code = reached(texts, left_out=("k",))
    assert code.edges["m", "f", ""] == (
        "numpy:linalg.norm", "abs", ("p.inner", "g", ""), ".one", ("p.inner.deep", "h", ""), ".",
        ("p", WHOLE, ""), ".two.three", "left out", ("p", WHOLE, ""), ".",
    )  # fmt: skip


def test_a_name_may_come_by_the_second_star() -> None:
    texts = {
        "m": "from p import *\ndef f(): return g()", "p": "from q import *\nfrom r import *", "q": "",
        "r": "from s import g", "s": "def g(): return 1",
    }  # fmt: skip
    assert ("r", WHOLE, "") not in reached(texts).texts


STORED = {
    "m": """
        from __future__ import annotations
        import functools
        import numpy as np
        from n import *
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from k import Only
        A, B = 1, 2
        TABLE = {}
        TABLE["a"] = B
        try:
            import fast
        except ImportError:
            fast = None
        if fast:
            register(A)
        class Base(np.ndarray):
            size: int = 3
            def hook(self): return self.size
            @property
            def value(self): return A
            @value.setter
            def value(self, x): self.x = x
            @staticmethod
            def made(): return Base()
            def _unused(self): return 5
        class Plain:
            kept = 1
            def used(self): return 1
            def unused(self): return 2
        def even(n): return n == 0 or odd(n - 1)
        def odd(n): return n != 0 and even(n - 1)
        def down(n): return down(n - 1) if n else [x for x in range(3) if x]
        async def later(x):
            from n import two as inner
            return await inner(x)
        @functools.cache
        def f(x, *, y=A):
            "Words."
            if x is None:
                raise ValueError("words")
            return Base(), Plain().used(), even(3), down(x), one(y), later, TABLE, getattr(x, "hook"), np.log(x)
    """,
    "n": "def one(x): return two(x)\ndef two(x): return one(x - 1) if x else 0\ndef three(): return one",
}


def test_the_hash_of_given_code_stays() -> None:
    """Results have it: with another one, all that is stored would be stale."""
    code = reached(STORED)
    assert code.source == "9435cf401941e2a52c78e34128c12ac380b40b2ce6da2e05150ad731419fc6af"
    assert (
        reached(STORED, ("m", "later", ""), whole=("n",)).source
        == "5723e548dc7eb96b1759ce2a0f4bc5dc73e40e94f940aaf1f0c87ba6c5d254a5"
    )
