"""The leaderboard: ranks within a protocol, numbers from stored images, cards that exist, gaps that show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.browser import chromium, complaints, resize
from tests.cases import each
from tests.unit import other_code
from tests.unit.conftest import Run
from tests.unit.reports.page.test_page import HOSTILE, Rows
from tests.unit.stored_results import CELL, Right, attest, fill, measured
from ttabench.cell import Cell, Result
from ttabench.cell.protocol import Protocol
from ttabench.errors import UserError
from ttabench.provenance import current_code
from ttabench.provenance.staleness import code_now
from ttabench.store import Store
from ttabench.store.attestations import digest, stratum_of
from ttabench_reports import leaderboard
from ttabench_reports.cells import load
from ttabench_reports.evidence.gains_and_costs import costs
from ttabench_reports.evidence.report import Report
from ttabench_reports.page import figures


@pytest.fixture(autouse=True)
def _without_plots(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The tests of pages look at the plots, and one here; to draw them takes longer than all the rest."""
    if "browser" not in request.fixturenames:
        monkeypatch.setattr(figures, "figures", lambda report: ([], False))


IMAGES = 403  # not a multiple of 8
CORRUPTIONS = ("fog", "snow")


def right(share: float, seed: int = 0) -> Right:
    """Which images are right: the same ones are hard for all, as in real results."""
    hard = np.random.default_rng(1).random(IMAGES)
    noise = np.random.default_rng(seed + 2).normal(0, 0.02, IMAGES)
    return hard + noise < share


def cell(method: str, corruption: str = "fog", **changed: Any) -> Cell:
    return replace(CELL, method=method, label=method, corruption=corruption, **changed)


def results(methods: Mapping[str, float], **changed: Any) -> list[Result]:
    """A result for each method and corruption, with this share of right images."""
    return [
        measured(cell(method, corruption, **changed), right(share, 10 * m + c))
        for m, (method, share) in enumerate(methods.items())
        for c, corruption in enumerate(CORRUPTIONS)
    ]


def long_stream(methods: Mapping[str, float]) -> list[Result]:
    """A result for each method on a long stream, with this share of right images."""
    protocol = Protocol(stream="recurring(2)", reset="continual")
    return [
        measured(cell(method, "recurring", protocol=protocol), right(share))
        for method, share in methods.items()
    ]


def folder(path: Path, *parts: list[Result]) -> Path:
    fill(Store.create(path, {"methods": ["source"]}), *(result for part in parts for result in part))
    return path


def built(out: Path, *paths: Path) -> pd.DataFrame:
    """The CSV of the site."""
    leaderboard.build(paths, out)
    return pd.read_csv(out / leaderboard.CSV)


def plan(result: Result, **changed: Any) -> dict[str, Any]:
    of = replace(result.cell, **changed)
    return {
        "id": of.cell_id, "method": of.label, "base": of.method, "arch": of.arch, "dataset": of.dataset,
        "corruption": of.corruption, "severity": of.severity, "seed": of.seed, "reason": "",
    }  # fmt: skip


def test_ranks_are_given_within_one_protocol_and_ties_share_them(tmp_path: Path) -> None:
    small = Protocol(batch_size=64)
    table = built(
        tmp_path / "site",
        folder(
            tmp_path / "a",
            results({"source": 0.5, "tent": 0.7, "eata": 0.701, "sar": 0.6}),
            results({"cotta": 0.9, "rotta": 0.4}, protocol=small),
            results({"quantile": 0.95}, protocol=Protocol(mode="offline", batch_size=512)),
        ),
    )
    ranks = {(line["method"], line["protocol"]): line["rank"] for _, line in table.iterrows()}
    common, other = Protocol().caption(), small.caption()
    assert ranks["tent", common] == ranks["eata", common] == 1
    assert ranks["sar", common] == 3
    written = pd.read_csv(tmp_path / "site" / leaderboard.CSV, dtype=str)
    assert {*written["rank"].dropna()} == {"1", "2", "3"}
    assert (ranks["cotta", other], ranks["rotta", other]) == (1, 2)
    unranked = table[table["rank"].isna()]["method"]
    assert set(unranked) == {"source", "quantile"}
    assert set(table[table["method"] == "source"]["protocol"]) == set(table["protocol"])


