"""Misprints: printed means, increases and drops against what their own cells say, in exact arithmetic.

A printed number stands for every value that rounds to it, so it is an interval: 76.9 is 76.85 to 76.95. A
number is a misprint where the interval computed from its cells and its own do not meet. What rounding can
explain is never listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench_reports.published.catalog import catalog, rows

PAPER = "quantile2026"
Cells = dict[tuple[str, ...], str]  # (data set, architecture, method, corruption) → accuracy as printed


@dataclass(frozen=True)
class Interval:
    """What a printed number may have been before it was rounded. Ends included, for any rule of rounding."""

    low: Fraction
    high: Fraction

    @classmethod
    def of(cls, text: str) -> Interval:
        """The values that are printed as `text`: half a unit of the last decimal to either side."""
        text = text.lstrip("+")
        half = Fraction(1, 2 * 10 ** len(text.partition(".")[2]))
        return cls(Fraction(text) - half, Fraction(text) + half)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def meets(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high

    @property
    def middle(self) -> float:
        return float((self.low + self.high) / 2)


@dataclass(frozen=True)
class PrintedNumber:
    """A printed number that can be recomputed from its own cells, or from another table.

    where     publication and table, row, column.
    printed   as printed.
    computed  what the cells give, percent or points.
    how       what it was computed from.
    """

    table: str
    row: str
    column: str
    printed: str
    computed: Interval
    how: str

    def __str__(self) -> str:
        return f"{self.table}, {self.row}, {self.column}: printed {self.printed}, but {self.how}"


def mean(values: Sequence[Interval]) -> Interval:
    """The mean of numbers of which only the roundings are known."""
    low = sum((value.low for value in values), Fraction()) / len(values)
    high = sum((value.high for value in values), Fraction()) / len(values)
    return Interval(low, high)


def audit() -> list[PrintedNumber]:
    """Every misprint of the published numbers that the numbers themselves show."""
    return [one for one in _recomputed() if not one.computed.meets(Interval.of(one.printed))]


def checked() -> int:
    """How many printed numbers :func:`audit` recomputes."""
    return sum(1 for _ in _recomputed())


# ---- every printed number that can be recomputed, as a finding that it may be


def _recomputed() -> Iterator[PrintedNumber]:
    cells: Cells = {
        (row["dataset"], row["arch"], row["method"], row["corruption"]): row["accuracy"]
        for row in rows(PAPER)
    }
    yield from _means()
    yield from _increases(cells)
    yield from _summary(cells)
    yield from _drops(cells)
    yield from _ablation(cells)
    yield from _severities(cells)
    yield from _text(cells)


def _same(table: str, row: str, column: str, text: str, elsewhere: str) -> PrintedNumber:
    """A number that the appendix prints too."""
    return PrintedNumber(table, row, column, text, Interval.of(elsewhere), f"the appendix has {elsewhere}")


def _difference(table: str, row: str, column: str, text: str, more: str, less: str) -> PrintedNumber:
    computed = Interval.of(more) - Interval.of(less)
    return PrintedNumber(table, row, column, text, computed, f"{more} − {less} is {computed.middle:.1f}")


def _means() -> Iterator[PrintedNumber]:
    """The rows of every publication that prints fifteen corruptions and their mean."""
    for name in (one.name for one in catalog().values() if not one.rows):
        table: dict[tuple[str, ...], dict[str, str]] = {}
        for row in rows(name):
            key = (row["dataset"], row["severity"], row["arch"], row["method"])
            table.setdefault(key, {})[row["corruption"]] = row.get("accuracy", row.get("error", ""))
        for (dataset, _, arch, method), values in table.items():
            if all(values.get(column) for column in (*CORRUPTIONS, "mean")):
                computed = mean([Interval.of(values[column]) for column in CORRUPTIONS])
                how = f"the mean of its fifteen numbers is {computed.middle:.1f}"
                yield PrintedNumber(
                    f"{name}, {dataset}", f"{arch} {method}", "mean", values["mean"], computed, how
                )


def _increases(cells: Cells) -> Iterator[PrintedNumber]:
    """The mean is held against the two means: the mean of the row itself repeats the row's misprints."""
    for row in rows(f"{PAPER}_increase"):
        place = (row["dataset"], row["arch"])
        before, after = (cells[*place, method, row["corruption"]] for method in ("source", "quantile"))
        where = (f"{PAPER}, {row['dataset']}", f"{row['arch']} increase", row["corruption"])
        yield _difference(*where, row["increase"], after, before)


def _summary(cells: Cells) -> Iterator[PrintedNumber]:
    for row in rows(f"{PAPER}_summary"):
        where = (f"{PAPER}, summary table", f"{row['dataset']} {row['arch']}")
        yield _same(*where, "baseline", row["baseline"], cells[row["dataset"], row["arch"], "source", "mean"])
        yield _same(
            *where, "quantile", row["quantile"], cells[row["dataset"], row["arch"], "quantile", "mean"]
        )
        if best := row["sotta_resnet18"]:
            yield _same(*where, "current SOTA", best, cells[row["dataset"], "resnet18", "sotta", "mean"])
        yield _difference(*where, "increase", row["increase"], row["quantile"], row["baseline"])


def _drops(cells: Cells) -> Iterator[PrintedNumber]:
    for row in rows(f"{PAPER}_drop"):
        method, arch = row["approach"].split("-")
        where = (f"{PAPER}, drop table", f"{row['approach']} on {row['clean_dataset']}")
        elsewhere = cells[f"{row['clean_dataset']}-c", arch, method, "mean"]
        yield _same(*where, "corrupted", row["corrupted"], elsewhere)
        yield _difference(*where, "drop", row["printed_drop"], row["clean"], row["corrupted"])


def _ablation(cells: Cells) -> Iterator[PrintedNumber]:
    for row in rows(f"{PAPER}_ablation"):
        quantiles = 100 * int(row["quantiles_per_class"])  # of a hundred classes
        label = f"quantile[batch={row['batch_size']},quantiles={quantiles}]"
        where = (f"{PAPER}, ablation table", f"{row['dataset']} {row['arch']} {label}", "accuracy")
        yield _same(*where, row["accuracy"], cells[row["dataset"], row["arch"], label, "mean"])


def _severities(cells: Cells) -> Iterator[PrintedNumber]:
    for row in rows(f"{PAPER}_severity"):
        for method in ("source", "quantile") if row["severity"] == "5" else ():
            where = (f"{PAPER}, severity figure", f"{row['dataset']} {row['arch']} {method}")
            elsewhere = cells[row["dataset"], row["arch"], method, row["corruption"]]
            yield _same(*where, f"{row['corruption']}, severity 5", row[method], elsewhere)


def _text(cells: Cells) -> Iterator[PrintedNumber]:
    for row in rows(f"{PAPER}_text"):
        ours = cells[row["dataset"], row["arch"], row["method"], "mean"]
        where = (f"{PAPER}, text", f"{row['dataset']} {row['arch']} {row['method']}", row["quantity"])
        if row["quantity"] == "mean":
            yield _same(*where, row["value"], ours)
        else:
            other = cells[row["dataset"], "resnet18", "sotta", "mean"]
            yield _difference(*where, row["value"], ours, other)
