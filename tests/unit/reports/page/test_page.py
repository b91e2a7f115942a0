"""The HTML page: complete, the numbers of the CSV tables, nothing of the results read as markup, small."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.unit.conftest import Run
from tests.unit.made_cells import cells, spoil, with_correctness
from tests.unit.stored_results import fill
from ttabench.cell import Result
from ttabench.store import Store
from ttabench.store.columns import MISSING
from ttabench_reports import page
from ttabench_reports.cells.missing import Missing
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import csv_files
from ttabench_reports.page import figures, protocol_cards
from ttabench_reports.tables.build import tables
from ttabench_reports.tables.increases import FEWER_SEEDS
from ttabench_reports.words.naming import MEAN

CORRUPTIONS = ("snow", "frost", "fog")
HOSTILE = (
    '<script>document.title="owned"</script>',
    '"onmouseover="document.title=1',
    "'><img src=x onerror=alert(1)>",
)


class Rows(HTMLParser):
    """The rows of the tables of a page: attributes of the row, and (attributes, text) of its cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: list[dict[str, Any]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: tuple[dict[str, str | None], list[str]] | None = None
        self._mark = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.tags.append((tag, about))
        if tag == "table":
            self.tables.append({"about": about, "arch": None, "rows": []})
        if tag == "tbody":
            self.tables[-1]["arch"] = about.get("data-arch")
        if tag == "tr":
            arch = about.get("data-arch") or self.tables[-1]["arch"]
            self.tables[-1]["rows"].append((about | {"arch": arch}, []))
        if tag in ("td", "th"):
            self._open = (about, [])
        self._mark = tag == "sup"

    def handle_data(self, text: str) -> None:
        if self._open and not self._mark:
            self._open[1].append(text)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._open:
            self.tables[-1]["rows"][-1][1].append((self._open[0], "".join(self._open[1]).strip()))
            self._open = None
        self._mark = False


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    made = with_correctness(
        cells(corruptions=CORRUPTIONS, datasets=("digits-c", "cifar10-c"), seeds=(0, 1)), 200,
        {"tent": 0.3, "quantile": 0.6},
    )  # fmt: skip
    made["cell_id"] = [hashlib.sha256(cell_id.encode()).hexdigest() for cell_id in made["cell_id"]]
    made = spoil(made, "n/a", "no batch norm", arch="cct", method="tent")
    return spoil(
        made, "failed", "the logits hold NaN", arch="cct", method="quantile", corruption="fog", seed=1
    )


@pytest.fixture(scope="module")
def html(frame: pd.DataFrame) -> str:
    return page.html(Report(frame))


@pytest.fixture(scope="module")
def rows(html: str) -> Rows:
    return Rows(html)


def unpacked(text: str) -> str:
    return gzip.decompress(base64.b64decode(text)).decode()


def embedded(html: str) -> dict[str, Any]:
    """The data that the page's script reads."""
    (text,) = re.findall(r'<script type="text/plain" id="data">([A-Za-z0-9+/=]*)</script>', html)
    actual: dict[str, Any] = json.loads(unpacked(text))
    return actual


def test_the_same_cells_give_the_same_page(frame: pd.DataFrame, html: str) -> None:
    assert page.html(Report(frame.sample(frac=1, random_state=1))) == html


def test_numbers_by_corruption_are_those_of_the_csv(frame: pd.DataFrame, rows: Rows) -> None:
    table = csv_files.per_corruption(tables(frame))
    accuracies = table[table["row"] == "accuracy"].round(4)
    rises = table[table["row"] == "increase"]
    data = [t for t in rows.tables if t["about"].get("data-detail") == "cell"]
    actual = {}
    for one in data:
        columns = json.loads(one["about"]["data-columns"])
        for about, entries in one["rows"]:
            if "data-r" in about:
                actual[int(about["data-r"])] = (columns, about, entries)
    assert len(actual) == len(accuracies)
    for (_, line), (columns, about, entries) in zip(accuracies.iterrows(), actual.values(), strict=True):
        assert about["arch"] == line["arch"]
        assert line["method"] in about["data-text"].split()
        for column, (attributes, text) in zip(columns, entries[2:], strict=True):
            value = line[column]
            if np.isnan(value):
                assert attributes["data-v"] == ""
                assert text in ("n/a", "failed", "–")
            else:
                assert float(attributes["data-v"]) == value
                assert float(text) == pytest.approx(value, abs=0.0501)
    shown = [e[0]["data-i"] for _, _, entries in actual.values() for e in entries[2:] if "data-i" in e[0]]
    expected = rises[[*CORRUPTIONS, MEAN]].notna().sum().sum()
    assert len(shown) == expected > 0


def test_a_name_with_spaces_is_one_column() -> None:
    """The numbers that stand behind a cell are found by the place of its column."""
    domains = ("Art", "Clipart", "Real World, new", 'a "b"')
    made = cells(corruptions=domains, severities=(0,))
    for table in Rows(page.html(Report(made))).tables:
        if table["about"].get("data-detail") == "cell":
            assert json.loads(table["about"]["data-columns"]) == [*domains, MEAN]


def test_means_are_those_of_the_csv(frame: pd.DataFrame, rows: Rows) -> None:
    expected = csv_files.statistics(Report(frame)).round(4)
    (means,) = (t for t in rows.tables if t["about"].get("data-detail") == "mean")
    heads = [text for _, text in means["rows"][0][1]]
    at = {name: heads.index(name) for name in ("Mean", "95 % interval", "Increase", "p")}
    assert len(means["rows"]) - 1 == len(expected)
    for (_, line), (about, entries) in zip(expected.iterrows(), means["rows"][1:], strict=True):
        assert (about["data-arch"], about["data-table"]) == (line["arch"], line["table"])
        for name, column in (("Mean", "accuracy"), ("95 % interval", "low"), ("p", "p_source_holm")):
            shown = entries[at[name]][0]["data-v"]
            assert (shown == "") == bool(np.isnan(line[column])), (name, line)
            assert shown == "" or float(shown) == pytest.approx(line[column], abs=1e-4)
        known, text = entries[at["Increase"]]
        assert (text == "") == bool(np.isnan(line["increase"]))
        if text:
            assert float(known["data-v"]) == pytest.approx(line["increase"], abs=0.101)
            assert float(text.replace("−", "-")) == float(known["data-v"])
        if ends := re.findall(r"\d+\.\d", entries[at["95 % interval"]][1]):
            assert [*map(float, ends)] == pytest.approx([line["low"], line["high"]], abs=0.0501)


def test_each_number_has_what_stands_behind_it(frame: pd.DataFrame, html: str) -> None:
    data = embedded(html)
    texts = data["texts"]
    stored = {
        cell[5]: (cell, row, corruption)
        for row in data["rows"] for corruption, actual in row["cells"].items() for cell in actual
    }  # fmt: skip
    assert set(stored) == {cell_id[: protocol_cards.DIGITS] for cell_id in frame["cell_id"]}
    for cell in frame.to_dict("records"):
        known, row, corruption = stored[cell["cell_id"][: protocol_cards.DIGITS]]
        seed, accuracy, low, high, seconds, *_, why = known
        assert (seed, corruption, seconds) == (cell["seed"], cell["corruption"], cell["seconds"])
        assert texts[row["facts"]["weights"]] == cell["checkpoint"]
        assert json.loads(texts[row["facts"]["config"]]) == json.loads(cell["config"])
        if cell["status"] == "ok":
            assert accuracy == round(cell["accuracy"], 4)
            assert low < accuracy < high
            assert texts[why] == ""
        else:
            assert accuracy is None
            assert cell["reason"] in texts[why]


def test_the_default_protocol_comes_first_and_its_heading_does_not_repeat_it() -> None:
    usual = cells(("source", "tent"), ("cct",), corruptions=("fog",))
    others = [usual.assign(order="dirichlet(0.1)"), usual.assign(precision="bfloat16")]
    html = page.html(Report(pd.concat([*others, usual], ignore_index=True)))
    headings = re.findall(r"<h3[^>]*>Digits-C, severity 5(.*?)</h3>", html)
    assert headings == ["", " (bfloat16)", " (dirichlet(0.1) order)"]


def test_means_have_the_footnotes_of_the_other_tables_of_means() -> None:
    """Also that an increase is over Source with the same seeds, which is not the printed difference."""
    frame = with_correctness(
        cells(("source", "tent", "eata"), ("cct",), corruptions=CORRUPTIONS, seeds=(0, 1)), 200
    )
    frame = frame[~((frame["method"] == "tent") & (frame["seed"] == 1))]
    frame.loc[(frame["method"] == "eata") & (frame["corruption"] == "fog"), "alarm"] = "collapse: 2 classes"
    html = page.html(Report(frame)).partition('<section id="corruptions"')[0]
    for behind, text in (
        (r"TENT</a><sup>(\w)</sup></th>", FEWER_SEEDS),
        (r"EATA</a></th>.*?\d<sup>(\w)</sup></td>", "alarm under 1 of 3 corruptions"),
    ):
        mark = re.search(behind, html, re.DOTALL)
        assert mark is not None, text
        assert f"<sup>{mark[1]}</sup> {text}." in html


def test_every_offline_row_has_its_mark(frame: pd.DataFrame, html: str) -> None:
    marked = {
        "quantile": "Quantile</a><sup>†",
        "tent": r"TENT</a>(<sup>[a-z]|</th>)",
        "source": "Source</a></th>",
    }
    for method, text in marked.items():
        assert len(re.findall(text, html)) == len(
            frame[frame["method"] == method].groupby(["dataset", "arch"])
        )
    assert html.index(">Mode<") < html.index(">Mean<")
    assert "T: some settings were chosen on the extra corruptions. –: no source data, one pass, no T." in html
    assert "<sup>†</sup> offline: sees all unlabelled test images" in html.partition('id="corruptions"')[0]


def test_the_heading_of_gaps_names_alarms_too(html: str) -> None:
    assert '<h2 id="h-gaps">Gaps and alarms</h2>' in html


def test_less_than_a_second_is_not_zero_seconds() -> None:
    short = cells(("source",), ("cct",), corruptions=("fog",), seconds=0.16)
    assert "<div>&lt;1 in 1 cells</div>" in page.html(Report(short))


def test_the_seconds_of_a_card_are_those_of_a_machine_that_was_not_busy() -> None:
    frame = cells(("source",), ("cct",), corruptions=("fog", "snow", "frost"), seconds=40.0)
    frame.loc[frame["corruption"] == "fog", "seconds"] = 7200.0
    assert "<div>120 in 3 cells</div>" in page.html(Report(frame))


def test_a_long_stream_has_no_interval() -> None:
    """Its images come again and again, and are no sample."""
    protocol = {"stream": "recurring(2)", "reset": "continual"}
    stream = cells(("source",), ("cct",), corruptions=("recurring",), **protocol)
    made = pd.concat([stream, cells(("source",), ("cct",), corruptions=("fog",))], ignore_index=True)
    known = {name: cell for row in embedded(page.html(Report(made)))["rows"]
             for name, (cell,) in row["cells"].items()}  # fmt: skip
    assert known["recurring"][1] is not None
    assert known["recurring"][2:4] == [None, None]
    assert None not in known["fog"][2:4]


@pytest.mark.parametrize(("fog", "badge"), [("n/a", "n/a"), ("failed", "failed")])
def test_a_card_without_a_number_says_whether_it_failed(fog: str, badge: str) -> None:
    made = spoil(cells(("source", "tent"), ("cct",), corruptions=CORRUPTIONS), "n/a", "none", method="tent")
    made = spoil(made, fog, "none", method="tent", corruption="fog")
    (summary,) = re.findall(r"<summary><b>TENT</b>.*?</summary>", page.html(Report(made)))
    assert f'badge b-{badge.replace("/", "")}">{badge}</span>' in summary


def test_every_row_has_a_protocol_card(html: str, rows: Rows) -> None:
    data = embedded(html)
    anchors = {about.get("id") for tag, about in rows.tags if tag == "details"}
    assert {data["texts"][row["card"]] for row in data["rows"]} == anchors
    assert "ResNet18 on Digits: weights-of-resne" in html
    assert "online, batch size 200, iid order" in html


def test_gaps_name_what_is_missing_failed_and_stale(frame: pd.DataFrame) -> None:
    tent = (frame["method"] == "tent") & (frame["arch"] == "resnet18")
    stale = frame.assign(stale=tent, stale_because=np.where(tent, "ttabench_methods/tent.py changed", ""))
    stale.attrs[MISSING] = (Missing("memo", "memo", "cct", "digits-c", 5, ("fog", "snow"), 4),)
    html = page.html(Report(stale))
    gaps = Rows(html).tables[-1]
    actual = {cells[0][1]: [text for _, text in cells[1:]] for _, cells in gaps["rows"][1:]}
    assert actual["missing"][:3] == ["MEMO", "CCT", "4"]
    assert actual["failed"][:3] == ["Quantile", "CCT", "2"]
    assert actual["failed"][-1] == "the logits hold NaN"
    assert actual["stale"][:3] == ["TENT", "ResNet18", str(int(tent.sum()))]
    assert actual["stale"][-1] == "ttabench_methods/tent.py changed"
    assert actual["n/a"][-1] == "no batch norm"


def test_reasons_are_told_in_full_and_once_for_all_numbers() -> None:
    long = "; ".join(f"ttabench/nn/module_{k}.py changed" for k in range(20))
    alarms = [f"uses {k} of 10 classes" for k in (3, 1, 2, 1)]
    assert protocol_cards.ranges([*alarms, long, "", long]) == ["uses 1 to 3 of 10 classes", long]


def test_a_whole_folder_without_gaps_says_so() -> None:
    assert "Nothing is missing, nothing failed" in page.html(Report(cells(corruptions=CORRUPTIONS)))


def test_what_the_page_opens_on_is_said_where_a_selector_has_others(html: str) -> None:
    assert "The page opens on one dataset and one architecture; choose others above, or “all”." in html
    one = page.html(Report(cells(archs=("cct",), corruptions=CORRUPTIONS)))
    assert "opens on" not in one
    assert '<p class="lead screen">Point at a number' in one


def test_names_are_never_markup() -> None:
    hostile = cells(methods=("source", *HOSTILE), archs=(HOSTILE[2],), corruptions=(HOSTILE[0], "fog"))
    hostile = spoil(hostile, "failed", "</script><script>alert(1)</script>", method=HOSTILE[1])
    html = page.html(Report(hostile))
    tags = Rows(html).tags
    assert [tag for tag, _ in tags].count("script") == 2
    assert not [about for _, about in tags if any(name.startswith("on") for name in about)]
    assert "img" not in [tag for tag, _ in tags]
    assert HOSTILE[0] in embedded(html)["texts"]


def test_the_page_asks_for_nothing_else(html: str) -> None:
    for tag, about in Rows(html).tags:
        assert tag not in ("link", "iframe", "object", "base")
        for name in ("src", "href", "action"):
            assert (about.get(name) or "#").startswith(("#", "data:")), (tag, about)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert "unsafe" not in policy[1]
    assert "default-src &#39;none&#39;" in policy[1]


def test_report_writes_it(ttabench: Run, tmp_path: Path, result: Result, other: Result) -> None:
    fill(Store.create(tmp_path / "results", {}), result, other)
    output = ttabench("report", tmp_path / "results", "--format", "html", "--no-increase")
    assert output.code == 0, output.err
    html = (tmp_path / "results" / "report" / page.NAME).read_text()
    assert "62.5" in html
    assert "increase over Source" not in html


def test_intervals_and_tests_have_columns_where_there_are_any(html: str) -> None:
    without = page.html(Report(cells(("source", "tent"), ("cct",))))
    for text in ("95 % interval", "W/T/L", "Paired test"):
        assert text in html
        assert text not in without


def test_the_texts_of_pictures_are_those_of_the_plots() -> None:
    """Coordinates are rounded to a tenth of a point, and numbers that one reads are not."""
    held = cells(("source", "tent", "tent[lr=0.00025]"), ("cct",), severities=(3, 5))
    pictures, _ = figures.figures(Report(with_correctness(held, 200)))
    assert len(pictures) == 4
    for picture in pictures:
        drawing = gzip.decompress(base64.b64decode(picture.drawing)).decode()
        assert ">TENT [lr=0.00025]<" in drawing, picture.title
        assert not re.search(r"<[^>]*\d\.\d\d", drawing), picture.title


def test_a_method_that_could_not_run_is_found_by_the_source_data_it_needs() -> None:
    held = cells(("source", "tent", "quantile"), ("cct",))
    held = spoil(held, "n/a", "no batch norm", method="quantile")
    held.loc[held["method"] == "quantile", "source_data"] = ""
    (means,) = (t for t in Rows(page.html(Report(held))).tables if t["about"].get("data-detail") == "mean")
    found = {about["data-text"].split()[-1]: about["data-source"] for about, _ in means["rows"][1:]}
    assert found == {"source": "none", "tent": "none", "quantile": "features"}


def test_a_method_that_does_not_say_what_it_adapts_shows_its_parameters() -> None:
    held = cells(("source", "mine", "tent"), ("cct",)).assign(adapted="nothing", adapted_parameters=0.0)
    held.loc[held["method"] == "mine", "adapted_parameters"] = 1224.0
    held.loc[held["method"] == "tent", ["adapted", "adapted_parameters"]] = ["2 LayerNorm", 8.0]
    found = {card.name: dict(card.facts)["Adapted"] for card in protocol_cards.cards(Report(held))}
    assert found == {"Source": ("nothing",), "mine": ("1,224 parameters",), "TENT": ("2 LayerNorm",)}
