"""The tables say what was measured: means over complete sets only, nothing unlike ever averaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.unit.made_cells import cells, spoil, where
from ttabench.corruptions.names import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttabench.errors import UserError
from ttabench_reports import naming, published, tables

NUMBERS = [*CORRUPTIONS, "mean"]


def line(frame: pd.DataFrame, **values: object) -> pd.Series:
    """The only line of a table with these values."""
    found = frame[where(frame, **values)]
    assert len(found) == 1, found
    return found.iloc[0]


def accuracies(frame: pd.DataFrame, **values: object) -> np.ndarray:
    return frame[where(frame, **values)].set_index("corruption")["accuracy"].reindex(CORRUPTIONS).to_numpy()


def test_every_corruption_has_a_name_of_three_letters_and_a_heading() -> None:
    every = [*CORRUPTIONS, *EXTRA_CORRUPTIONS]
    assert len({naming.short(c) for c in every}) == len(every)
    assert all(len(naming.short(c)) == 3 and naming.title(c) != c for c in every)


def test_the_shape_is_the_papers() -> None:
    table = tables.per_corruption(cells())
    assert [c for c in table.columns if c in NUMBERS] == NUMBERS
    rows = list(table[["arch", "method", "row"]].itertuples(index=False, name=None))
    assert rows == [
        (arch, *row)
        for arch in ("resnet18", "cct")
        for row in (
            ("source", "accuracy"),
            ("quantile", "accuracy"), ("quantile", "increase"),
            ("tent", "accuracy"), ("tent", "increase"),
        )
    ]  # fmt: skip


def test_numbers_are_the_cells_their_mean_and_their_distance_from_source() -> None:
    frame = cells()
    table = tables.per_corruption(frame)
    source, tent = (accuracies(frame, arch="cct", method=m) for m in ("source", "tent"))
    shown = line(table, arch="cct", method="tent", row="accuracy")[NUMBERS].to_numpy(float)
    rise = line(table, arch="cct", method="tent", row="increase")[NUMBERS].to_numpy(float)
    np.testing.assert_allclose(shown, [*tent, tent.mean()])
    np.testing.assert_allclose(rise, [*(tent - source), (tent - source).mean()], atol=1e-9)


def test_order_of_the_cells_changes_nothing() -> None:
    frame = cells(seeds=(0, 1, 2))
    shuffled = frame.sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(tables.per_corruption(frame), tables.per_corruption(shuffled))
    pd.testing.assert_frame_equal(tables.summary(frame), tables.summary(shuffled))


def test_seeds_are_averaged_and_their_spread_is_that_of_the_seeds_means() -> None:
    frame = cells(seeds=(0, 1, 2))
    table = tables.per_corruption(frame)
    tent = frame[where(frame, arch="cct", method="tent")]
    grid = tent.pivot(index="seed", columns="corruption", values="accuracy")[list(CORRUPTIONS)].to_numpy()
    shown = line(table, arch="cct", method="tent", row="accuracy")
    sd = line(table, arch="cct", method="tent", row="sd")
    np.testing.assert_allclose(shown[NUMBERS].to_numpy(float), [*grid.mean(0), grid.mean()])
    np.testing.assert_allclose(sd[NUMBERS].to_numpy(float), [*grid.std(0, ddof=1), grid.mean(1).std(ddof=1)])
    assert shown["seeds"] == 3
    assert "over 3 seeds" in tables.tables(frame)[0].caption
    assert "sd" not in set(tables.per_corruption(cells())["row"])


def test_a_method_that_does_not_apply_is_na_with_its_reason(tmp_path: Path) -> None:
    frame = spoil(cells(), "n/a", "no batch norm", arch="cct", method="tent")
    table = tables.per_corruption(frame)
    shown = line(table, arch="cct", method="tent")  # and no Increase row
    assert shown[NUMBERS].isna().all()
    assert shown["notes"] == "n/a: no batch norm"
    tables.write(frame, tmp_path)
    text = (tmp_path / "per_corruption.csv").read_text()
    assert ",".join(["n/a"] * 16) in text
    read = pd.read_csv(tmp_path / "per_corruption.csv")
    assert all(read[column].dtype == float for column in NUMBERS)


def test_one_failed_cell_leaves_no_mean_but_everything_else() -> None:
    frame = spoil(cells(), "failed", "the logits hold NaN", arch="cct", method="tent", corruption="fog")
    table = tables.per_corruption(frame)
    shown = line(table, arch="cct", method="tent", row="accuracy")
    rise = line(table, arch="cct", method="tent", row="increase")
    others = [c for c in CORRUPTIONS if c != "fog"]
    assert np.isnan(shown["mean"])
    assert np.isnan(rise["mean"])
    assert np.isnan(rise["fog"])
    assert shown[others].notna().all()
    assert rise[others].notna().all()
    assert "failed: the logits hold NaN (fog)" in shown["notes"]
    assert "14 of 15" in shown["notes"]
    assert line(table, arch="resnet18", method="tent", row="accuracy")[NUMBERS].notna().all()
    (built,) = tables.tables(frame)
    row = next(r for r in built.rows if (r.arch, r.method, r.kind) == ("cct", "tent", "method"))
    assert row.words == {"fog": "failed", "mean": "–"}


def test_a_cell_that_never_ran_leaves_no_mean() -> None:
    frame = cells()
    frame = frame[~where(frame, arch="cct", method="tent", corruption="snow")]
    shown = line(tables.per_corruption(frame), arch="cct", method="tent", row="accuracy")
    assert np.isnan(shown["mean"])
    assert "14 of 15" in shown["notes"]


def test_a_seed_that_failed_is_said_and_leaves_no_mean() -> None:
    whole = cells(seeds=(0, 1, 2))
    frame = spoil(whole, "failed", "out of memory", arch="cct", method="tent", corruption="fog", seed=1)
    table = tables.per_corruption(frame)
    shown = line(table, arch="cct", method="tent", row="accuracy")
    kept = whole[where(whole, arch="cct", method="tent", corruption="fog") & (whole["seed"] != 1)]
    assert shown["fog"] == pytest.approx(kept["accuracy"].mean())
    assert "seed 1 failed: out of memory" in shown["notes"]
    assert np.isnan(shown["mean"])
    assert np.isnan(line(table, arch="cct", method="tent", row="sd")["mean"])
    assert np.isnan(line(table, arch="cct", method="tent", row="increase")["fog"])


def test_a_seed_that_never_ran_is_said_too() -> None:
    frame = cells(seeds=(0, 1))
    frame = frame[~where(frame, arch="cct", method="tent", corruption="fog", seed=1)]
    shown = line(tables.per_corruption(frame), arch="cct", method="tent", row="accuracy")
    assert "not measured in every seed" in shown["notes"]
    assert np.isnan(shown["mean"])


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("fingerprint", "other-data", "data other-da"),
        ("limit", 100, "first 100 images"),
        ("order", "dirichlet(0.1)", "dirichlet(0.1) order"),
        ("reset", "continual", "continual"),
        ("contamination", "noise(0.2)", "contaminated by noise(0.2)"),
        ("precision", "bfloat16", "bfloat16"),
    ],
)
def test_another_stream_is_another_table_that_names_the_difference(
    column: str, value: object, said: str
) -> None:
    first, second = cells(), cells(**{column: value}, accuracy=lambda row: 10.0)
    built = tables.tables(pd.concat([first, second]))
    assert len(built) == 2
    assert sum(said in table.title for table in built) == 1
    assert len({table.title for table in built}) == 2
    means = tables.summary(pd.concat([first, second]))["accuracy"]
    np.testing.assert_allclose(
        sorted(means), sorted([*tables.summary(first)["accuracy"], *tables.summary(second)["accuracy"]])
    )


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("checkpoint", "other-weights", "weights other-we"),
        ("mode", "offline", "offline"),
        ("batch_size", 16, "batch size 16"),
        ("config", '{"lr":0.01,"steps":2}', "lr=0.01,steps=2"),
    ],
)
def test_another_setting_is_another_row_that_names_the_difference(
    column: str, value: object, said: str
) -> None:
    first = cells(methods=("source", "tent"), archs=("cct",))
    second = cells(methods=("tent",), archs=("cct",), accuracy=lambda row: 10.0, **{column: value})
    (built,) = tables.tables(pd.concat([first, second]))
    rows = {row.method: row.value("mean") for row in built.rows if row.kind == "method"}
    assert len(rows) == 2
    assert sum(said in label for label in rows) == 1
    assert sorted(rows.values())[0] == pytest.approx(10.0)
    assert sorted(rows.values())[1] == pytest.approx(first[first["method"] == "tent"]["accuracy"].mean())


def test_increase_is_over_the_source_of_the_same_weights() -> None:
    old = cells(
        methods=("source", "tent"), archs=("cct",), accuracy=lambda r: 50.0 + 5 * (r["base"] == "tent")
    )
    new = cells(
        methods=("source", "tent"), archs=("cct",), checkpoint="new",
        accuracy=lambda r: 80.0 + 2 * (r["base"] == "tent"),
    )  # fmt: skip
    table = tables.per_corruption(pd.concat([old, new]))
    rises = table[table["row"] == "increase"]["mean"].tolist()
    assert sorted(rises) == pytest.approx([2.0, 5.0])
    orphan = tables.per_corruption(pd.concat([old[old["base"] == "source"], new[new["base"] == "tent"]]))
    assert "increase" not in set(orphan["row"])


def test_offline_stale_and_alarm_are_marked() -> None:
    frame = cells()
    frame.loc[where(frame, arch="cct", method="tent"), "stale"] = True
    frame.loc[where(frame, arch="cct", method="tent", corruption="fog"), "alarm"] = "1 class is predicted"
    (built,) = tables.tables(frame)
    rows = {(row.arch, row.method): row for row in built.rows if row.measured}
    assert rows["cct", "quantile"].flags == "†"
    assert rows["cct", "tent"].flags == "‡"
    assert rows["cct", "source"].flags == ""
    assert built.notes.text(rows["cct", "tent"].letters["fog"]) == "alarm: 1 class is predicted"
    assert not np.isnan(rows["cct", "tent"].value("mean"))  # an alarm is a warning, the number stands
    assert [mark for mark, _ in built.legend(built.columns)] == ["†", "‡", "a"]


def test_extra_corruptions_have_a_mean_of_their_own() -> None:
    frame = cells(corruptions=(*CORRUPTIONS, *EXTRA_CORRUPTIONS))
    table = tables.per_corruption(frame)
    shown = line(table, arch="cct", method="tent", row="accuracy")
    own = frame[where(frame, arch="cct", method="tent")].set_index("corruption")["accuracy"]
    assert shown["mean"] == pytest.approx(own[list(CORRUPTIONS)].mean())
    assert shown["mean_extra"] == pytest.approx(own[list(EXTRA_CORRUPTIONS)].mean())
    only = tables.per_corruption(frame[frame["corruption"].isin(EXTRA_CORRUPTIONS)])
    mean = line(only, arch="cct", method="tent", row="accuracy")["mean"]
    assert mean == pytest.approx(own[list(EXTRA_CORRUPTIONS)].mean())


def test_a_mean_over_a_part_of_the_fifteen_says_so() -> None:
    (built,) = tables.tables(cells(corruptions=("fog", "snow")))
    assert built.main == ("snow", "fog")  # canonical order
    assert "these 2 of the 15" in built.caption
    assert "of the 15" not in tables.tables(cells())[0].caption


def test_the_caption_gives_the_protocol_in_full() -> None:
    (built,) = tables.tables(cells(methods=("source", "tent")))
    assert "online, batch size 200, iid order, reset per corruption, all images" in built.caption
    (mixed,) = tables.tables(cells())
    assert "source, tent — online, batch size 200" in mixed.caption
    assert "quantile — offline, batch size 128" in mixed.caption


def test_continual_runs_in_two_orders_are_not_averaged() -> None:
    first = cells(reset="continual", history="fog-5")
    second = cells(reset="continual", history="snow-5", written=1.8e9, accuracy=lambda row: 10.0)
    (built,) = tables.tables(pd.concat([second, first]))
    assert {row.value("mean") for row in built.rows if row.measured} == {10.0}
    assert "90 cells" in built.caption


def test_a_cell_that_failed_before_its_weights_existed_is_superseded() -> None:
    frame = cells()
    early = spoil(
        cells(checkpoint="", fingerprint="", written=1.6e9), "failed", "no network", dataset="digits-c"
    )
    pd.testing.assert_frame_equal(
        tables.per_corruption(pd.concat([early, frame])), tables.per_corruption(frame)
    )


def test_summary_and_drop_follow_from_the_cells() -> None:
    frame = cells(seeds=(0, 1))
    means = tables.summary(frame)
    expected = frame.groupby(["arch", "method"])["accuracy"].mean()
    for row in means.to_dict("records"):
        mean, source = expected[row["arch"], row["method"]], expected[row["arch"], "source"]
        assert row["accuracy"] == pytest.approx(mean)
        assert row["baseline"] == pytest.approx(source)
        if row["method"] == "source":
            assert np.isnan(row["increase"])
        else:
            assert row["increase"] == pytest.approx(mean - source)
    dropped = tables.drop(frame)
    np.testing.assert_allclose(dropped["clean"] - dropped["corrupted"], dropped["drop"])
    np.testing.assert_allclose(dropped["clean"], 98.0)


def test_baseline_stands_beside_a_method_that_has_no_number() -> None:
    frame = spoil(cells(), "n/a", "no batch norm", arch="cct", method="tent")
    row = line(tables.summary(frame), arch="cct", method="tent")
    assert row["baseline"] == pytest.approx(accuracies(frame, arch="cct", method="source").mean())
    assert np.isnan(row["increase"])


def test_the_papers_increase_rows_follow_from_its_accuracies(shared: Path) -> None:
    """Ours from the printed accuracies against the rows as printed; three of those are misprints."""
    known = published.load("quantile2026")
    key = ["dataset", "arch", "base", "corruption"]
    value = known.rename(columns={"method": "base"}).set_index(key)["accuracy"].to_dict()
    frame = cells(
        ("source", "quantile"), tuple(dict.fromkeys(known["arch"])), datasets=sorted(set(known["dataset"])),
        accuracy=lambda row: value[tuple(row[name] for name in key)],
    )  # fmt: skip
    table = tables.per_corruption(frame)
    printed = pd.read_csv(shared / "paper/appendix_increase_rows.csv")
    misprints = {("cifar10-c", "cvt", "motion_blur"), ("cifar10-c", "cvt", "zoom_blur"),
                 ("cifar100-c", "cvt", "shot_noise")}  # fmt: skip
    off = set()
    for row in printed.itertuples():
        rise = line(table, dataset=row.dataset, arch=row.arch, row="increase")[row.corruption]
        if abs(rise - row.printed_increase_points) > 0.151:  # three numbers rounded to one decimal
            off.add((row.dataset, row.arch, row.corruption))
    assert off == misprints


def test_published_rows_stand_beside_ours_and_say_so() -> None:
    frame = cells(datasets=("cifar10-c",))
    (plain,), (beside,) = tables.tables(frame), tables.tables(frame, published.load())
    added = [row for row in beside.rows if row.kind == "published"]
    ours = [(row.arch, row.method, row.kind) for row in beside.rows if row.kind != "published"]
    assert ours == [(row.arch, row.method, row.kind) for row in plain.rows]
    assert {row.method for row in added if row.arch == "cct"} == {
        "source (quantile2026)",
        "quantile (quantile2026)",
    }
    assert all(row.flags == "§" for row in added)
    assert next(r for r in added if r.arch == "resnet18" and "quantile (" in r.method).value("mean") == 79.4
    winners = {row for row, _ in beside.best()}
    assert not winners & {id(row) for row in added}


def test_best_is_the_maximum_of_an_architecture_with_ties_as_printed() -> None:
    values = {"source": 70.0, "tent": 90.04, "quantile": 90.01}
    (built,) = tables.tables(cells(accuracy=lambda row: values[row["base"]]))
    best = built.best()
    for row in built.rows:
        assert ((id(row), "mean") in best) == (row.measured and row.method != "source")


def test_cells_csv_is_sorted_rounded_and_read_back_the_same(tmp_path: Path) -> None:
    from ttabench_reports.compare import load

    frame = spoil(cells(seeds=(0, 1)), "n/a", "no batch norm", arch="cct", method="tent")
    path = tables.write_cells(frame.sample(frac=1, random_state=1), tmp_path / "cells.csv")
    assert path.read_bytes() == tables.write_cells(frame, tmp_path / "again.csv").read_bytes()
    assert path.read_text().splitlines()[0].split(",") == list(frame.columns)
    back = load(path).set_index("cell_id").loc[frame["cell_id"]]
    np.testing.assert_allclose(back["accuracy"], frame["accuracy"], atol=5e-5)
    for column in ("status", "reason", "config", "severity", "seed", "mode", "stale"):
        assert back[column].tolist() == frame[column].tolist(), column


def test_files_are_listed_and_written_whole(tmp_path: Path) -> None:
    paths = tables.write(cells(), tmp_path / "deep" / "report")
    assert [path.name for path in paths] == ["per_corruption.csv", "summary.csv", "drop.csv"]
    assert sorted(p.name for p in (tmp_path / "deep" / "report").iterdir()) == sorted(p.name for p in paths)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        tables.write(cells(), tmp_path / "file" / "report")


def test_nothing_and_something_else_are_refused() -> None:
    with pytest.raises(UserError, match="no cells"):
        tables.tables(cells().iloc[:0])
    with pytest.raises(UserError, match="no column method, corruption"):
        tables.tables(cells().drop(columns=["method", "corruption"]))
    with pytest.raises(UserError, match="expected percent"):
        tables.tables(cells(accuracy=lambda row: 120.0))


def test_cells_of_an_older_version_still_load() -> None:
    old = cells().drop(columns=["precision", "contamination", "history", "epochs", "alarm", "stale", "base"])
    pd.testing.assert_frame_equal(tables.per_corruption(old), tables.per_corruption(cells()))


def test_footnotes_never_run_out() -> None:
    frame = cells(severities=(5,))
    for n, (arch, method, corruption) in enumerate(
        (a, m, c) for a in ("resnet18", "cct") for m in ("tent", "quantile") for c in CORRUPTIONS
    ):
        frame = spoil(frame, "failed", f"reason {n}", arch=arch, method=method, corruption=corruption)
    (built,) = tables.tables(frame)
    assert len(built.notes.texts) == 26
    assert "cells.csv" in built.notes.texts[-1]