@each("share", [0.95, 0.65])
def test_a_row_that_cannot_be_tested_has_no_rank_and_takes_none(share: float, tmp_path: Path) -> None:
    """It has another seed, and may be the highest."""
    common = {"source": 0.5, "tent": 0.7, "sar": 0.6}
    table = built(tmp_path / "site", folder(
        tmp_path / "a", results(common), results({"cotta": share}, seed=1), results({"rotta": 0.4}),
    )).set_index("method")  # fmt: skip
    assert [table.loc[name, "rank"] for name in ("tent", "sar", "rotta")] == [1, 2, 3]
    assert np.isnan(table.loc["cotta", "rank"])
    assert {*table["of"]} == {3}
    assert [name for name, state in table["state"].items() if "not tested" in str(state)] == ["cotta"]
    page = (tmp_path / "site" / leaderboard.INDEX).read_text()
    assert "<small>alone</small>" not in page


@each(
    "parts",
    [
        pytest.param([results({"source": 0.5, "tent": 0.7}), results({"cotta": 0.6}, seed=1)], id="seeds"),
        pytest.param([long_stream({"source": 0.5, "tent": 0.7, "cotta": 0.6})], id="long stream"),
    ],
)
def test_where_no_two_methods_can_be_compared_none_is_ranked_or_called_alone(
    parts: list[list[Result]], tmp_path: Path
) -> None:
    table = built(tmp_path / "site", folder(tmp_path / "a", *parts)).set_index("method")
    assert table["rank"].isna().all()
    for name in ("tent", "cotta"):
        assert "not tested" in str(table.loc[name, "state"])
    assert "<small>alone</small>" not in (tmp_path / "site" / leaderboard.INDEX).read_text()


def test_each_block_says_over_which_corruptions_its_means_are(tmp_path: Path) -> None:
    table = built(tmp_path / "site", folder(tmp_path / "a", results({"source": 0.5, "tent": 0.7})))
    assert set(table["corruptions"]) == {2}
    assert "over 2 of the 15 corruptions: Snow, Fog." in (tmp_path / "site" / leaderboard.INDEX).read_text()


def test_methods_of_one_pace_are_ranked_together_whatever_their_compute_ratio(tmp_path: Path) -> None:
    paced = [
        results({method: share}, protocol=Protocol(pace=1, pace_ratio=ratio))
        for method, share, ratio in (("source", 0.5, 1.0), ("tent", 0.7, 2.5), ("memo", 0.6, 40.0))
    ]
    table = built(tmp_path / "site", folder(tmp_path / "a", *paced)).set_index("method")
    assert (table.loc["tent", "rank"], table.loc["memo", "rank"]) == (1, 2)
    assert table["protocol"].nunique() == 1
    assert table.loc["tent", "protocol"].endswith("pace 1, each method at its own compute ratio")
    assert "at compute ratio 2.5" in (tmp_path / "site" / "a.html").read_text()


def test_source_stands_with_all_its_seeds_where_a_method_has_fewer(tmp_path: Path) -> None:
    held = Protocol(held_out=0.5)
    more = results({"source": 0.9}, protocol=held, seed=1)
    ours = results({"source": 0.5, "tent": 0.7}, protocol=held)
    table = built(tmp_path / "site", folder(tmp_path / "a", ours, more)).set_index("method")
    source = 100 * np.mean([right(share, c).mean() for share in (0.5, 0.9) for c in (0, 1)])
    assert table.loc["source", "accuracy"] == pytest.approx(source, abs=1e-3)
    rise = table.loc["tent", "accuracy"] - 100 * np.mean([right(0.5, c).mean() for c in (0, 1)])
    assert table.loc["tent", "increase"] == pytest.approx(rise, abs=1e-3)


def test_accuracies_are_those_of_the_stored_images(tmp_path: Path) -> None:
    shares = {"source": 0.5, "tent": 0.7}
    table = built(tmp_path / "site", folder(tmp_path / "a", results(shares)))
    for method, line in table.set_index("method").iterrows():
        ours = [r for r in results(shares) if r.cell.method == method]
        bits = [np.unpackbits(np.frombuffer(r.correct, np.uint8))[:IMAGES] for r in ours]
        assert line["accuracy"] == pytest.approx(100 * np.mean(bits), abs=1e-4)
        assert line["low"] < line["accuracy"] < line["high"]


