"""Settings that nobody set are not in the names of tables; one sentence below has them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from tests.unit.made_cells import cells
from ttabench_reports.cells.set_by_users import SET, of_all, set_by_users
from ttabench_reports.evidence.report import Report
from ttabench_reports.plots.which import looks
from ttabench_reports.sheets import means
from ttabench_reports.tables import build as tables
from ttabench_reports.words import unset_settings
from ttabench_reports.words.naming import MEAN
from ttabench_reports.words.renaming import rename
from ttabench_reports.words.unset_settings import without

DEFAULTS = ("source", "tent[norms=all]", "sar[lr=0.001]")


def names(frame: pd.DataFrame) -> list[str]:
    return [row.name for table in tables.tables(frame) for row in table.rows if row.measured]


def made(
    methods: tuple[str, ...] = DEFAULTS, asked: frozenset[tuple[str, str]] | None = frozenset()
) -> pd.DataFrame:
    frame = cells(methods, ("cct",), corruptions=("fog", "snow"))
    if asked is not None:
        frame.attrs[SET] = asked
    return frame


def test_a_default_of_a_network_is_said_once_below() -> None:
    frame = made()
    assert names(frame) == ["Source", "SAR", "TENT"]
    sheet = means.summary(Report(frame))
    assert "[" not in "".join(cell.text for line in sheet.groups[0].lines for cell in line[:2])
    (table,) = tables.tables(frame)
    said = "Defaults of methods on CCT: lr=0.001 at batch size 200 (SAR); norms=all (TENT)."
    assert (table.measured.count(said), sheet.footer.count(said)) == (1, 1)


def test_each_network_has_a_sentence_and_networks_alike_share_it() -> None:
    methods = ("source", "come[K=10,norms=all]", "sar[lr=0.001,rho=0.1]", "tent[norms=all]")
    frame = pd.concat([
        cells(methods, ("cct", "cvt"), corruptions=("fog", "snow")),
        cells(("source", "come[K=10]"), ("resnet18",), corruptions=("fog", "snow")),
    ])  # fmt: skip
    frame.attrs[SET] = frozenset()
    (table,) = tables.tables(frame)
    on_both = "K=10 (COME); norms=all (COME, TENT); lr=0.001 at batch size 200, rho=0.1 (SAR)"
    assert unset_settings.defaults(table.rows) == (
        f"Defaults of methods on ResNet18: K=10 (COME). Defaults of methods on CCT, CVT: {on_both}."
    )


def test_a_method_with_a_default_of_a_network_is_one_curve_on_all_networks() -> None:
    """Also where another setting of it stands beside: its name is the same on each network."""
    all_norms = ("tent[norms=all]", "tent[lr=0.01,norms=all]")
    frame = pd.concat([
        cells(("source", "tent", "tent[lr=0.01]"), ("resnet18",), corruptions=("fog", "snow")),
        cells(("source", *all_norms), ("cct",), corruptions=("fog", "snow")),
    ])  # fmt: skip
    frame.attrs[SET] = frozenset()
    (table,) = tables.tables(frame)
    assert [row.name for row in table.rows if row.measured] == ["Source", "TENT", "TENT [lr=0.01]"] * 2
    chosen = looks(table.archs(), lambda row: row.value(MEAN))
    one, other = ([chosen.of(row) for row in rows if row.measured] for rows in table.archs().values())
    assert one == other
    assert len(set(map(str, one))) == 3


def test_what_a_user_set_stays_in_the_name() -> None:
    frame = made(asked=frozenset({("tent", "norms")}))
    assert names(frame) == ["Source", "SAR", "TENT [norms=all]"]
    assert unset_settings.defaults(tables.tables(frame)[0].rows[:1]) == ""


def test_a_row_that_the_user_names_by_its_settings_has_this_name() -> None:
    frame = made()
    with rename(["tent[norms=all]=Ours"], frame):
        assert names(frame) == ["Source", "Ours", "SAR"]
    with rename(["tent=Ours"], frame):
        assert names(frame) == ["Source", "Ours", "SAR"]
        assert "norms=all (Ours)" in unset_settings.defaults(tables.tables(frame)[0].rows)


def test_rows_stand_by_the_names_shown_on_each_network() -> None:
    """In the labels of CCT, the setting that nobody set stands before the one that makes the variant."""
    labels = {
        "resnet18": ("source", "tent", "tent[lr=0.01]"),
        "cct": ("source", "tent[norms=all]", "tent[norms=all,lr=0.01]"),
    }
    frame = pd.concat([cells(of, (arch,), corruptions=("fog", "snow")) for arch, of in labels.items()])
    frame.attrs[SET] = frozenset({("tent", "lr")})
    assert names(frame) == 2 * ["Source", "TENT", "TENT [lr=0.01]"]


def test_names_stay_apart_and_files_that_do_not_know_change_nothing() -> None:
    several = ("source", "tent[norms=all]", "tent[norms=layer]")
    assert names(made(several)) == ["Source", "TENT [norms=all]", "TENT [norms=layer]"]
    assert names(made(asked=None)) == ["Source", "SAR [lr=0.001]", "TENT [norms=all]"]
    assert of_all([{SET: frozenset({("a", "b")})}, {}]) is None
    assert of_all([{SET: frozenset()}, {SET: frozenset({("a", "b")})}]) == {("a", "b")}


def test_rates_that_follow_the_batch_size_tell_rows_of_two_batch_sizes_apart() -> None:
    rates = {20: "tent[lr=0.1]", 30: "tent[lr=0.15]"}
    frame = pd.concat([
        cells((name,), ("cct",), corruptions=("fog", "snow"), batch_size=size) for size, name in rates.items()
    ])  # fmt: skip
    frame.attrs[SET] = frozenset()
    assert names(frame) == ["TENT [lr=0.1]", "TENT [lr=0.15]"]


def test_a_default_that_other_rows_of_the_method_do_not_have_stays_in_the_name() -> None:
    """Offline rows have the method's own batch size, and so its own rate."""
    frame = pd.concat([
        cells(("tent[norms=all,lr=0.0005]",), ("cct",), corruptions=("fog",), batch_size=20),
        cells(("tent[norms=all]",), ("cct",), corruptions=("fog",), batch_size=200, mode="offline"),
    ])  # fmt: skip
    frame.attrs[SET] = frozenset()
    (table,) = tables.tables(frame)
    assert names(frame) == ["TENT [lr=0.0005]", "TENT"]
    assert table.measured.count("Defaults of methods on CCT: norms=all (TENT).") == 1


def test_all_sweeps_of_a_folder_say_what_was_set(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(
        'methods = ["eata[fisher_images=9, lr=0.1]"]\nset = ["sar.lr=0.1,0.2"]\n'
    )
    (tmp_path / "sweep-2.toml").write_text(
        'methods = "cotta[rst=0.1],tent"\n[[include]]\nmethods = ["note[k=1]"]\n'
    )
    (tmp_path / "sweep-3.toml").write_text("not toml")
    sweep = json.loads('{"methods": ["tent[norms=all]"], "settings": []}')
    found = set_by_users(tmp_path, sweep)
    assert {
        ("tent", "norms"),
        ("eata", "fisher_images"),
        ("eata", "lr"),
        ("sar", "lr"),
        ("note", "k"),
    } <= found
    assert ("cotta", "rst") in found
    assert ("sar", "norms") not in found


def test_a_label_without_settings() -> None:
    assert without("tent[norms=all,lr=0.1] (offline)", ["norms=all"]) == "tent[lr=0.1] (offline)"
    assert without("tent[norms=all] (offline)", ["norms=all"]) == "tent (offline)"
    assert without("tent", ["norms=all"]) == "tent"
