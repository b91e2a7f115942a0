"""What is known of a whole table is computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from ttabench_reports.tables.table import Table

T = TypeVar("T")


def once_per_table(made: Callable[[Table], T]) -> Callable[[Table], T]:
    """`made`, which is called once for each table; its result lives as long as the table."""
    known: WeakKeyDictionary[Table, T] = WeakKeyDictionary()

    @wraps(made)
    def of_table(table: Table) -> T:
        if table not in known:
            known[table] = made(table)
        return known[table]

    return of_table