@pytest.mark.parametrize("wrong", ["accuracy", "images", "padding", "none"])
def test_a_record_that_disagrees_with_its_images_is_refused_with_its_place(
    ttabench: Run, tmp_path: Path, wrong: str
) -> None:
    good = results({"source": 0.5, "tent": 0.7})
    assert good[-1].accuracy is not None
    bad = {
        "accuracy": replace(good[-1], accuracy=good[-1].accuracy + 0.01),
        "images": replace(good[-1], n_images=IMAGES - 8),
        "padding": replace(good[-1], correct=good[-1].correct[:-1] + b"\xff"),
        "none": replace(good[-1], correct=b""),
    }[wrong]
    path = folder(tmp_path / "a", good[:-1], [bad])
    output = ttabench("leaderboard", path, "--out", tmp_path / "site")
    assert output.code == 2
    (shard,) = (path / "cells").iterdir()
    line = 1 + next(
        n for n, text in enumerate(shard.read_text().splitlines()) if f'"id":"{bad.cell.cell_id}"' in text
    )
    assert f"{shard.name}, line {line}, is not what ttabench wrote: it" in output.err
    assert not (tmp_path / "site").exists()


def test_where_no_method_has_a_number_nothing_is_written(ttabench: Run, tmp_path: Path) -> None:
    done = ttabench(
        "sweep", "--methods", "medbn", "--archs", "cct", "--corruptions", "frost", "--limit", "20",
        "--workers", "0", "--out", tmp_path / "r",
    )  # fmt: skip
    assert done.code == 0
    refused = ttabench("leaderboard", tmp_path / "r", "--out", tmp_path / "site")
    assert refused.code == 2
    assert "no method has a number; there is nothing to rank" in refused.err
    assert not (tmp_path / "site").exists()


def test_the_folder_named_first_counts(tmp_path: Path) -> None:
    first = folder(tmp_path / "reference", results({"source": 0.5, "tent": 0.7}))
    second = folder(tmp_path / "theirs", results({"source": 0.1, "tent": 0.9, "eata": 0.6}))
    alone = built(tmp_path / "alone", first).set_index("method")
    table = built(tmp_path / "site", first, second).set_index("method")
    for method in ("source", "tent"):
        assert table.loc[method, "accuracy"] == alone.loc[method, "accuracy"]
        assert table.loc[method, "folders"] == "reference"
    assert table.loc["eata", "folders"] == "theirs"
    assert table.loc["eata", "increase"] == pytest.approx(
        table.loc["eata", "accuracy"] - alone.loc["source", "accuracy"], abs=1e-3
    )
    repeated = Rows((tmp_path / "site" / "index.html").read_text()).tables[-1]["rows"][2][1][-1][1]
    assert repeated.startswith("4 cells of reference, 4 of them with up to ")
    assert "Also in earlier folders" not in (tmp_path / "alone" / "index.html").read_text()


def test_what_helps_on_the_screen_alone_is_not_printed(tmp_path: Path) -> None:
    built(tmp_path / "site", folder(tmp_path / "one", results({"source": 0.5, "tent": 0.7})))
    html = (tmp_path / "site" / "index.html").read_text()
    on_screen = re.findall(r'<p class="lead screen">(.*?)</p>', html)
    assert ["Point at a number" in text and "share a rank" not in text for text in on_screen] == [True]


def test_a_failed_cell_does_not_hide_the_number_of_a_later_folder(tmp_path: Path) -> None:
    good = results({"source": 0.5, "tent": 0.7})
    lost = replace(good[-1], status="failed", reason="killed", accuracy=None, correct=b"", n_images=0)
    first = folder(tmp_path / "a", good[:-1], [lost])
    table = built(tmp_path / "site", first, folder(tmp_path / "b", good[-1:])).set_index("method")
    assert not np.isnan(table.loc["tent", "accuracy"])
    assert table.loc["tent", "folders"] == "a; b"


def test_partial_folders_are_visible_and_their_partial_rows_have_no_rank(tmp_path: Path) -> None:
    good = results({"source": 0.5, "tent": 0.7, "eata": 0.6})
    path = folder(tmp_path / "a", good[:-1])
    Store.at(path).write_plan([plan(result) for result in good])
    table = built(tmp_path / "site", path).set_index("method")
    assert np.isnan(table.loc["eata", "rank"])
    assert np.isnan(table.loc["eata", "accuracy"])
    assert table.loc["eata", "state"] == "1 of 2 corruptions"
    row = Rows((tmp_path / "site" / "index.html").read_text()).tables[-1]["rows"][1][1]
    texts = [text for _, text in row]
    assert texts[:5] == ["a", "partial", "Digits-C", "5", "1"]


