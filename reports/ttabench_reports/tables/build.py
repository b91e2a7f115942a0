"""The paper's tables from a table of cells: which rows, which numbers, and which remarks.

A mean is given over a complete set of corruptions and seeds or not at all; what is not a number
says why; what was not measured the same way is never averaged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from ttabench.corruptions.names import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttabench.errors import counted
from ttabench.protocol import ALL_STREAMS, Protocol
from ttabench.provenance.staleness import stale_reasons
from ttabench.store.columns import ASKED, MISSING
from ttabench.store.table import varying
from ttabench.subset_names import everything
from ttabench_reports.cells.calibration import total
from ttabench_reports.cells.environments import COLUMNS as ENVIRONMENT
from ttabench_reports.cells.environments import difference as environment_difference
from ttabench_reports.cells.frames import (
    DETAILS,
    PROTOCOL,
    ROW,
    TABLE,
    USUAL,
    checked,
    differences,
    joined,
    one_per_cell,
    unusual,
)
from ttabench_reports.cells.row_numbers import Numbers
from ttabench_reports.cells.set_by_users import SET
from ttabench_reports.cells.unknown import over as unknown_over
from ttabench_reports.published.beside import of_same_setting
from ttabench_reports.tables.table import LABEL, OFFLINE, PUBLISHED, STALE, Row, Table, with_stream
from ttabench_reports.words import naming, protocols
from ttabench_reports.words.naming import MEAN, MEAN_EXTRA, MIXED
from ttabench_reports.words.notes import Notes, kind
from ttabench_reports.words.unset_settings import unset, without

DASH = "–"
FEWER_SEEDS = "increase over Source with the same seeds; the row of Source has more seeds"
OTHER_SEEDS = "increase over Source with other seeds, and Source depends on the seed"
MEASURED = ("compute_ratio", "ms_per_image", "forward_passes", "backward_passes", "adapted_parameters",
            "host_mb", "device_mb")  # fmt: skip
"""What is known of the cost of a row: medians over its cells, see `ttabench.observe.cost.Meter.cost`.

