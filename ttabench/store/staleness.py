"""Whether the code of a stored result is the installed code, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ttabench import provenance
from ttabench.errors import counted

NOT_RECORDED = "it was stored by a version that did not record its code"
NOT_INSTALLED = " is not installed"


class Modules(dict[str, str]):
    """Module → hash. Hashable by identity, so that it is compared once for all records that share it."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def code_changes(data: Mapping[str, Any], modules: Modules) -> tuple[str, ...]:
    """:attr:`Record.changes` of stored data, made with the code in `modules`."""
    if data["status"] == "n/a":
        return ()
    if not modules:
        return (NOT_RECORDED,)
    cell = data["cell"]
    what = cell["corruption"] if cell["corruption"] in provenance.STREAMS else ""
    contamination = cell["protocol"].get("contamination", "")
    parts = provenance.parts_of(cell["method"], cell["config"])
    return _changes(cell["method"], cell["dataset"], what, cell["arch"], contamination, parts, modules)


@lru_cache(maxsize=4096)
def _changes(
    method: str,
    dataset: str,
    corruption: str,
    arch: str,
    contamination: str,
    parts: tuple[str, ...],
    modules: Modules,
) -> tuple[str, ...]:
    now = provenance.current_modules(method, dataset, corruption, arch, contamination, parts)
    if not now:
        return (f"{method}{NOT_INSTALLED}",)
    unused = provenance.unused_modules(method, parts)  # earlier versions recorded them too
    then = {name: value for name, value in modules.items() if name in now or name not in unused}
    return tuple(provenance.changes(then, now))


def by_importance(texts: Iterable[str]) -> list[str]:
    """`changes` of several results in one list: a module that is new was imported by one that changed."""
    return sorted(texts, key=lambda text: (text.endswith(" is new"), text))


def brief_changes(texts: Sequence[str], shown: int = 3) -> str:
    """The first of `changes` in one text, e.g. ``ttabench/nn/updates.py changed and 4 more``."""
    more = f" and {len(texts) - shown} more" if len(texts) > shown else ""
    return ", ".join(texts[:shown]) + more


def stale_reasons(texts: Iterable[str], wording: str) -> list[str]:
    """Why a result is stale: whole sentences, then the changed modules in place of {} in `wording`."""
    kinds: tuple[list[str], list[str]] = [], []
    for text in texts:
        kinds[text == NOT_RECORDED or text.endswith(NOT_INSTALLED)].append(text)
    changed, others = kinds
    return [*others, *([wording.format(brief_changes(changed))] if changed else [])]


def stale_cells(count: int, method: str, texts: Sequence[str]) -> str:
    """``2 stale cells of tent: ttabench/nn/updates.py changed since they were measured``; see `changes`."""
    they = "they were" if count > 1 else "it was"
    whys = stale_reasons(filter(None, texts), f"{{}} since {they} measured")
    why = "; ".join(w.replace("it was", they, 1) if w == NOT_RECORDED else w for w in whys)
    why = why or "made with other code"
    return f"{counted(count, 'stale cell')} of {method}: {why}"