def test_stale_folders_are_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        other_code.changed(patch)
        path = folder(tmp_path / "a", results({"source": 0.5, "tent": 0.7}))
    table = built(tmp_path / "site", path)
    assert set(table["state"]) == {"stale"}
    texts = [t for _, t in Rows((tmp_path / "site" / "index.html").read_text()).tables[-1]["rows"][1][1]]
    assert texts[1] == "stale"
    assert f"{other_code.CHANGED} changed" in (tmp_path / "site" / "a.html").read_text()


def test_attested_cells_are_fresh_and_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        other_code.changed(patch)
        path = folder(tmp_path / "a", results({"source": 0.5, "tent": 0.7}))
    shown, *others = [
        each for each in Store.at(path).latest().values() if each.data["cell"]["method"] == "tent"
    ]
    assert (shown.stale, len(others)) == (True, 1)
    attest(
        path, environment=shown.environment, cells=[(shown.cell_id, digest(shown.result.correct))],
        same=[(shown.source, code_now(shown.data).source, stratum_of(shown.data["cell"]))],
    )  # fmt: skip
    table = built(tmp_path / "site", path).set_index("method")
    assert table["state"].fillna("").to_dict() == {"tent": "", "source": "stale"}
    assert (tmp_path / "site" / "index.html").read_text().count("2 cells are attested: the code changed") == 1


