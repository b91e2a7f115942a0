"""What a sweep shows while it runs: at 80 columns, and how it estimates the time left."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from rich.console import Console

from tests.cases import each
from tests.unit.stored_results import CELL
from ttabench.cell.protocol import Protocol
from ttabench.cli._table import pairs, say
from ttabench.registry import method_names
from ttabench.store import Store
from ttabench.sweep import typical_costs
from ttabench.sweep.conduct import console_of_errors
from ttabench.sweep.progress.display import Display, Meter, clock_left, shorten
from ttabench.sweep.progress.time_left import TimeLeft

ROOT = Path(__file__).resolve().parents[4]

NEW = {"rmt", "rem", "dpcore"}  # not measured yet
LONG = "quantile[per_class=1,information=0.1] · resnet18 · tinyimagenet-c · gaussian_noise-5 · seed 0"


def screen(display: Display) -> list[str]:
    console = display.console
    with console.capture() as shown:
        console.print(display._bars.get_renderable())
    return [line.rstrip() for line in shown.get().splitlines()]


def at_80_columns(**options: object) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None, **options)  # type: ignore[arg-type]


def test_count_time_left_and_accuracy_can_be_read_at_80_columns() -> None:
    display = Display(1234, "cells", at_80_columns(), [(LONG, "slow"), *[("x", "quick")] * 1233], workers=2)
    display.finished("x", "", seconds=7200.0)
    display.running(LONG, 9999, 10000, "62.5 % so far")
    whole, item = screen(display)
    assert "1/1234" in whole
    assert " left" in whole
    assert re.search(r"\d cells/(s|min), ", whole)
    assert whole.startswith("cells")
    assert "9999/10000" in item
    assert "62.5 % so far" in item
    assert item.strip().startswith("quantile[")
    assert "-5 · seed 0" in item
    assert all(len(line) <= 80 for line in (whole, item))


def test_the_rate_is_per_second_or_per_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    display = Display(100, "cells", at_80_columns())
    assert display.rate == ""
    now[0] += 30.0
    display.finished("a", "")
    assert display.rate == "2.0 cells/min"
    for name in range(59):
        display.finished(str(name), "")
    assert display.rate == "2.0 cells/s"


def test_it_says_what_it_does_before_the_first_batch() -> None:
    display = Display(2, "cells", at_80_columns())
    display.running(LONG, 0, 0, "making or reading images")
    item = screen(display)[1]
    assert "making or reading images" in item
    assert "0/0" not in item
    display.running(LONG, 200, 600, "50.0 % so far")
    assert "200/600" in screen(display)[1]


def test_no_time_is_shown_where_nothing_but_zero_is_known() -> None:
    display = Display(3, "cells", at_80_columns(), [("a", "quick"), ("b", "slow"), ("c", "slow")])
    display.finished("a", "", seconds=0.1)
    assert display.time_left == ""
    assert clock_left(0.2, known=False) == ""
    assert (clock_left(70, known=True), clock_left(70, known=False)) == ("1:10", "at least 1:10")


def test_more_items_than_were_expected_are_never_more_than_all() -> None:
    """An attestation runs further cells where some of a change did not run yet."""
    display = Display(1, "cells", Console(file=io.StringIO(), width=80))
    for name in ("a", "b"):
        display.finished(name, "same")
    assert display.console.file.getvalue().splitlines() == ["[1/1] a: same", "[2/2] b: same"]  # type: ignore[attr-defined]


def test_a_long_text_loses_its_middle() -> None:
    assert shorten("abcdefgh", 5) == "ab…gh"
    assert shorten("abc", 3) == "abc"
    for width in range(1, 12):
        assert len(shorten("abcdefghij", width)) <= width


def test_slow_kinds_that_are_still_to_run_count_in_full() -> None:
    of_run = TimeLeft(["source"] * 10 + ["slow"] * 10, workers=2)
    for i in range(10):
        of_run.running(f"source {i}", "source", 0.0, now=float(i))
        of_run.finished(f"source {i}", "source", now=i + 1.0)
    seconds, known = of_run.seconds_left(10.0) or (0.0, True)
    assert not known  # nothing is known of the slow ones yet
    of_run.running("slow 0", "slow", 0.0, now=10.0)
    of_run.running("slow 0", "slow", 0.1, now=20.0)  # a tenth in ten seconds: 100 seconds each
    assert of_run.seconds_left(20.0) == (pytest.approx((10 * 100 - 10) / 2), True)
    of_run.finished("slow 0", "slow", now=110.0)
    assert of_run.seconds_left(110.0) == (pytest.approx(9 * 100 / 2), True)
    mean_pace = 110.0 / 11 * 9  # what the mean over all that is finished would say
    seconds, known = of_run.seconds_left(110.0) or (0.0, False)
    assert seconds > 4 * mean_pace


def test_a_kind_that_has_not_run_takes_its_usual_time_beside_source() -> None:
    """So the time left is steady: it does not jump where the first costly cell begins."""
    of_run = TimeLeft(["source"] * 4 + ["slow"] * 10, 1, {"slow": ("source", 30.0)})
    assert of_run.seconds_left(0.0) is None
    for i in range(4):
        of_run.finished(f"source {i}", "source", now=i + 1.0, seconds=1.0)
    assert of_run.seconds_left(4.0) == (pytest.approx(300.0), True)
    of_run.running("slow 0", "slow", 0.0, now=4.0)
    of_run.running("slow 0", "slow", 0.01, now=14.0)  # its first batch takes ten seconds
    assert of_run.seconds_left(14.0) == (pytest.approx(290.0), True)
    of_run.running("slow 0", "slow", 0.5, now=24.0)
    assert of_run.seconds_left(24.0) == (pytest.approx(10 * 40.0 - 20), True)


def test_a_suspended_machine_does_not_lengthen_what_is_left() -> None:
    of_run = TimeLeft(["source"] * 4 + ["slow"] * 10, 1, {"slow": ("source", 30.0)})
    for i, seconds in enumerate((1.0, 1.0, 3600.0)):
        of_run.finished(f"source {i}", "source", now=3602.0, seconds=seconds)
    assert of_run.seconds_left(3602.0) == (pytest.approx(301.0), True)


def test_what_is_not_known_does_not_count() -> None:
    of_run = TimeLeft(["a"] * 3 + ["b"] * 100, 1)
    of_run.finished("a 0", "a", now=10.0, seconds=10.0)
    assert of_run.seconds_left(10.0) == (pytest.approx(20.0), False)


def test_every_method_has_a_usual_cost_and_costly_ones_are_named_before_a_sweep() -> None:
    assert set(typical_costs.PER_PASS) == set(method_names()) - NEW - {"stack"}
    offline = replace(CELL, method="quantile", label="quantile", config=(("epochs", 10),))
    costly = replace(offline, protocol=Protocol(mode="offline"))
    assert typical_costs.passes(offline) == 0  # online
    assert typical_costs.passes(costly) == 10
    assert typical_costs.passes(replace(costly, protocol=Protocol(mode="offline", epochs=3))) == 3
    note = typical_costs.note_on_costs([replace(CELL, method="tent", label="tent"), costly])
    assert note.startswith("quantile: about 38 times Source, on the networks of the reference results. ")
    assert typical_costs.note_on_costs([replace(CELL, method="tent", label="tent")]) == ""
    assert typical_costs.typical_ratio(replace(CELL, method="mine", label="mine")) is None


@each(
    ("second", "protocol", "ratio"),
    [
        ("bn_stats", Protocol(mode="offline"), 10 * 3.8 + 1.2),
        ("shot", Protocol(mode="offline"), 10 * 3.8 + 15 * 3.2),
        ("shot", Protocol(mode="offline", epochs=2), 2 * 3.8 + 2 * 3.2),
        ("cotta", Protocol(), 3.8 + 35.0),
    ],
)
def test_two_methods_that_are_joined_take_what_both_take(
    second: str, protocol: Protocol, ratio: float
) -> None:
    config = (("first", "quantile"), ("second", second))
    cell = replace(CELL, method="stack", label="stack", config=config, protocol=protocol)
    assert typical_costs.typical_ratio(cell) == pytest.approx(ratio)


def test_come_takes_what_its_host_takes() -> None:
    come = replace(CELL, method="come")
    ratios = [
        typical_costs.typical_ratio(replace(come, config=(("host", host),)))
        for host in ("tent", "eata", "sar")
    ]
    assert ratios == [typical_costs.PER_PASS[name] for name in ("come", "eata", "sar")]
    assert typical_costs.typical_ratio(replace(come, method="mine", config=(("host", "sar"),))) is None


def test_a_method_of_a_user_whose_settings_are_called_so_joins_none() -> None:
    cell = replace(CELL, method="mine", config=(("first", "tent"), ("second", 3)))
    assert typical_costs.typical_ratio(replace(cell, protocol=Protocol(mode="offline"))) is None
    assert typical_costs.passes(replace(cell, protocol=Protocol(mode="offline", epochs=4))) == 4


def test_the_page_about_time_has_the_same_costs() -> None:
    page = (ROOT / "docs" / "how-long.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) to ([\d.]+) \| (`.*`) \|$", page, re.MULTILINE)
    listed = {
        name: (float(low), float(high)) for low, high, names in rows for name in names[1:-1].split("`, `")
    }
    assert set(listed) == set(typical_costs.PER_PASS) - {"source"}
    costs = {name: typical_costs.PER_PASS[name] for name in listed}
    assert {n: costs[n] for n, (low, high) in listed.items() if not low <= costs[n] <= high} == {}
    without = ", ".join(f"`{name}`" for name in sorted(NEW))
    assert f"There are no costs of {without}." in " ".join(page.split()).replace(" and ", ", ")


def test_what_a_sweep_says_of_costs_is_about_what_was_measured() -> None:
    """Within a factor of two on one network; so a method that makes ten passes is not said to make one."""
    records = Store.at(ROOT / "results" / "reference" / "real-cifar10-resnet20").latest().values()
    ratios: dict[tuple[str, str], list[float]] = {}
    for record in records:
        cell, cost = record.result.cell, record.data.get("details", {}).get("cost", {})
        typical = typical_costs.typical_ratio(cell)
        if cell.method != "source" and typical and "compute_ratio" in cost:
            ratios.setdefault((cell.method, cell.protocol.mode), []).append(cost["compute_ratio"] / typical)
    assert {"stack", "quantile", "cotta", "tent"} <= {method for method, _ in ratios}
    assert {key: one for key, of in ratios.items() if not 0.5 < (one := median(of)) < 2} == {}


def test_workers_share_what_is_left_and_one_item_is_not_shared() -> None:
    for workers, left in ((1, 30.0), (3, 10.0), (8, 10.0)):
        of_run = TimeLeft(["a"] * 4, workers)
        of_run.finished("first", "a", now=100.0, seconds=10.0)
        assert of_run.seconds_left(100.0) == (pytest.approx(left), True)


def test_nothing_is_said_before_anything_is_known() -> None:
    of_run = TimeLeft(["a", "b"], 1)
    assert of_run.seconds_left(0.0) is None
    of_run.running("x", "a", 0.0, now=0.0)
    assert of_run.seconds_left(5.0) is None


def test_a_pipe_gets_a_line_per_item_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    display = Display(3, "cells", Console(file=file, width=80), [("a", "k"), ("b", "k"), ("c", "m")])
    clock = iter(range(0, 1000, 60))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    display.finished("a", "50.0 %", seconds=60.0)
    assert file.getvalue() == "[1/3] a: 50.0 %, at least 1:00 left\n"  # nothing is known of kind m
    display.finished("c", "failed: \x1b[31mred", keep=True, seconds=10.0)
    assert "\x1b" not in file.getvalue()
    assert file.getvalue().endswith("left\n")


def test_what_is_in_progress_is_no_markup() -> None:
    meter = Meter("images")
    meter("reading a[/b] of imagenet-c[robustbench-5k]", 1, 2)
    display = Display(1, "cells", at_80_columns())
    display.running("a", 1, 2, note="[/b]")
    for bars in (meter._bars, display._bars):
        console = Console(file=io.StringIO(), width=120)
        with console.capture() as shown:
            console.print(bars.get_renderable())
        assert "[/b]" in shown.get()


def test_a_network_whose_name_is_between_colons_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    """``mynets:two:`` was printed as ``mynets2️⃣``, since rich has a picture of that name."""
    console_of_errors().print("Compute ratio of tent on mynets:two: 2.1.")
    display = Display(total=1, unit="cells")
    display.say("tent on mynets:two: note")
    display.finished("mynets:two", "mynets:two: 50.0 %")
    Meter("images").console.print("mynets:two: 5")
    say("mynets:two: said")
    pairs([("network", "mynets:two: shown")])
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("mynets:two: ") == 7
