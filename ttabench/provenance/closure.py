"""All definitions that a piece of code reaches, and one hash of them in which no name of theirs stands.

The hash of a definition is that of its text with the hash of each definition that it refers to. Definitions
that refer to each other are hashed together. So a new name or another file changes nothing, and a change of
anything that is reached changes the hash. A class counts by its header, its special methods, and the members
whose names reached code uses. Modules that are not in Python, and those of strangers, count whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from ttabench.provenance.definitions import ANY, BODY, Definition

Node = tuple[str, str, str]
"""A module, a definition in it ("" for the other statements, "*" for the whole module, "=" for
its text alone), and a member of it."""
WHOLE = "*"
OWN_TEXT = "="
NOT_USED = "not used"

# Classes of Python that call no members of the classes made from them but special ones.
PLAIN_BASES = frozenset({
    "object", "abc:ABC", "typing:Generic", "typing:Protocol", "typing:NamedTuple", "typing:TypedDict",
    "enum:Enum", "Exception", "ValueError", "RuntimeError",
})  # fmt: skip
# Functions of other packages that call static methods by name.
CALLED_BY_TORCH = frozenset({"forward", "backward", "setup_context", "jvp", "vmap"})


@dataclass(frozen=True)
class Module:
    """What the closure needs of a module.

    definitions   by name; none where it is not in Python.
    imports       name → ``package.module`` or ``package.module:attribute``, absolute.
    whole         gives 16 hex digits of all its code.
    counts_whole  whether all of it counts where anything of it is reached.
    """

    definitions: Mapping[str, Definition]
    imports: Mapping[str, str]
    whole: Callable[[], str]
    counts_whole: bool = False


@dataclass(frozen=True)
class Reached:
    """The code that a number depends on.

    source  SHA-256 (hex) over all that is reached, without names; "" for no code.
    texts   definition → 16 hex digits of its text alone.
    roots   where the code is entered.
    edges   definition → what it refers to.
    branches  definition → how often it decides what runs; not of whole modules.
    """

    source: str = ""
    texts: Mapping[Node, str] = field(default_factory=dict)
    roots: tuple[Node, ...] = ()
    edges: Mapping[Node, tuple[Node | str, ...]] = field(default_factory=dict)
    branches: Mapping[Node, int] = field(default_factory=dict)

    def source_with(self, texts: Mapping[Node, str]) -> str:
        """The hash if definitions had these texts, and referred to the same as now."""
        return _source(self.roots, self.edges, texts)


@dataclass(frozen=True)
class _Found:
    """A node: the hash of its text, what it refers to in order, the attributes it uses, and its members.

    members   of a class, by name.
    strange   of a class: whether it is made from one of another package, which may call any member by name.
    branches  how often it decides what runs; None for a whole module.
    """

    text: str
    targets: tuple[Node | str, ...]
    uses: frozenset[str] = frozenset()
    members: Mapping[str, Definition] = field(default_factory=dict)
    strange: bool = False
    branches: int | None = None


class Graph:
    """What definitions refer to. It is kept for all closures over the same modules.

    module    a module by its name; None for one whose code does not count.
    left_out  whether a module, ``module:definition`` or ``module:class.member`` changes no number.
    """

    def __init__(
        self, module: Callable[[str], Module | None], left_out: Callable[[str], bool] = lambda name: False
    ) -> None:
        self.module = cache(module)
        self.left_out = cache(left_out)
        self.found = cache(self._find)

    def _find(self, node: Node, cut: frozenset[Node]) -> _Found:
        """`cut`: definitions that the module of the node refers to and does not use."""
        name, of, member = node
        module = self._known(name)
        if of == OWN_TEXT:
            return _Found(module.whole(), ())
        also: list[Node] = []
        if of == WHOLE:
            parts = [  # in an order that does not depend on where the module's facts are from
                each
                for _, one in sorted(module.definitions.items())
                for each in (one, *(member for _, member in sorted(one.members.items())))
            ]
        else:
            definition = module.definitions[of]
            parts = [definition.members[member] if member else definition]
            if not member and of != BODY and BODY in module.definitions:
                also = [(name, BODY, "")]
        targets: list[Node | str] = [*also]
        for part in parts:
            for dotted in part.refers:
                targets += self.resolve(name, dotted, part.imports)
        targets = [NOT_USED if each in cut else each for each in targets]
        uses = frozenset(use for part in parts for use in part.uses)
        if of == WHOLE:
            return _Found(module.whole(), tuple(targets), uses)
        is_class = parts[0].bases is not None
        members = {
            each: found
            for each, found in parts[0].members.items()
            if not self.left_out(f"{name}:{of}.{each}")
        }
        strange = is_class and self._is_strange(node)
        return _Found(parts[0].text, tuple(targets), uses, members, strange, parts[0].branches)

    def _known(self, name: str) -> Module:
        module = self.module(name)
        assert module is not None
        return module

    def _is_strange(self, node: Node, seen: tuple[Node, ...] = ()) -> bool:
        name, of, _ = node
        found = self._known(name).definitions.get(of)
        if node in seen or found is None or found.bases is None:
            return False
        for base in found.bases:
            for target in self.resolve(name, base, {}):
                if isinstance(target, tuple):
                    if self._is_strange((target[0], target[1], ""), (*seen, node)):
                        return True
                elif target not in PLAIN_BASES and not target.startswith("."):
                    return True
        return False

    # ---- what names mean

    def resolve(self, name: str, dotted: str, own: Mapping[str, str]) -> list[Node | str]:
        """The definition that a dotted name in a module means, and attributes that are left; or a text."""
        first, *rest = dotted.split(".")
        module = self._known(name)
        if first not in own and first in module.definitions:
            return [] if module.counts_whole else [(name, first, ""), _left(rest)]
        meaning = own.get(first) or module.imports.get(first) or self._by_star(module, first)
        if meaning is None:
            return [dotted]  # of Python itself
        return self.target(meaning, rest)

    def target(self, meaning: str, rest: list[str]) -> list[Node | str]:
        """What an import means, with the attributes that follow."""
        name, _, attribute = meaning.partition(":")
        path = [attribute, *rest] if attribute else rest
        while path and self.module(f"{name}.{path[0]}") is not None:
            name, path = f"{name}.{path[0]}", path[1:]
        module = self.module(name)
        if module is None:
            return [":".join(filter(None, (name, ".".join(path))))]
        if self.left_out(name) or (path and self.left_out(f"{name}:{path[0]}")):
            return ["left out"]
        if module.counts_whole or not path:
            return [(name, WHOLE, ""), _left(path)]
        first, *left = path
        if first in module.definitions:
            return [(name, first, ""), _left(left)]
        if imported := module.imports.get(first) or self._by_star(module, first):
            return self.target(imported, left)
        return [(name, WHOLE, ""), _left(path)]  # made when it is asked for

    def _by_star(self, module: Module, name: str) -> str | None:
        """What a name means that ``from … import *`` brings."""
        for alias, meaning in sorted(module.imports.items()):
            other = meaning.partition(":")[0]
            found = self.module(other) if alias[:1] == "*" else None
            if found is not None and (name in found.definitions or name in found.imports):
                return f"{other}:{name}"
        return None


def _left(names: list[str]) -> str:
    return "." + ".".join(names)


def closure(roots: Iterable[Node], graph: Graph, cut: Mapping[str, frozenset[Node]] | None = None) -> Reached:
    """All that the roots reach, hashed.

    cut   module → definitions that its code refers to and does not use.
    """
    start = tuple(dict.fromkeys(roots))
    reached = _reached(start, graph, cut or {})
    edges = {node: _edges(node, found, reached) for node, found in reached.items()}
    texts = {node: found.text for node, found in reached.items()}
    branches = {node: found.branches for node, found in reached.items() if found.branches is not None}
    return Reached(_source(start, edges, texts), texts, start, edges, branches)


def _source(
    start: Iterable[Node], edges: Mapping[Node, tuple[Node | str, ...]], texts: Mapping[Node, str]
) -> str:
    hashes = _hashed(edges, texts)
    text = "\n".join(sorted(hashes[node] for node in start))
    return hashlib.sha256(text.encode()).hexdigest()


def _reached(start: Iterable[Node], graph: Graph, cut: Mapping[str, frozenset[Node]]) -> dict[Node, _Found]:
    """The roots and all that they reach. A member counts once any reached code uses its name.

    Where code puts the name of an attribute together, all members of the classes of its module count.
    """
    reached: dict[Node, _Found] = {}
    classes: dict[tuple[str, str], _Found] = {}
    used: set[str] = set()
    any_of: set[str] = set()
    queue = list(start)
    while queue:
        while queue:
            node = queue.pop()
            if node not in reached:
                found = reached[node] = graph.found(node, cut.get(node[0], frozenset()))
                if found.members:
                    classes[node[0], node[1]] = found
                used |= found.uses
                any_of |= {node[0]} if ANY in found.uses else set()
                queue += [each for each in found.targets if isinstance(each, tuple)]
        for (name, of), found in classes.items():
            for member, definition in found.members.items():
                if (name, of, member) in reached:
                    continue
                special = member[:2] == "__" == member[-2:]
                hidden = found.strange and (not definition.free or member in CALLED_BY_TORCH)
                if special or hidden or member in used or name in any_of:
                    queue.append((name, of, member))
    return reached


def _edges(node: Node, found: _Found, reached: Mapping[Node, _Found]) -> tuple[Node | str, ...]:
    """The references of a node; of a class also its members that are reached, with their names."""
    edges = list(found.targets)
    for each in sorted(found.members):
        if (member := (node[0], node[1], each)) in reached:
            edges += [f"member {each}", member]
    return tuple(edges)


def _hashed(graph: Mapping[Node, tuple[Node | str, ...]], texts: Mapping[Node, str]) -> dict[Node, str]:
    """Node → hash of its text and of all that it reaches."""
    hashes: dict[Node, str] = {}
    following = {node: [each for each in edges if isinstance(each, tuple)] for node, edges in graph.items()}
    for group in _components(following):
        inner = {node: texts[node] for node in group}
        rounds = len(group) if len(group) > 1 or group[0] in following[group[0]] else 1
        for _ in range(rounds):
            inner = {node: _hash_of(node, graph[node], texts, inner, hashes) for node in group}
        if len(group) > 1:
            together = hashlib.sha256("".join(sorted(inner.values())).encode()).hexdigest()
            inner = {
                node: hashlib.sha256(f"{value} {together}".encode()).hexdigest()
                for node, value in inner.items()
            }
        hashes |= inner
    return hashes


def _hash_of(
    node: Node,
    edges: tuple[Node | str, ...],
    texts: Mapping[Node, str],
    inner: Mapping[Node, str],
    hashes: Mapping[Node, str],
) -> str:
    parts = [(inner.get(each) or hashes[each]) if isinstance(each, tuple) else f"'{each}'" for each in edges]
    parts.insert(0, texts[node])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _components(following: Mapping[Node, Sequence[Node]]) -> Iterator[list[Node]]:
    """Groups of nodes that reach each other, each after all that it reaches (Tarjan 1972).

    following   node → those that it refers to.
    """
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    for root in sorted(following):
        if root in index:
            continue
        work: list[tuple[Node, Iterator[Node]]] = [(root, iter(following[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for each in rest:
                if each not in index:
                    index[each] = low[each] = len(index)
                    stack.append(each)
                    on_stack.add(each)
                    work.append((each, iter(following[each])))
                    break
                if each in on_stack:
                    low[node] = min(low[node], index[each])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        last = stack.pop()
                        on_stack.remove(last)
                        group.append(last)
                        if last == node:
                            break
                    yield sorted(group)