@pytest.fixture
def by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A folder of results measured with these definitions beside those of ttabench."""

    def make(name: str, made: list[Result], **definitions: str) -> Path:
        further = {
            f"{name.replace('__', '/')}.py: adapt": digits for name, digits in definitions.items()
        }  # fmt: skip
        with monkeypatch.context() as patch:
            ours = current_code("tent", "digits-c").definitions
            other_code.installed(patch, {**ours, **further})
            return folder(tmp_path / name, made)

    return make


MINE = results({"mine": 0.7})
SOURCE = results({"source": 0.5})


@pytest.mark.parametrize("theirs", [MINE[1:], MINE[:1]], ids=["further cells", "the same cells"])
@pytest.mark.parametrize(
    "codes",
    [
        ({"mine__method": "1"}, {"mine__method": "2"}),
        ({"mine__method": "1"}, {"other__mine": "1"}),
        ({"ttabench_methods__mine": "1"}, {"ttabench_methods__mine": "2"}),  # of two other checkouts
    ],
    ids=["one package", "two packages", "two checkouts"],
)
def test_two_codes_under_one_name_are_refused(
    by: Callable[..., Path], tmp_path: Path, codes: tuple[dict[str, str], ...], theirs: list[Result]
) -> None:
    first, second = by("a", [*SOURCE, *MINE[:1]], **codes[0]), by("b", theirs, **codes[1])
    says = r"^a and b both hold results of 'mine' on resnet18 and digits-c, .* \(.*mine.*\); give one of "
    with pytest.raises(UserError, match=says):
        leaderboard.build([first, second], tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_one_code_in_two_folders_and_two_codes_in_two_rows_are_ranked(
    by: Callable[..., Path], tmp_path: Path
) -> None:
    apart = results({"mine": 0.6}, protocol=Protocol(batch_size=64))
    table = built(
        tmp_path / "site",
        by("a", [*SOURCE, *results({"tent": 0.6}), *MINE[:1]], mine__method="1"),
        by("b", MINE[1:], mine__method="1"),
        by("c", apart, mine__method="2"),
    )
    ranks = dict(zip(table["folders"], table["rank"], strict=True))
    assert ranks["a; b"] == 1
    assert "c" in ranks


def test_other_code_of_a_network_is_not_another_method(by: Callable[..., Path], tmp_path: Path) -> None:
    def of(made: list[Result]) -> list[Result]:
        return [replace(one, cell=replace(one.cell, arch="mynets.nets:build")) for one in made]

    made = results({"tent": 0.7})
    first = by("a", of([*SOURCE, *made[:1]]), mynets__nets="1")
    table = built(tmp_path / "site", first, by("b", of(made[1:]), mynets__nets="2")).set_index("method")
    assert table["folders"]["tent"] == "a; b"


def test_a_method_of_another_version_of_ttabench_is_stale_and_keeps_its_rank(
    by: Callable[..., Path], tmp_path: Path
) -> None:
    made = results({"tent": 0.7, "eata": 0.6})
    first = by("a", [*SOURCE, *made[:1], *made[2:]])
    second = by("b", made[1:2], ttabench_methods__tent="1")
    table = built(tmp_path / "site", first, second).set_index("method")
    assert table.loc["tent", "rank"] == 1
    assert table.loc["tent", "state"] == "stale"


def test_every_row_links_a_protocol_card_that_exists(tmp_path: Path) -> None:
    paths = [
        folder(tmp_path / "x" / "results", results({"source": 0.5, "tent": 0.7})),
        folder(tmp_path / "y" / "results", results({"eata": 0.6}, protocol=Protocol(batch_size=64))),
        folder(tmp_path / "index", results({"sar": 0.6})),
    ]
    table = built(tmp_path / "site", *paths)
    html = (tmp_path / "site" / "index.html").read_text()
    linked = set(re.findall(r'href="([^"#]+#card-[^"]+)"', html))
    assert linked == set(table["card"])
    for link in linked:
        page, anchor = link.split("#")
        assert f'id="{anchor}"' in (tmp_path / "site" / page).read_text()
    assert {link.split("#")[0] for link in linked} == {"x-results.html", "y-results.html", "index-.html"}
    assert set(table["folders"]) == {"x/results", "y/results", "index"}


def test_the_cost_is_time_over_source_on_the_same_machine(tmp_path: Path) -> None:
    made = results({"source": 0.5, "tent": 0.7, "eata": 0.6})
    made = [replace(r, seconds={"source": 0.5, "tent": 1.5, "eata": 9.0}[r.cell.method]) for r in made]
    counted = [
        replace(r, details=r.details | {"cost": {"compute_ratio": 2.5}}) if r.cell.method == "eata" else r
        for r in made
    ]
    table = built(tmp_path / "site", folder(tmp_path / "a", counted)).set_index("method")
    assert table["time_over_source"].to_dict() == {"source": 1.0, "tent": 3.0, "eata": 2.5}


def test_a_cell_that_failed_took_no_time(tmp_path: Path) -> None:
    made = [replace(r, seconds=1.5) for r in results({"source": 0.5, "tent": 0.7})]
    failed = [Result(cell=replace(r.cell, seed=1), status="failed", reason="no memory") for r in made[2:]]
    table = built(tmp_path / "site", folder(tmp_path / "a", made, failed)).set_index("method")
    assert table.loc["tent", "time_over_source"] == 1.0


def test_the_cost_is_the_median_as_in_the_tables_of_costs(tmp_path: Path) -> None:
    shares = {"source": 0.5, "tent": 0.7}
    made = [result for seed in range(3) for result in results(shares, seed=seed)]
    ratios = iter([1.0, 1.0, 40.0, 2.0, 3.0] * len(made))
    made = [replace(r, details=r.details | {"cost": {"compute_ratio": next(ratios)}}) for r in made]
    path = folder(tmp_path / "a", made)
    table = built(tmp_path / "site", path).set_index("method")
    costs_of = costs(Report(load.read([path]))).set_index("method")["compute_ratio"]
    assert table["time_over_source"].to_dict() == costs_of.to_dict()


def test_a_cell_of_a_busy_machine_changes_no_cost(tmp_path: Path) -> None:
    made = results({"source": 0.5, "tent": 0.7})
    made += results({"source": 0.5, "tent": 0.7}, seed=1)
    made = [replace(r, seconds={"source": 0.5, "tent": 1.5}[r.cell.method]) for r in made]
    for method in ("source", "tent"):
        busy = [r.cell.method for r in made].index(method)
        made[busy] = replace(made[busy], seconds=900.0)
        table = built(tmp_path / method, folder(tmp_path / f"of {method}", made)).set_index("method")
        assert table["time_over_source"].to_dict() == {"source": 1.0, "tent": 3.0}


def test_a_row_of_several_devices_has_no_cost(tmp_path: Path) -> None:
    made = results({"source": 0.5, "tent": 0.7, "eata": 0.6})
    made = [replace(r, details=r.details | {"cost": {"compute_ratio": 2.5}}) for r in made]
    store = Store.create(tmp_path / "a", {"methods": ["source"]})
    for device in ("cpu", "cuda"):
        writer = store.writer(device)
        for r in made:
            elsewhere = r.cell.method == "tent" and r.cell.corruption == CORRUPTIONS[0]
            if (device == "cuda") == elsewhere:
                writer.append(r)
        writer.close()
    table = built(tmp_path / "site", tmp_path / "a").set_index("method")
    assert np.isnan(table.loc["tent", "time_over_source"])
    assert table.loc["eata", "time_over_source"] == 2.5


def test_what_is_no_leaderboard(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", results({"source": 0.5, "tent": 0.7}))
    with pytest.raises(UserError, match="named twice"):
        leaderboard.build([path, path], tmp_path / "site")
    with pytest.raises(UserError, match="not a results folder"):
        leaderboard.build([tmp_path], tmp_path / "site")
    with pytest.raises(UserError, match="holds no results yet"):
        leaderboard.build([folder(tmp_path / "empty")], tmp_path / "site")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def test_in_a_browser(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    named = [replace(r, cell=replace(r.cell, label=f"sar[{HOSTILE[0]}]")) for r in results({"sar": 0.65})]
    hostile = f"SAR [{HOSTILE[0]}]"
    small = Protocol(batch_size=64)
    made = results({"source": 0.5, "tent": 0.7, "eata": 0.6})
    slow = [replace(r, seconds=50.0) if r.cell.method == "eata" else r for r in made]
    path = folder(tmp_path / "<b>a", slow, named, results({"cotta": 0.9}, protocol=small))
    leaderboard.build([path], tmp_path / "site")
    browser.get((tmp_path / "site" / "index.html").as_uri())

    def shown() -> list[str]:
        actual: list[str] = browser.execute_script(
            "return [...document.querySelectorAll('.means tbody:not([hidden]) tr[data-r]:not([hidden])')]"
            ".map((row) => row.cells[0].textContent.trim())"
        )
        return actual

    assert shown() == ["Source", "TENT", hostile, "EATA"]  # the page opens on one block
    Select(browser.find_element(By.NAME, "protocol")).select_by_visible_text(small.caption())
    assert shown() == ["Source", "CoTTA"]
    Select(browser.find_element(By.NAME, "protocol")).select_by_visible_text("all")
    assert shown() == ["Source", "TENT", hostile, "EATA", "Source", "CoTTA"]
    Select(browser.find_element(By.NAME, "cost")).select_by_visible_text("at most 3 ×")
    assert shown() == ["Source", "TENT", hostile, "Source", "CoTTA"]
    Select(browser.find_element(By.NAME, "source")).select_by_visible_text("none")
    browser.find_element(By.XPATH, "//th[button='Method']/button").click()
    assert shown()[:3] == sorted(shown()[:3], key=lambda text: text.strip("<").casefold())
    link = browser.find_element(By.XPATH, "//table//a[text()='TENT']")
    browser.execute_script("arguments[0].click()", link)
    card = browser.execute_script("return document.querySelector(location.hash)")
    assert card.get_attribute("open")
    assert "batch size 200" in card.text
    browser.back()
    for width in (320, 390):
        resize(browser, width, 800)
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
    assert complaints(browser) == []


def test_methods_on_other_weights_are_ranked_apart(tmp_path: Path) -> None:
    other = "d" * 64
    ours = results({"source": 0.5, "tent": 0.7, "eata": 0.6})
    theirs = results({"source": 0.4, "tent": 0.9, "eata": 0.3}, checkpoint=other)
    table = built(tmp_path / "site", folder(tmp_path / "a", ours, theirs))
    ranks = {
        (line["checkpoint"], line["method"].partition(" ")[0]): line["rank"] for _, line in table.iterrows()
    }
    for weights in (CELL.checkpoint, other):
        assert (ranks[weights, "tent"], ranks[weights, "eata"]) == (1, 2)


def test_a_result_under_the_name_of_another_method_is_refused(tmp_path: Path) -> None:
    ours = [replace(one, cell=replace(one.cell, label="quantile")) for one in results({"tent": 0.6})]
    with pytest.raises(UserError, match="it is called 'quantile', and its method is 'tent'"):
        built(tmp_path / "site", folder(tmp_path / "a", results({"source": 0.5}), ours))
