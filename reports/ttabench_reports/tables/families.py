"""Tables that belong together: those that differ in nothing but the severity, and rows of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from ttabench_reports.cells.frames import TABLE, unusual
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.tables.table import Row, Table, beside_stream, in_brackets, with_stream
from ttabench_reports.words import naming


@dataclass(frozen=True)
class Family:
    """The tables of one dataset and protocol, by rising severity.

    difference  in what they differ from the other families of the dataset; "" for one alone, and for the
                default protocol.
    """

    tables: tuple[Table, ...]
    difference: str

    @property
    def title(self) -> str:
        """``digits-c``, and :attr:`difference`."""
        return str(self.tables[0].key["dataset"]) + in_brackets(self.difference)

    @property
    def heading(self) -> str:
        """:attr:`title` with the dataset and the stream as papers write them."""
        key = self.tables[0].key
        stream = str(key["stream"])
        names = [naming.dataset(str(key["dataset"])), *([naming.stream(stream)] if stream else [])]
        return ", ".join(names) + beside_stream(self.difference, stream)


def families(tables: Iterable[Table]) -> list[Family]:
    """Each table in its family; families in the order of their first tables."""
    shared = [name for name in TABLE if name != "severity"]
    by_key = grouped((tuple(table.key[name] for name in shared), table) for table in tables)
    keys = pd.DataFrame(list(by_key), columns=shared)
    texts = unusual(keys, ["dataset"], [name for name in shared if name != "dataset"])
    return [
        Family(
            tuple(sorted(members, key=lambda table: int(table.key["severity"]))),
            with_stream(text, str(members[0].key["stream"])),
        )
        for members, text in zip(by_key.values(), texts, strict=True)
    ]


def across(
    tables: Iterable[Table], model: Callable[[str], str] = str
) -> dict[tuple[str, str], dict[int, Row]]:
    """The measured rows of tables by architecture and method, each by the place of its table.

    model  the name that architectures share whose rows belong together.
    """
    rows: dict[tuple[str, str], dict[int, Row]] = {}
    for place, table in enumerate(tables):
        for row in table.measured_rows:
            rows.setdefault((model(row.arch), row.method), {})[place] = row
    return rows
