"""Whether the code of a stored result is the installed code, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ttabench.errors import counted, first_of
from ttabench.provenance.roots import Code, current_code

if TYPE_CHECKING:
    from ttabench.cell import Cell

NOT_RECORDED = "it was stored by a version that did not record its code by definition"
NOT_INSTALLED = " is not installed"
REFERENCES = "what definitions refer to changed"
UNLIKE_ROW = "other cells of the row were measured with other code"
_SENTENCES = (NOT_RECORDED, UNLIKE_ROW)


class StoredCode(dict[str, str]):
    """Definition → hash. Hashable by identity, so that it is compared once for all records that share it.

    method    what `ttabench.method.facts_for_reports` says of the method, as JSON; "" if unknown.
    branches  definition → how often it decided what runs, where that was stored.
    """

    method: str = ""
    branches: Mapping[str, int] = {}

    __hash__ = object.__hash__  # type: ignore[assignment]


def code_of(cell: Cell) -> Code:
    """The installed code that the number of a cell depends on."""
    return current_code(
        cell.method, cell.dataset, cell.corruption, cell.arch, cell.protocol.contamination, dict(cell.config),
        cell.image_files,
    )  # fmt: skip


def code_changes(data: Mapping[str, Any], source: str, definitions: StoredCode) -> tuple[str, ...]:
    """:attr:`Record.changes` of stored data, made with this code."""
    if data["status"] == "n/a":
        return ()
    if not definitions:
        return (NOT_RECORDED,)
    now = code_now(data)
    if not now.source:
        return (f"{data['cell']['method']}{NOT_INSTALLED}",)
    return () if source == now.source else _changes(definitions, now)


def code_now(data: Mapping[str, Any]) -> Code:
    """The installed code for a stored result; its `source` is "" where the method is not installed."""
    cell = data["cell"]
    return current_code(
        cell["method"], cell["dataset"], cell["corruption"], cell["arch"],
        cell["protocol"].get("contamination", ""), cell["config"], cell.get("image_files", False),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _changes(then: StoredCode, now: Code) -> tuple[str, ...]:
    return tuple(changes(then, now.definitions))


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Differences between stored and current code, such as ``ttabench/nn/updates.py: minimise changed``.

    What has a new name and the same text is not named.
    """
    gone, new = then.keys() - now.keys(), now.keys() - then.keys()
    moved = {then[name] for name in gone} & {now[name] for name in new}
    found = [
        *(f"{name} changed" for name in sorted(then.keys() & now.keys()) if then[name] != now[name]),
        *(f"{name} is gone" for name in sorted(gone) if then[name] not in moved),
        *(f"{name} is new" for name in sorted(new) if now[name] not in moved),
    ]
    return found or [REFERENCES]


def by_importance(texts: Iterable[str]) -> list[str]:
    """`changes` of several results in one list: a module that is new was imported by one that changed."""
    return sorted(texts, key=lambda text: (text.endswith(" is new"), text))


def stale_reasons(texts: Iterable[str], wording: str) -> list[str]:
    """Why a result is stale: whole sentences, then the changed modules in place of {} in `wording`."""
    kinds: tuple[list[str], list[str]] = [], []
    for text in texts:
        kinds[text in _SENTENCES or text.endswith(NOT_INSTALLED)].append(text)
    changed, others = kinds
    return [*others, *([wording.format(first_of(changed, 3))] if changed else [])]


def stale_cells(count: int, method: str, texts: Sequence[str]) -> str:
    """``2 stale cells of tent: ttabench/nn/updates.py changed since they were measured``; see `changes`."""
    they = "they were" if count > 1 else "it was"
    whys = stale_reasons(filter(None, texts), f"{{}} since {they} measured")
    why = "; ".join(w.replace("it was", they, 1) if w == NOT_RECORDED else w for w in whys)
    why = why or "made with other code"
    return f"{counted(count, 'stale cell')} of {method}: {why}"


def attested_note(flags: Iterable[object]) -> str:
    """What a reader must know of attested cells, in sentences; "" if there are none.

    flags  whether each cell is attested: True or False, or ``true`` or ``false`` in any case of letters.
    """
    count = sum(str(flag).lower() == "true" for flag in flags)
    if not count:
        return ""
    return (
        f"{counted(count, 'cell')} {'is' if count == 1 else 'are'} attested: the code changed since, and a "
        "sample that ran again has the same bits. Times and memory are those of the old code."
    )
