"""Which method, when? The ranking of methods on each network, written as text from stored results.

Per network and mode: accuracy with its interval, distance from Source, corruptions won and lost, cost, what a
method needs, and where its predictions collapse. A summary in sentences stands above each ranking.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ttabench.errors import counted
from ttabench_reports.evidence import intervals_and_tests as evidence
from ttabench_reports.evidence import stats
from ttabench_reports.evidence.given import given
from ttabench_reports.evidence.groups import groups, which_weights
from ttabench_reports.evidence.intervals_and_tests import Finding
from ttabench_reports.evidence.paired_rows import paired_with
from ttabench_reports.evidence.places import ALPHA, best_places
from ttabench_reports.evidence.report import Report
from ttabench_reports.evidence.stability import COLLAPSED, Stability, stabilities
from ttabench_reports.sheets import words
from ttabench_reports.tables.table import Row, Table
from ttabench_reports.words import naming
from ttabench_reports.words.markdown_text import escape, table_row
from ttabench_reports.words.naming import MEAN

BACKWARD = 2
"""The work of a backward pass in forward passes: gradients of the activations and of the weights."""
CLOSE = 1.0  # points below the best, within which the cheapest method is named
FAMILIES = {  # by the first letters of a network's name
    "resnet": "convolutional, batch norm", "cct": "transformer with convolutions", "cvt": "transformer",
    "vit": "transformer",
}  # fmt: skip
HEADS = (
    "Method",
    "Accuracy",
    "95 % interval",
    "Above Source",
    "W/T/L",
    "Passes",
    "Time",
    "Needs",
    "Collapses",
)
ALIGNED = (":---", "---:", ":---:", "---:", ":---:", "---:", "---:", ":---", ":---")
OVERVIEW = (
    "", "Mode", "Source", "Best", "Best without source data", f"Cheapest within {CLOSE:g} point",
    "Significantly below Source", "With a collapse",
)  # fmt: skip
NEVER_RESET = "<sup>1</sup> RDumb never resets here, because no cell is long enough, so it equals ETA."
TESTS = (2, 4)  # the columns that a long stream does not have
NO_TESTS = "A long stream has no intervals and tests, because its images repeat and are no random sample."


@dataclass(frozen=True, slots=True)
class Ranking:
    """The methods of one network, protocol and mode, with Source: those with a mean, the best first.

    weights  of the network, where the report has several, ``weights 1a2b3c4d``
    over     the figures of rows on a long stream, by id; none for Source, and where windows are not stored.
    """

    table: Table
    arch: str
    weights: str
    rows: Sequence[Row]
    findings: Mapping[int, Finding]
    over: Mapping[int, Stability]

    @property
    def methods(self) -> list[Row]:
        return [row for row in self.rows if row.kind == "method"]

    @property
    def mode(self) -> str:
        return "Offline" if self.methods[0].offline else "Online"

    @property
    def title(self) -> str:
        """``Digits-C, severity 5: ResNet18``, as Markdown."""
        return f"{escape(self.table.heading)}: {escape(naming.network(self.arch, self.weights))}"

    @property
    def free(self) -> Row | None:
        """The best method that sees nothing of the source data."""
        return next((row for row in self.methods if given(row.about).source == "nothing"), None)

    @property
    def cheap(self) -> Row | None:
        """The method that costs least of those close to the best; of equals the best. None without costs."""
        best = self.methods[0].value(MEAN)
        close = [row for row in self.methods if best - row.value(MEAN) <= CLOSE and cost(row) > 0]
        return min(close, key=cost, default=None)

    @property
    def worse(self) -> list[Row]:
        """The methods that are significantly below Source."""
        return [
            row
            for row in self.methods
            if row.baseline and _is_worse(row, row.baseline, self.findings[id(row)])
        ]


def rankings(report: Report) -> Iterator[Ranking]:
    """A ranking per dataset, protocol, network and mode that has a method with a mean."""
    for table in report.tables:
        findings = evidence.findings(table)
        over = {id(one.row): one for one in stabilities(table)} if table.stream else {}
        for arch, rows in table.archs().items():
            every = list(groups(rows))
            for group in every:
                able = [row for row in group if not math.isnan(row.value(MEAN))]
                able.sort(key=lambda row: (-row.value(MEAN), row.name.lower()))
                if any(row.kind == "method" for row in able):
                    yield Ranking(table, arch, which_weights(group, every), able, findings, over)


def overview(report: Report) -> str:
    """Markdown: a table with a line per ranking, with its best methods and how many do harm."""
    lines = [table_row(OVERVIEW), table_row([":---", ":---", "---:", *[":---"] * 3, "---:", "---:"])]
    for one in rankings(report):
        base = one.methods[0].baseline
        collapsed = sum(bool(_collapses(row, one)) for row in one.methods)
        lines.append(
            table_row([
                one.title,
                one.mode,
                words.number((base.whole or base).value(MEAN)) if base else "",
                *(_with_mean(row) for row in (one.methods[0], one.free, one.cheap)),
                "" if one.table.stream else f"{len(one.worse)} of {len(one.methods)}",
                f"{collapsed} of {len(one.methods)}",
            ])
        )  # fmt: skip
    return "\n".join([*lines, ""])


def _with_mean(row: Row | None) -> str:
    """``TENT 71.3``"""
    return f"{escape(row.plain_name)} {words.number(row.value(MEAN))}" if row else ""


def which_method(report: Report) -> str:
    """Markdown: a section per dataset and network, a ranking per mode, each with Source for comparison."""
    lines: list[str] = []
    section = ""
    for one in rankings(report):
        heading = f"## {one.title}{family(one.arch)}"
        lines += [] if heading == section else [heading, ""]
        section = heading
        lines += [f"**{one.mode}.** {summary(one)}", ""]
        for cells in (HEADS, ALIGNED, *(_cells(row, one) for row in one.rows)):
            kept = [cell for n, cell in enumerate(cells) if not (one.table.stream and n in TESTS)]
            lines.append(table_row(kept))
        lines += ["", NEVER_RESET] if any(map(_never_reset, one.rows)) else []
        lines.append("")
    return "\n".join(lines)


def summary(one: Ranking) -> str:
    """What a ranking says, in sentences."""
    best = one.methods[0]
    ties = _ties(best, one)
    sentences = [f"{_named([best])} has the highest mean, {words.number(best.value(MEAN))}."]
    if ties:
        verb = "does" if len(ties) == 1 else "do"
        sentences.append(f"{_named(ties)} {verb} not differ from it significantly.")
    if one.free and one.free is not best:
        number = words.number(one.free.value(MEAN))
        sentences.append(f"Without source data, {_named([one.free])} is the best, with {number}.")
    if one.cheap and one.cheap is not best:
        sentences.append(
            f"Within {CLOSE:g} point of the best, {_named([one.cheap])} costs least: "
            f"{cost(one.cheap):.1f} forward passes per image."
        )
    if one.worse:
        sentences.append(f"Significantly below Source: {_named(one.worse)}.")
    collapsed = [row for row in one.methods if _collapses(row, one)]
    if one.table.stream:
        if collapsed:
            share = f"{100 * COLLAPSED:.0f} %"
            sentences.append(
                f"The accuracy is below {share} of Source's in at least one window: {_named(collapsed)}."
            )
        sentences.append(NO_TESTS)
    elif collapsed:
        sentences.append(f"Predictions collapse under at least one corruption: {_named(collapsed)}.")
    if one.table.key["pace"]:
        ratios = (f"{escape(row.plain_name)} {row.about['pace_ratio']:g}" for row in one.methods)
        sentences.append(f"Compute ratios: {', '.join(ratios)}.")
    return " ".join(sentences)


def _ties(best: Row, one: Ranking) -> list[Row]:
    """The methods that do not differ significantly from the best method; Source may be above all of them."""
    others = [row for row in one.rows if row is not best]
    tests = stats.holm(paired_with(best, one.table).p_values(best, others, one.table.main))
    return [row for row, p in zip(others, tests, strict=True) if row.kind == "method" and p >= ALPHA]


def _collapses(row: Row, one: Ranking) -> bool:
    """Whether a method collapses in a window of a long stream, or under a corruption."""
    if not one.table.stream:
        return bool(_collapsed(row, one.table))
    return id(row) in one.over and not math.isnan(one.over[id(row)].collapse)


def family(arch: str) -> str:
    """`` (transformer)``, or "" where the family is not known."""
    return next((f" ({words})" for name, words in FAMILIES.items() if arch.startswith(name)), "")


def _collapsed(row: Row, table: Table) -> list[str]:
    """The corruptions under which the predictions of a row use too few classes."""
    return [corruption for corruption in table.main if corruption in row.collapsed]


def _fallen(row: Row, table: Table) -> str:
    """``Fog, Snow``; ``all`` where it is each of several corruptions."""
    names = _collapsed(row, table)
    return "all" if len(names) == len(table.main) > 1 else ", ".join(map(naming.title, names))


def _on_stream(one: Stability | None) -> str:
    """``from image 3,000; 37 % of windows below Source``"""
    if one is None:
        return ""
    since = "" if math.isnan(one.collapse) else f"from image {one.collapse:,.0f}{one.of_seeds}; "
    return f"{since}{one.below:.0f} % of windows below Source"


def cost(row: Row) -> float:
    """Forward passes per image, with :data:`BACKWARD`; medians over the cells; NaN if unknown.

    Times differ from run to run, passes do not. Source needs one pass, whatever an offline protocol makes.
    """
    if row.kind == "source":
        return 1.0
    forward, backward = (row.about.get(f"{kind}_passes", math.nan) for kind in ("forward", "backward"))
    return float(forward + BACKWARD * backward)


def _figure(value: float) -> str:
    return f"{value:.1f}" if value > 0 else ""


def _never_reset(row: Row) -> bool:
    """Whether a row is of RDumb, which is ETA with resets, and no stream was long enough for one."""
    return bool(row.about["base"] == "rdumb" and row.about["resets"] == 0)


def _is_worse(row: Row, base: Row, finding: Finding) -> bool:
    return row.value(MEAN) < base.value(MEAN) and finding.p_source < ALPHA


def _cells(row: Row, one: Ranking) -> tuple[str, ...]:
    rise = row.printed(MEAN) - row.baseline.printed(MEAN) if row.baseline else math.nan
    number = words.number(row.value(MEAN))
    table, finding = one.table, one.findings[id(row)]
    return (
        escape(row.plain_name) + ("<sup>1</sup>" if _never_reset(row) else ""),
        f"**{number}**" if (id(row), MEAN) in best_places(table) else number,
        words.interval(*finding.interval),
        words.signed(rise),
        finding.record,
        _figure(cost(row)),
        _figure(float(row.about.get("compute_ratio", math.nan))) if row.kind != "source" else "",
        escape(_given(row) if row.kind == "method" else ""),
        escape(_on_stream(one.over.get(id(row))) if table.stream else _fallen(row, table)),
    )


def _given(row: Row) -> str:
    facts = given(row.about)
    passes = counted(facts.epochs, "epoch") if facts.epochs else ""
    return "; ".join(filter(None, (facts.source, passes, "tuned" if facts.tuned else "")))


def _named(rows: Sequence[Row]) -> str:
    """``A, B and C``"""
    names = [escape(row.plain_name) for row in rows]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
