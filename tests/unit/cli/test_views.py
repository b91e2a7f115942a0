"""The other verbs as a user meets them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from tests.unit import other_code
from tests.unit.conftest import Run
from tests.unit.stored_results import fill, filled
from ttabench import registry
from ttabench.cell import Result
from ttabench.cli import _table
from ttabench.store import Store


@pytest.fixture
def results(tmp_path: Path, result: Result, other: Result) -> Path:
    store = filled(tmp_path / "results", result, other)
    return store.root


def test_report_writes_the_table_of_cells_and_the_formats(
    ttabench: Run, results: Path, tmp_path: Path
) -> None:
    to = tmp_path / "tables of mine"
    output = ttabench("report", results, "--format", "csv,latex,plots", "--out", to)
    assert output.code == 0, output.err
    written = [Path(line) for line in output.out.splitlines()]
    assert all(path.is_file() for path in written)
    commands = re.findall(r"^PDF of .*: (cd .*)$", output.err, re.MULTILINE)
    assert [command.split()[-1] for command in commands] == ["all.tex", "appendix.tex", "plots.tex"]
    for command in commands if shutil.which("pdflatex") else ():  # as it stands, from another folder
        done = subprocess.run(
            f"{command} </dev/null", shell=True, cwd=tmp_path.parent, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout
        assert (to / f"{command.split()[-1].removesuffix('.tex')}.pdf").is_file()
    assert {path.suffix for path in written} >= {".csv", ".tex", ".png", ".pdf"}
    cells = pd.read_csv(to / "cells.csv")
    assert {"method", "arch", "dataset", "corruption", "severity", "seed", "mode", "n_images",
            "clean_accuracy", "accuracy", "seconds", "status"} <= set(cells.columns)  # fmt: skip
    assert sorted(cells["accuracy"]) == [50.0, 62.5]


def test_report_of_nothing(ttabench: Run, tmp_path: Path, results: Path) -> None:
    assert "not a results folder" in ttabench("report", tmp_path).err
    Store.create(tmp_path / "empty", {})
    assert "holds no results yet" in ttabench("report", tmp_path / "empty").err
    assert (
        "unknown report format 'cvs'; did you mean 'csv'?"
        in ttabench("report", results, "--format", "cvs").err
    )
    (tmp_path / "file").write_text("")
    assert "file is not a folder" in ttabench("report", results, "--out", tmp_path / "file").err
    (tmp_path / "link").symlink_to("nowhere")
    for place in ("link", "link/inner"):
        error = ttabench("report", results, "--out", tmp_path / place).err
        assert "link is a link that leads nowhere; choose another --out." in error


@pytest.mark.parametrize("command", ["report", "leaderboard", "figure", "paper"])
def test_a_results_folder_takes_no_other_files(
    ttabench: Run, results: Path, tmp_path: Path, command: str
) -> None:
    of = {"figure": ["six-blobs"], "paper": ["--scale", "0.01", "--only", "runtime"]}.get(command, [results])
    before = sorted(results.rglob("*"))
    output = ttabench(command, *of, "--out", results)
    assert (output.code, output.out) == (2, "")
    assert output.err == f"ttabench: --out {results} is a results folder; choose another --out.\n"
    output = ttabench(command, *of, "--out", results / "cells")
    assert (
        output.err
        == f"ttabench: --out {results / 'cells'} is a part of a results folder; choose another --out.\n"
    )
    assert sorted(results.rglob("*")) == before


def test_compare_is_a_gate(ttabench: Run, results: Path, tmp_path: Path) -> None:
    ttabench("report", results, "--format", "csv", "--out", tmp_path)
    baseline = tmp_path / "cells.csv"
    assert ttabench("compare", "--gate", baseline, results).code == 0
    cells = pd.read_csv(baseline)
    cells.loc[cells["corruption"] == "fog", "accuracy"] += 5
    cells.to_csv(tmp_path / "better.csv", index=False)
    assert ttabench("compare", "--gate", tmp_path / "better.csv", results).code == 1
    assert (
        ttabench("compare", tmp_path / "better.csv", results, "--max-drop", "5", "--max-mean-drop", "5").code
        == 0
    )
    assert ttabench("compare", "--gate", results, tmp_path / "better.csv").code == 0
    cells.iloc[:1].to_csv(tmp_path / "less.csv", index=False)
    assert ttabench("compare", "--gate", results, tmp_path / "less.csv").code == 1
    assert ttabench("compare", results, tmp_path / "none.csv").code == 2


@pytest.mark.parametrize("what", ["methods", "archs", "datasets", "corruptions"])
def test_list(ttabench: Run, what: str) -> None:
    output = ttabench("list", what)
    assert output.code == 0
    expected = {"methods": "tent", "archs": "vit_lite", "datasets": "digits-c", "corruptions": "spatter"}
    assert expected[what] in output.out


def test_list_of_methods_tells_needs_and_paper(ttabench: Run) -> None:
    out = ttabench("list", "methods").out
    for told in ("Wang", "batch norm", "norms=all", "gradients", "offline"):
        assert told in out


def test_list_of_methods_takes_a_line_or_two_for_each(ttabench: Run) -> None:
    lines = ttabench("list", "methods").out.splitlines()
    names = [line.split()[0] for line in lines if re.match(r" \w", line)][1:]  # without the heading
    assert {"tent", "come", "quantile_aqr"} <= set(names)
    assert len(lines) <= 2 * len(names)
    one = " ".join(ttabench("list", "methods", "come").out.split())
    assert "scored the forward pass before the update" in one
    assert "restores what its host restores" in one


@pytest.mark.parametrize("what", ["methods", "archs", "datasets"])
def test_lists_break_no_word_on_a_usual_terminal(
    ttabench: Run, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(_table, "screen", lambda: Console(highlight=False, width=140))
    words = set(re.findall(r"[a-z]{4,}", ttabench("list", what).out))
    monkeypatch.setattr(_table, "screen", lambda: Console(highlight=False, width=80))
    narrow = ttabench("list", what).out
    note = {"terminal", "columns", "also", "shows", "where", "method", "changed"}
    assert set(re.findall(r"[a-z]{4,}", narrow)) <= words | note


def test_list_of_something_else(ttabench: Run) -> None:
    output = ttabench("list", "method")
    assert (output.code, "did you mean 'methods'" in output.err) == (2, True)


def test_status_and_doctor(ttabench: Run, results: Path) -> None:
    output = ttabench("status", results)
    assert output.code == 0
    assert "2: 2 done, 0 failed, 0 stale, 0 missing, 0 n/a" in output.out
    output = ttabench("doctor")
    assert output.code == 0, output.out
    for told in ("torch", "cache", "devices", "all is well"):
        assert told in output.out


def test_doctor_counts_what_stays_where_a_sweep_writes(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    (cache / "deep").mkdir(parents=True)
    (cache / "temporary").write_bytes(b"")
    (cache / "deep" / "stays").write_bytes(bytes(3_000_000))
    monkeypatch.setenv("TTABENCH_CACHE", str(cache))
    stat = Path.stat

    def vanishing(path: Path, **how: bool) -> os.stat_result:
        status = stat(path, **how)
        if path.name == "temporary":
            path.unlink()  # after the first look
        return status

    monkeypatch.setattr(Path, "stat", vanishing)
    (cache / "gone").symlink_to(cache / "nothing")  # as a file that is listed and is gone then
    output = ttabench("doctor")
    assert "cannot be used" not in output.out
    assert f"{cache} (3 MB, " in output.out


def test_help_of_every_verb(ttabench: Run) -> None:
    whole = ttabench("--help").out
    for verb in (
        "sweep",
        "report",
        "compare",
        "train",
        "data",
        "list",
        "status",
        "conform",
        "cite",
        "doctor",
    ):
        assert verb in whole
        assert "Usage" in ttabench(verb, "--help").out


def test_the_installed_command_is_the_same_program() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ttabench"), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("ttabench 0.")


class Point:
    """An entry point as importlib.metadata has them."""

    def __init__(self, name: str, value: str, owner: str) -> None:
        self.name, self.value, self.module = name, value, value.partition(":")[0]
        self.dist = type("Dist", (), {"name": owner, "version": "1"})

    def load(self) -> object:
        raise ImportError("no module named 'unobtainable'")


def test_the_installed_packages_are_not_looked_through_again_for_a_method_that_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actual = registry.method("tent")
    monkeypatch.setattr(registry.metadata, "entry_points", lambda group: pytest.fail("looked through again"))
    assert registry.method("tent") is actual


def test_a_package_that_was_just_installed_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert "just_installed" not in registry.method_names()
    about = tmp_path / "just_installed-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: just-installed\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[ttabench.methods]\njust_installed = just_installed:Method\n")
    os.utime(tmp_path, ns=(1, 1))  # a clock of a file system may be coarser than these two lines are apart
    assert "just_installed" in registry.method_names()


def test_installed_packages_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    points = registry.entry_points(registry.METHODS)
    assert registry.entry_points(registry.METHODS) == points
    before = registry._entry_points.cache_info()
    points.clear()  # the caller's own
    assert "tent" in registry.entry_points(registry.METHODS)
    assert registry._entry_points.cache_info().misses == before.misses


def test_a_broken_plugin_is_warned_about_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = registry.entry_points(registry.METHODS)
    broken = Point("broken", "elsewhere:Broken", "elsewhere")
    monkeypatch.setattr(registry, "entry_points", lambda group: {**real, "broken": broken})
    with pytest.warns(UserWarning, match="'broken' of package elsewhere cannot be imported"):
        actual = registry.methods()
    assert "tent" in actual
    assert "broken" not in actual


def test_two_packages_may_not_claim_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [Point("tent", "a:Tent", "a"), Point("tent", "b:Tent", "b")]
    monkeypatch.setattr(registry.metadata, "entry_points", lambda group: points)
    with pytest.raises(Exception, match="a and b, both register 'tent'"):
        registry.entry_points(registry.METHODS)


def test_architectures_are_listed_in_families(ttabench: Run) -> None:
    lines = ttabench("list", "archs").out.splitlines()
    families = [line.strip().partition(":")[0] for line in lines if line.startswith("  ") and ": " in line]
    assert {"resnet", "cct", "cvt", "vit"} <= set(families)


def test_cite_prints_what_was_used_once(ttabench: Run, results: Path) -> None:
    output = ttabench("cite", "--methods", "tent,sar,tent[norms=all]")
    assert output.out.count("@") == 2
    assert "wang2021tent" in output.out.lower()
    assert output.out.count("{") == output.out.count("}")
    cited = ttabench("cite", results).out
    assert cited.count("@") == 2
    assert cited.startswith("@software{ttabench,")
    citation = (Path(__file__).parents[3] / "CITATION.cff").read_text()
    title, author = (re.search(rf"  {name} += {{+(.*?)}}+,", cited) for name in ("title", "author"))
    assert title is not None
    assert author is not None
    assert f"title: {title[1]}\n" in citation
    assert f"name: {author[1]}\n" in citation
    assert ttabench("cite").code == 2
    assert "For methods: cite --methods NAMES." in ttabench("cite", "tent").err


def test_cite_of_a_folder_without_a_number_says_so(ttabench: Run, tmp_path: Path) -> None:
    empty = Store.create(tmp_path / "empty", {}).root
    assert f"{empty} has no cell with a number; name methods with --methods." in ttabench("cite", empty).err


def test_cite_names_what_is_not_installed_and_cites_the_rest(
    ttabench: Run, tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = replace(result.cell, method="theirs", label="theirs", config=(("lr", 0.1),))
    broken = replace(result.cell, method="broken", label="broken")
    filled(tmp_path / "results", replace(result, cell=strange), result, replace(result, cell=broken))
    points = {**registry.entry_points(registry.METHODS), "broken": Point("broken", "a:B", "elsewhere")}
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    output = ttabench("cite", tmp_path / "results")
    assert output.code == 0
    assert output.out.count("@") == 2  # ttabench and TENT
    assert "wang2021tent" in output.out
    assert "not installed here, so not cited: theirs\n" in output.err
    assert "skipped: method 'broken' of package elsewhere cannot be imported" in output.err
    named = ttabench("cite", tmp_path / "results", "--methods", "theirs")
    assert (named.code, "unknown method 'theirs'" in named.err) == (2, True)


@pytest.mark.parametrize(
    ("methods", "keys"),
    [
        ("tent[statistics=median]", {"wang2021tent", "park2024medbn"}),
        ("tent,sar[statistics=median]", {"wang2021tent", "niu2023towards", "park2024medbn"}),
        ("bn_stats", {"nado2020evaluating"}),
        ("bn_stats[prior=16]", {"schneider2020improving"}),
    ],
)
def test_cite_goes_by_the_settings(ttabench: Run, methods: str, keys: set[str]) -> None:
    assert set(re.findall(r"@\w+{(\w+),", ttabench("cite", "--methods", methods).out)) == keys


def test_cite_refuses_unknown_settings_and_tells_what_has_no_paper(ttabench: Run) -> None:
    output = ttabench("cite", "--methods", "tent[foo=1]")
    assert output.code == 2
    assert "foo" in output.err
    assert "without a paper: source" in ttabench("cite", "--methods", "source,tent").err


@pytest.mark.usefixtures("short_memory_check")
def test_conform_of_a_method(ttabench: Run) -> None:
    output = ttabench("conform", "source")
    assert output.code == 0, output.out
    assert "FAIL" not in output.out
    assert "reset" in output.out
    assert "did you mean 'tent'" in ttabench("conform", "tnet").err


def test_data_verbs(ttabench: Run, tmp_path: Path) -> None:
    import numpy as np

    draw = np.random.default_rng(0)
    np.savez(
        tmp_path / "mine.npz",
        images=draw.integers(0, 256, (20, 32, 32, 3), np.uint8),
        labels=np.arange(20) % 4,
    )
    root = ("--root", tmp_path / "data")
    output = ttabench(
        "data", "generate", tmp_path / "mine.npz", "--corruptions", "fog", "--workers", "0", *root
    )
    assert output.code == 0, output.err
    assert "mine-c-local" in output.out
    assert "mine-c-local" in ttabench("data", "list", *root).out
    assert ttabench("data", "verify", "cifar10-c", *root).code == 1
    output = ttabench("data", "fetch", "cifar11-c", *root)
    assert (output.code, "did you mean 'cifar10-c'" in output.err) == (2, True)
    assert ttabench("data", "fetch", "digits-c").code == 0


def test_train_leaves_a_card_and_a_learning_curve(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTABENCH_CACHE", str(tmp_path))
    command = ("train", "--archs", "resnet18", "--epochs", "1", "--workers", "0")
    output = ttabench(*command)
    assert output.code == 0, output
    (card,) = tmp_path.rglob("*.md")
    (plot,) = tmp_path.rglob("*.png")
    assert "of 600 test images" in card.read_text()
    assert plot.read_bytes().startswith(b"\x89PNG")
    again = ttabench(*command)
    assert "trained already" in again.out


def test_report_of_some_methods_only(ttabench: Run, results: Path, tmp_path: Path, result: Result) -> None:
    names = ("source", "quantile", "quantile_paper")
    cells = [replace(result.cell, method=name, label=name) for name in names]
    fill(Store.at(results), *(replace(result, cell=cell) for cell in cells))
    for asked, kept in (
        ("alignment", {"source", "quantile", "quantile_paper"}),
        ("tent", {"source", "tent"}),
        ("all", {"source", "tent", "quantile", "quantile_paper"}),
    ):
        output = ttabench("report", results, "--methods", asked, "--format", "csv", "--out", tmp_path / asked)
        assert output.code == 0, output.err
        assert set(pd.read_csv(tmp_path / asked / "cells.csv")["base"]) == kept
    wrong = ttabench("report", results, "--methods", "tnet", "--out", tmp_path / "wrong")
    assert "unknown method of these results 'tnet'; did you mean 'tent'?" in wrong.err
    near = ttabench("report", results, "--methods", "alignmen", "--out", tmp_path / "wrong")
    assert "unknown method of these results 'alignmen'; did you mean 'alignment'?" in near.err
    for given, problem in (
        (("--methods", "tent[lr=1]"), "name tent, not tent[lr=1]."),
        (("--methods", "quantile+cotta"), "unknown method of these results 'quantile+cotta';"),
        (("--format", "csv", "latex"), "latex is a format; use commas: --format csv,latex."),
        (("--select", ""), "--select '' names nothing"),
    ):
        refused = ttabench("report", results, *given, "--out", tmp_path / "refused")
        assert (refused.code, (tmp_path / "refused").exists()) == (2, False)
        assert problem in " ".join(refused.err.split())
    assert not (tmp_path / "wrong").exists()


def test_report_of_a_family_that_no_result_is_of_is_one_sentence(
    ttabench: Run, results: Path, tmp_path: Path
) -> None:
    output = ttabench("report", results, "--methods", "alignment", "--out", tmp_path / "out")
    assert output.code == 2
    assert "these results have no method of alignment; they have tent." in " ".join(output.err.split())
    assert not (tmp_path / "out").exists()


def test_methods_that_a_report_leaves_out_are_not_called_missing(
    ttabench: Run, tmp_path: Path, result: Result
) -> None:
    cell = result.cell
    asked = {
        "methods": ["tent", "sar", "bn_stats"], "archs": [cell.arch], "datasets": [cell.dataset],
        "severities": [cell.severity],
    }  # fmt: skip
    folder = tmp_path / "two of three"
    cells = [replace(cell, method=name, label=name) for name in ("source", "tent", "sar")]
    fill(Store.create(folder, asked), *(replace(result, cell=each) for each in cells))
    for methods, missing in (("tent", False), ("tent,sar", False), ("all", True)):
        out = tmp_path / methods
        output = ttabench("report", folder, "--methods", methods, "--format", "markdown", "--out", out)
        assert output.code == 0, output.err
        assert ("Asked for, but not measured: BNStats" in (out / "tables.md").read_text()) is missing
        assert "not measured: SAR" not in (out / "tables.md").read_text()


def test_report_names_what_is_stale_and_why_in_every_table(
    ttabench: Run, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_code.changed(monkeypatch)
    output = ttabench("report", results, "--out", tmp_path / "out", "--format", "csv,latex,markdown,html")
    assert output.code == 0
    assert f"stale cells of tent: {other_code.CHANGED} changed since they were measured." in output.err
    status = ttabench("status", results)
    assert f"stale cells of tent: {other_code.CHANGED} changed since they were measured\n" in status.out
    tex = ["per_corruption_digits-c-severity-5.tex", "summary.tex", "statistics.tex"]
    for name in (*tex, "tables.md", "cells.csv", "summary.csv", "results.html"):
        text = (tmp_path / "out" / name).read_text().replace("\\_", "_").replace("\\allowbreak{}", "")
        assert f"{other_code.CHANGED} changed" in text, name