Passes are per image of the stream.
"""
OF_METHOD = ("source_data", "source_used", "scored_classes", "about_method")
"""What results say of their method beside the number; cells that failed may lack it."""


def tables(cells: pd.DataFrame, published: pd.DataFrame | None = None) -> list[Table]:
    """Every per-corruption table in `cells`; `published` (see :mod:`published`) adds the papers' rows.

    Raises UserError where `cells` is empty or is not a table of cells.
    """
    stored = checked(cells)
    frame = one_per_cell(stored)
    left_out = _of_other_orders(stored, frame)
    per_image = {f"{kind}_passes": frame[kind] / frame["images"] for kind in ("forward", "backward")}
    measured = frame["accuracy"].notna()
    seconds = frame["seconds"].where(measured)  # a cell that failed has 0
    # One that did not run is stored with the device of the process that planned it.
    codes, devices = pd.factorize(frame["device"].where(measured & (frame["device"] != "")), sort=True)
    device_codes = pd.Series(codes, frame.index).where(codes >= 0)
    # Infinite where a measured cell does not say it, so that a row has 0 only if all its cells have.
    said = [_resets(details) for details in frame[DETAILS]]
    resets = pd.Series(said, frame.index, dtype=float).fillna(math.inf).where(measured)
    frame = frame.assign(**per_image, device_code=device_codes, seconds=seconds, resets=resets)
    same = [*TABLE, *ROW]
    frame = frame.assign(row=frame.groupby(varying(frame, same), sort=False).ngroup())
    rows = frame.groupby("row").agg(
        seeds=("seed", "nunique"), n_images=("n_images", "max"), clean_accuracy=("clean_accuracy", "first"),
        seconds=("seconds", "mean"), stale=("stale", "any"), measured=("accuracy", "count"),
        costs=("compute_ratio", "count"), first_device=("device_code", "min"),
        last_device=("device_code", "max"), resets=("resets", "max"),
        **{name: (name, "median") for name in MEASURED},
    )  # fmt: skip
    rows = pd.concat([frame.drop_duplicates("row").set_index("row")[same], rows], axis=1).reset_index()
    for name in ("first_device", "last_device"):
        rows[name] = ["" if math.isnan(code) else devices[int(code)] for code in rows[name]]
    for name in OF_METHOD:
        rows[name] = _texts_of_rows(frame, name, len(rows))
    rows["difference"] = _variants(rows)
    rows["unset"] = unset(rows, cells.attrs.get(SET))
    keys = rows[list(TABLE)].drop_duplicates()
    keys["difference"] = unusual(keys, ["dataset", "severity"], TABLE[2:])

    numbers = Numbers(frame)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows.to_dict("records"):
        groups.setdefault(tuple(row[name] for name in TABLE), []).append({str(k): v for k, v in row.items()})
    measured_in = frame[["row", *ENVIRONMENT, "accuracy"]]
    environments = {
        key: environment_difference(measured_in[measured_in["row"].isin([row["row"] for row in group])])
        for key, group in groups.items()
    }
    built = []
    for record in sorted(keys.to_dict("records"), key=_place_of_table):
        difference = with_stream(record.pop("difference"), str(record["stream"]))
        key = {str(name): value for name, value in record.items()}
        members = groups[tuple(key.values())]
        for member in members:
            member["missing"] = _missing({**key, **member}, cells.attrs)
        remarks = (_absent(key, cells.attrs, rows), environments[tuple(key.values())])
        of_table = left_out.get(tuple(key.values()), 0)
        built.append(_build(key, difference, members, numbers, of_table, remarks, published))
    return built


def _resets(details: object) -> object:
    """How often a method was reset; None where it does not say it, or says something else under this name."""
    said = details.get("resets") if isinstance(details, dict) else None
    return said if isinstance(said, int | float) else None


def _place_of_table(key: Mapping[Any, Any]) -> tuple[object, ...]:
    """Of a dataset, long streams come last; of a severity, the table of the default protocol comes first."""
    other = any(key[name] != USUAL.get(name, "") for name in TABLE[3:])
    return key["dataset"], bool(key["stream"]), key["severity"], other, naming.natural(key["difference"])


def _of_other_orders(stored: pd.DataFrame, kept: pd.DataFrame) -> dict[Any, int]:
    """By table, how many measured cells of continual runs in another order of corruptions are left out."""

    def count(cells: pd.DataFrame) -> pd.Series[int]:
        adapted = (cells["reset"] == "continual") & (cells["base"] != "source") & cells["accuracy"].notna()
        return cells[adapted].groupby(list(TABLE)).size()

    return {table: int(n) for table, n in count(stored).sub(count(kept), fill_value=0).items()}


def _variants(rows: pd.DataFrame) -> pd.Series[str]:
    """What tells the rows of one method apart, such as ``offline, 10 epochs``.

    Also those at other severities, which stand beside them in tables and curves; Source does not adapt.
    Online rows do not say that they are online, and settings that differ between the modes are not named.
    """
    method = [*TABLE, "arch", "method"]
    beside = [name for name in method if name != "severity"]
    adapts = rows["base"] != "source"
    offline = (rows["mode"] == "offline") & (rows.groupby(beside)["mode"].transform("nunique") > 1) & adapts
    parts = [
        differences(rows, beside, ["checkpoint"]),
        offline.map({True: "offline", False: ""}),
        differences(rows, [*beside, "mode"], ["batch_size", "epochs"]).where(adapts, ""),
        differences(rows, [*method, "mode"], ["pace_ratio"]),  # each sweep measures it
        differences(rows, [*beside, "mode"], ["config"]),
    ]
    return joined(parts, rows.index)


def _texts_of_rows(frame: pd.DataFrame, name: str, rows: int) -> list[str]:
    """What the cells of each row say in column `name`; of several texts the last in the alphabet."""
    pairs = frame[["row", name]].drop_duplicates().sort_values(name)
    texts = dict(zip(pairs["row"].tolist(), pairs[name].to_numpy().tolist(), strict=True))
    return [texts[row] for row in range(rows)]


def _missing(member: Mapping[str, Any], attrs: Mapping[Any, Any]) -> int:
    """How many planned cells of a row have no record: those of its protocol, where the plan says it."""
    names = ("method", "arch", "dataset", "severity")
    place = [member[name] for name in names]
    ignored = {"pace_ratio"}  # measured when the cells are run
    if member["base"] == "source":  # one row for all of them
        ignored |= {"mode", "epochs", "batch_size"}

    def is_of_row(protocol: Protocol | None) -> bool:
        compared = () if protocol is None else [name for name in PROTOCOL if name not in ignored]
        return all(getattr(protocol, name) == member[name] for name in compared)

    return sum(
        number
        for one in attrs.get(MISSING, ()) if [getattr(one, name) for name in names] == place
        for protocol, number in one.protocols or [(None, one.cells)] if is_of_row(protocol)
    )  # fmt: skip


def _absent(key: Mapping[str, Any], attrs: Mapping[Any, Any], rows: pd.DataFrame) -> str:
    """The methods that a sweep planned or was asked for and that have no row in a table, as a sentence.

    attrs   those of the cells. Without a plan, every method asked for is expected on every architecture.
    """
    here = rows[(rows["dataset"] == key["dataset"]) & (rows["severity"] == key["severity"])]
    there = set(zip(here["base"], here["arch"], strict=True))
    known = set(rows["arch"])  # other names may be spelled otherwise than they are stored
    expected = [
        (one.base, one.arch)
        for one in attrs.get(MISSING, ())
        if (one.dataset, one.severity) == (key["dataset"], key["severity"])
    ]
    for sweep in attrs.get(ASKED, ()):
        if key["dataset"] in sweep.get("datasets", ()) and key["severity"] in sweep.get("severities", ()):
            pairs = itertools.product(sweep.get("methods", ()), sweep.get("archs", ()))
            expected += [(str(label).partition("[")[0], arch) for label, arch in pairs]
    absent = [
        (naming.base(base), arch)
        for base, arch in expected
        if arch in known and base != "all" and (base, arch) not in there
    ]
    return f"Asked for, but not measured: {_on_networks(absent)}." if absent else ""


def _on_networks(named: Iterable[tuple[str, str]]) -> str:
    """Names of methods by their network: ``TENT, SAR on CCT; TENT on CvT``; each once."""
    methods: dict[str, dict[str, None]] = {}
    for method, arch in named:
        methods.setdefault(naming.arch(arch), {})[method] = None
    return "; ".join(f"{', '.join(names)} on {arch}" for arch, names in methods.items())


def _unlike_orders(rows: Iterable[Row]) -> str:
    """Which continual rows have another order of corruptions than the others, as a sentence; "" for none.

    An order goes with those that it begins with: they are of one run, measured in part.
    """
    ran = [row for row in rows if row.kind == "method" and row.about["measured"] and row.order]

    def alike(first: Row, second: Row) -> bool:
        return all(a == b for a, b in zip(first.order, second.order, strict=False))

    usual = max(ran, key=lambda row: sum(alike(row, other) for other in ran), default=None)
    unlike = [(row.name, row.arch) for row in ran if usual and not alike(row, usual)]
    if not unlike:
        return ""
    return (
        f"In another order of corruptions than the other rows, which changes numbers: {_on_networks(unlike)}."
    )


def _several_orders(rows: Iterable[Row], numbers: Numbers) -> str:
    """Which continual rows are a mean over seeds with different orders of corruptions; "" for none."""
    named = [(row.name, row.arch) for row in rows if row.about.get("row") in numbers.several_orders]
    if not named:
        return ""
    return f"A mean over seeds with different orders of corruptions: {_on_networks(named)}."


def _build(
    key: dict[str, Any], difference: str, members: list[dict[str, Any]], numbers: Numbers,
    left_out: int, further: tuple[str, ...], published: pd.DataFrame | None,
) -> Table:  # fmt: skip
    swept = {c for member in members for c in numbers.measured[member["row"]]}
    main, extra = map(tuple, naming.split(swept))
    rows: list[Row] = []
    for arch in sorted({m["arch"] for m in members}, key=naming.arch_key):
        ours = sorted((m for m in members if m["arch"] == arch), key=_place)
        lines = [_row({**key, **m}, numbers, main, extra) for m in ours]
        narrowed: dict[tuple[int, tuple[int, ...]], Row] = {}
        for line in lines:
            rows.append(line)
            if line.kind == "method" and (baseline := _baseline(line, lines)):
                place = (baseline.about["row"], line.about["seed_names"])
                fewer = {*place[1]} < {*baseline.about["seed_names"]} and line.about["measured"]
                if fewer and _depends_on_seed(baseline):
                    if place not in narrowed:
                        narrowed[place] = _narrowed(baseline, place[1], numbers, main, extra)
                    baseline = narrowed[place]
                    line.remark(LABEL, FEWER_SEEDS)
                elif _lacks_seeds(baseline, line):
                    line.remark(LABEL, OTHER_SEEDS)
                line.baseline = baseline
                rows.extend(_increase(line, baseline))
        rows.extend(_published(published, key, lines, main))
    notes = Notes()
    for row in rows:
        row.letters = {c: "".join(sorted(set(map(notes.letter, texts)))) for c, texts in row.remarks.items()}
    adapted = [member for member in members if member["base"] != "source"] or members
    seeds = sorted({member["seeds"] for member in adapted})
    several = "" if seeds[-1] == 1 else str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    remarks = []
    if {*main} < {*CORRUPTIONS}:
        these = "this one" if len(main) == 1 else f"these {len(main)}"
        remarks.append(f"The mean is over {these} of the 15 corruptions.")
    elif {*main} <= {*EXTRA_CORRUPTIONS}:
        remarks.append(f"The mean is over {counted(len(main), 'extra corruption')}, none of the usual 15.")
    if classes := next((m["scored_classes"] for m in members if m["scored_classes"]), ""):
        remarks.append(f"Predictions are chosen from the {classes} that the images have.")
    if naming.has_own_head(key["dataset"]):
        remarks.append("Networks have outputs for the classes of the images alone; methods see no others.")
    if left_out:
        remarks.append(
            f"Left out: {counted(left_out, 'cell')} of continual runs in another order of corruptions."
        )
    remarks += filter(None, (_unlike_orders(rows), _several_orders(rows, numbers), *further))
    items, baseline = fields(key, members), key.get("baseline", "")
    images = everything([key["dataset"]])
    protocol, brief = (words(items, baseline, images) for words in (protocols.words, protocols.brief))
    return Table(key, difference, protocol, several, tuple(remarks), main, extra, tuple(rows), notes, brief)


def fields(key: Mapping[str, Any], members: list[dict[str, Any]]) -> list[protocols.Item]:
    """Each measured method and its protocol, or where all failed, what was planned.

    Source only where nothing else is, since it adapts to no batch.
    """
    adapted = [member for member in members if member["base"] != "source"] or members
    used = [member for member in adapted if member["measured"]] or adapted
    return [
        (
            naming.method(without(m["method"], m["unset"]), str(m["config"])),
            {"arch": m["arch"]} | {name: key.get(name, m.get(name)) for name in PROTOCOL},
        )
        for m in sorted(used, key=_place)
    ]


def _place(member: dict[str, Any]) -> tuple[object, ...]:
    base, label = member["base"], member["method"]
    offline = member["mode"] == "offline" and base != "source"
    difference = naming.natural(member["difference"])
    return member["checkpoint"], offline, *naming.method_key(base, label), difference


def _row(member: dict[str, Any], numbers: Numbers, main: tuple[str, ...], extra: tuple[str, ...]) -> Row:
    number, source = member["row"], member["base"] == "source"
    whole = main if all(numbers.complete(number, column) for column in main) else ()
    row = Row(
        member["arch"],
        f"{member['method']} ({member['difference']})" if member["difference"] else member["method"],
        "source" if source else "method",
        dict(numbers.values[number]),
        dict(numbers.sd[number]),
        about={**member, "seed_names": numbers.seed_names[number]},
        correct=numbers.correct.get(number, {}),
        reliability=total(numbers.reliabilities.get(number, {}), whole),
        unknown=unknown_over(numbers.unknown.get(number, {}), whole),
        windows=numbers.windows.get(number, {}),
        order=numbers.orders.get(number, ()),
    )
    offline = member["mode"] == "offline" and member["measured"] and not source
    row.flags = (OFFLINE if offline else "") + (STALE if member["stale"] else "")
    if changed := numbers.changed.get(number):
        row.remark(LABEL, "; ".join(stale_reasons(changed, "since then {}")))
    for name, over in ((MEAN, main), (MEAN_EXTRA, naming.averaged(extra))):
        if over:
            row.values[name], row.sd[name] = numbers.mean(number, over)
    _explain(row, numbers, main, extra)
    if count := member["missing"]:
        row.remark(LABEL, f"{count} planned cell{'s are' if count > 1 else ' is'} missing")
    return row


def _explain(row: Row, numbers: Numbers, main: tuple[str, ...], extra: tuple[str, ...]) -> None:
    """Words in place of numbers, and what footnotes say."""
    number = row.about["row"]
    gaps = [c for c in (*main, *extra) if not numbers.complete(number, c)]
    row.words = {column: DASH for column in gaps if math.isnan(row.value(column))}
    for cell in numbers.troubles.get(number, ()):
        column, status = cell.corruption, "n/a" if cell.status == "n/a" else "failed"
        reason = f"{status}: {cell.reason.rstrip('.') or 'no reason stored'}"
        if cell.ok:
            row.remark(column, f"alarm: {cell.alarm}")
            if "collapse:" in cell.alarm:
                row.collapsed |= {column}
        elif column in row.words:
            row.words[column] = status if row.words[column] in (DASH, status) else "failed"
            row.remark(column, reason)
        else:
            row.remark(column, f"seed {cell.seed} {reason}; the other seeds' mean is shown")
    row.partial = frozenset(gaps) - row.words.keys()
    for column in gaps:
        if column in row.partial and column not in row.remarks:
            row.remark(column, "not measured in every seed; the mean of the others is shown")
        elif column in row.words and row.words[column] == DASH:
            row.remark(column, "not measured")
    for name, over in ((MEAN, main), (MEAN_EXTRA, naming.averaged(extra))):
        if over and math.isnan(row.value(name)):
            words = {row.words.get(column, "") for column in over}
            row.words[name] = "n/a" if words == {"n/a"} else DASH
            if words not in ({"n/a"}, {"failed"}):
                whole = sum(column not in gaps for column in over)
                unit = "corruptions" if numbers.seeds[number] == 1 else "corruptions in every seed"
                row.remark(name, f"no mean: {whole} of {len(over)} {unit}")
    _say_once(row, (*main, *extra))


def _say_once(row: Row, columns: tuple[str, ...]) -> None:
    """What is remarked of every column is remarked of the row."""
    kinds = [{kind(text) for text in row.remarks.get(column, ())} for column in columns]
    common = set.intersection(*kinds)
    for column in columns if common else ():
        for text in [text for text in row.remarks[column] if kind(text) in common]:
            row.remark(LABEL, text)
            row.remarks[column].remove(text)


def _baseline(row: Row, lines: list[Row]) -> Row | None:
    """The Source row to subtract: same weights, and as near in protocol as there is.

    Source neither adapts nor looks at a batch as a whole, so its batch size and mode change nothing.
    """
    same = [
        line
        for line in lines
        if line.kind == "source"
        and line.about["checkpoint"] == row.about["checkpoint"]
        and line.about["measured"]
    ]

    def near(line: Row) -> int:
        return sum(line.about[name] == row.about[name] for name in ("mode", "batch_size", "epochs"))

    return max(same, key=near, default=None)


def _depends_on_seed(source: Row) -> bool:
    """Whether Source has other numbers with other seeds; rounding of a mean over seeds is no difference."""
    return any(sd > 1e-9 for sd in source.sd.values())


def _lacks_seeds(source: Row, row: Row) -> bool:
    """Whether Source lacks a seed of a row, and has, or with a single seed may have, other numbers there."""
    known = source.about["seed_names"]
    single = len(known) == 1 and (
        source.about["held_out"] or not {MIXED, *ALL_STREAMS}.isdisjoint(source.values)
    )
    return not {*row.about["seed_names"]} <= {*known} and bool(single or _depends_on_seed(source))


def _narrowed(
    source: Row, seeds: tuple[int, ...], numbers: Numbers, main: tuple[str, ...], extra: tuple[str, ...]
) -> Row:
    """A Source row over some of its seeds: where Source depends on the seed, other seeds are other images."""
    about = {**source.about, "seeds": len(seeds), "missing": 0}
    row = _row(about, numbers.over_seeds(source.about["row"], seeds), main, extra)
    row.whole = source
    return row


def _increase(row: Row, baseline: Row) -> Iterator[Row]:
    partial = row.partial | baseline.partial
    change = {c: row.value(c) - baseline.value(c) for c in row.values if c not in partial}
    if not all(map(math.isnan, change.values())):
        yield Row(row.arch, row.method, "increase", change, about=row.about, baseline=baseline, of=row)


def _published(
    known: pd.DataFrame | None, key: dict[str, Any], lines: list[Row], main: tuple[str, ...]
) -> Iterator[Row]:
    """Of the publications the rows of the same setting as the `lines` of a network.

    Their means are over the fifteen, and stand beside no other mean.
    """
    if known is None:
        return
    arch = lines[0].arch
    here = (known["dataset"] == key["dataset"]) & (known["severity"] == key["severity"])
    for (publication, method), group in known[here & (known["arch"] == arch)].groupby(
        ["publication", "method"], sort=False
    ):
        setting = of_same_setting(str(publication), str(method), [line.about for line in lines])
        if setting is None:
            continue
        values = {str(c): float(v) for c, v in zip(group["corruption"], group["accuracy"], strict=True)}
        row = Row(arch, f"{method} ({publication})", "published", values, flags=PUBLISHED)
        if setting:
            row.remark(LABEL, setting)
        if main != CORRUPTIONS and values.pop(MEAN, None) is not None:
            row.remark(MEAN, "the published mean is over all 15 corruptions")
        yield row
