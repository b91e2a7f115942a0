"""Failures in a continual run: what the cells after one say, and which are stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from ttabench.cell import Cell, Result, shift_name


def failed_before(cell: Cell) -> str:
    """Why the cells after a failed one fail."""
    return f"{shift_name(cell.corruption, cell.severity)}, earlier in this continual run, failed"


def results_to_store(results: Iterable[Result], done: Collection[str]) -> Iterator[Result]:
    """The results of one continual run, in order, without failures of cells that have a result already.

    Such cells run again only because others go on from them. Their failure becomes a part of the reason of
    the cells that fail after them, which get its traceback too.

    done  ids of the cells that have a result.
    """
    first: Result | None = None
    for result in results:
        if result.status == "failed":
            first = first or result
            if result.cell.cell_id in done:
                continue
            if first.cell.cell_id in done:
                reason = f"{result.reason}: {first.reason}"
                result = replace(result, reason=reason, details=first.details)
        yield result
