"""Published numbers are copied faithfully, and stand beside ours only where the setting is the same."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.made_cells import cells, continual, spoil
from tests.unit.tex import compiled
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.errors import UserError
from ttabench.registry import view
from ttabench_reports import published
from ttabench_reports.formats.published import write
from ttabench_reports.published.audit import Interval, audit, checked
from ttabench_reports.published.catalog import accuracies, rows, rows_of
from ttabench_reports.tables import build as tables
from ttabench_reports.tables.table import LEGEND

auditing = import_module("ttabench_reports.published.audit")


# ---- the numbers


def test_every_row_is_whole_and_its_printed_mean_is_its_mean() -> None:
    known = published.load("quantile2026", "eata2022", "tent2021")
    assert tuple(known.columns) == published.COLUMNS
    for key, row in known.groupby(["publication", "dataset", "severity", "arch", "method"]):
        values = row.set_index("corruption")["accuracy"]
        if set(values.index) == {"mean"}:
            continue
        assert set(values.index) == {*CORRUPTIONS, "mean"}, key
        assert len(values) == 16, key
        assert values[list(CORRUPTIONS)].mean() == pytest.approx(values["mean"], abs=0.1), key


@each(
    ("ours", "theirs", "renamed"),
    [
        ("quantile2026", "appendix_tables", {"accuracy_percent": "accuracy"}),
        ("quantile2026_increase", "appendix_increase_rows", {"printed_increase_points": "increase"}),
        ("quantile2026_summary", "summary_table", {}),
        ("quantile2026_drop", "drop_table", {}),
        ("quantile2026_ablation", "ablation_table", {}),
        ("quantile2026_severity", "severity_figure", {}),
    ],
)
def test_the_papers_tables_are_copied_faithfully(
    shared: Path, ours: str, theirs: str, renamed: dict[str, str]
) -> None:
    original = pd.read_csv(shared / f"paper/{theirs}.csv", dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(pd.DataFrame(rows(ours)), original.rename(columns=renamed))


def test_rows_of_official_readmes_are_copied_faithfully(shared: Path) -> None:
    """methods.md prints them as ``- tent 24.8 23.5 … | **18.6**``."""
    text = (shared / "methods.md").read_text()
    actual = re.findall(r"^- (\w+)((?: \d+\.\d){15}) \| \**(\d+\.\d)", text, re.MULTILINE)
    assert len(actual) == 6
    ours = {
        (name, row["method"], row["corruption"]): row["error"]
        for name in ("tent2021", "eata2022")
        for row in rows(name)
        if row["arch"] in ("robustbench/Standard", "resnet50")
    }
    names = {
        "source": "source",
        "norm": "bn_stats",
        "tent": "tent",
        "Tent": "tent",
        "ETA": "eta",
        "EATA": "eata",
    }
    for name, values, mean in actual:
        publication = "tent2021" if name in ("source", "norm", "tent") else "eata2022"
        printed = dict(zip(CORRUPTIONS, values.split(), strict=True)) | {"mean": mean}
        assert printed == {c: ours[publication, names.get(name, name.lower()), c] for c in printed}, name


@each("name", published.publications())
def test_every_entry_fits_its_file(name: str) -> None:
    publication = published.catalog()[name]
    lines = rows_of(name)
    assert {"accuracy", "error", "mce"} & lines[0].keys()
    for column, keys, named in (
        ("arch", publication.archs, str),
        ("method", publication.here, str),
        ("method", publication.methods, publication.method),
        ("dataset", publication.datasets, str),
    ):
        assert set(keys) <= {named(line[column]) for line in lines}, column
    assert len(
        {tuple(line[c] for c in ("dataset", "severity", "arch", "method", "corruption")) for line in lines}
    ) == len(lines)
    values = accuracies(name)["accuracy"].dropna()
    assert values.between(0, 100).all()


def test_errors_become_accuracies() -> None:
    tent = published.load("tent2021").set_index(["arch", "method", "corruption"])["accuracy"]
    assert tent["robustbench/Standard", "tent", "mean"] == 81.4


def test_an_unknown_publication_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'tent2021'"):
        published.load("tent2012")


# ---- misprints


def test_the_misprints_are_found_and_no_others() -> None:
    """Each was read in the paper's source: these values are printed there."""
    found = audit()
    actual = {(f.table, f.row, f.column): (f.printed, f"{f.computed.middle:.1f}") for f in found}
    assert actual == {
        ("quantile2026, cifar10-c", "cvt increase", "motion_blur"): ("10.3", "13.2"),
        ("quantile2026, cifar10-c", "cvt increase", "zoom_blur"): ("7.2", "12.1"),
        ("quantile2026, cifar100-c", "cvt increase", "shot_noise"): ("21.6", "21.4"),
        ("quantile2026, drop table", "quantile-resnet18 on cifar10", "corrupted"): ("79.9", "79.4"),
        ("quantile2026, drop table", "quantile-resnet18 on cifar100", "drop"): ("23.1", "22.6"),
        (
            "quantile2026, severity figure", "cifar10-c resnet18 quantile", "gaussian_noise, severity 5"
        ): ("79.2", "76.9"),
        ("quantile2026, text", "cifar100-c resnet18 quantile", "mean"): ("49.5", "49.9"),
    }  # fmt: skip
    assert checked() > 290


def test_the_misprints_stand_in_the_papers_source(shared: Path) -> None:
    tex = (shared / "paper/paper.tex").read_text()
    appendix = tex[tex.index(r"\caption{CIFAR10C - Comparison") :]
    for row in ("+34.7 +32.6 +43.2 +18.9 +8.1 +10.3 +7.2 +7.5", "+19.0 +21.6 +20.2 +5.4"):
        cells_of_row = r"[^+\n]*\n[^+\n]*".join(re.escape(value) for value in row.split())
        assert re.search(cells_of_row, appendix), row
    assert r"Quantile-ResNet18 & 92.0\% & 79.9\% & 12.1\% & 72.5\% & 49.9\% & 23.1\%" in tex
    assert r"\node{88.4}; & \node{85.7}; & \node{82.2}; & \node{81.0}; & \node{79.2}" in tex
    assert r"$49.5\%$ vs.\ $60.5\%$" in tex


def test_an_interval_is_what_rounds_to_the_number() -> None:
    assert Interval.of("76.9") == Interval(Fraction("76.85"), Fraction("76.95"))
    assert Interval.of("+0.5") == Interval(Fraction("0.45"), Fraction("0.55"))
    assert Interval.of("12") == Interval(Fraction("11.5"), Fraction("12.5"))
    assert Interval.of("3.0").meets(Interval.of("3.1"))  # 3.05 may be either
    assert not Interval.of("3.0").meets(Interval.of("3.2"))


@each("seed", range(20))
def test_what_is_only_rounded_is_never_a_misprint(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A paper whose every number is right but for the rounding of each by itself."""
    rng = np.random.default_rng(seed)
    true: dict[tuple[str, ...], float] = {}
    table, increase = [], []
    for arch in ("resnet18", "cct"):
        for method in ("source", "quantile"):
            values = rng.uniform(0, 100, 15)
            for name, value in zip((*CORRUPTIONS, "mean"), (*values, values.mean()), strict=True):
                true[arch, method, name] = value
                where = {"dataset": "cifar10-c", "severity": "5", "arch": arch, "method": method}
                table.append({**where, "corruption": name, "accuracy": f"{value:.1f}"})
        for name in (*CORRUPTIONS, "mean"):
            points = true[arch, "quantile", name] - true[arch, "source", name]
            increase.append(
                {"dataset": "cifar10-c", "arch": arch, "corruption": name, "increase": f"{points:+.1f}"}
            )
    files = {"quantile2026": table, "quantile2026_increase": increase}
    monkeypatch.setattr(auditing, "rows", lambda name: files.get(name, []))
    assert checked() == 4 + 32
    assert audit() == []
    cell = next(row for row in increase if row["corruption"] == "fog")
    cell["increase"] = f"{float(cell['increase']) + 0.3:+.1f}"
    assert [one.column for one in audit()] == ["fog"]
    mean = next(row for row in table if row["corruption"] == "mean")
    mean["accuracy"] = f"{float(mean['accuracy']) + 0.3:.1f}"
    assert {one.column for one in audit()} >= {"fog", "mean"}


# ---- beside ours


def result(**changed: Any) -> dict[str, Any]:
    """TENT on the model and in the setting of its README."""
    return {
        "dataset": "cifar10-c", "severity": 5, "arch": "robustbench/Standard", "method": "tent",
        "base": "tent", "config": '{"lr": 0.001}', "corruption": "mean", "accuracy": 81.0, "mode": "online",
        "reset": "per_corruption", "order": "iid", "batch_size": 200, "epochs": 0, "precision": "float32",
        "contamination": "", "held_out": 0.0, "limit": 0, "n_images": 10_000, **changed,
    }  # fmt: skip


def one(**changed: Any) -> dict[str, Any]:
    (row,) = published.beside(pd.DataFrame([result(**changed)])).to_dict("records")
    return {str(key): value for key, value in row.items()}


def test_the_same_setting_stands_beside_ours() -> None:
    row = one()
    assert (row["publication"], row["published"], row["why_not"]) == ("tent2021", 81.4, "")
    assert row["difference"] == pytest.approx(-0.4)
    row = one(corruption="gaussian_noise", accuracy=75.2)
    assert (row["published"], row["difference"]) == pytest.approx((75.2, 0.0))


@each(
    ("changed", "why_not"),
    [
        ({"batch_size": 64}, "published for batch size 200, ours is 64"),
        ({"mode": "offline"}, "published for mode online, ours is offline"),
        ({"order": "dirichlet(0.1)"}, "published for order iid, ours is dirichlet(0.1)"),
        ({"n_images": 1000}, "published on 10,000 images, ours on 1,000"),
        ({"contamination": "noise(0.2)"}, "ours is contaminated by noise(0.2), which the publication"),
        ({"held_out": 0.5}, "ours holds out 0.5, which the publication does not state"),
        ({"precision": "tf32"}, "ours is in tf32, which the publication does not state"),
        ({"stream": "gradual"}, "ours has stream gradual, which the publication does not state"),
        ({"pace": 1.0}, "ours has pace 1.0, which the publication does not state"),
        ({"method": "tent[lr=0.01]", "config": '{"lr": 0.01}'}, "ours has lr=0.01, which the publication"),
        ({"dataset": "digits-c"}, "nothing is published on digits-c"),
        ({"severity": 3}, "nothing is published of tent on cifar10-c at severity 3"),
        ({"base": "sotta", "method": "sotta", "dataset": "tinyimagenet-c"}, "nothing is published of sotta"),
        ({"arch": "cvt"}, "ours is cvt"),
        ({"arch": "robustbench/Hendrycks2020AugMix_WRN", "corruption": "fog"}, "only the mean is published"),
        ({"dataset": "imagenet-c", "arch": "robustbench/Standard_R50", "batch_size": 64, "limit": 5000,
          "n_images": 5000, "base": "lame", "method": "lame"},
         "ours has the first 5,000 images; the publication does not state how many"),
        ({"dataset": "imagenet-c", "arch": "robustbench/Standard_R50", "batch_size": 64, "limit": 5000,
          "n_images": 5000, "base": "eta", "method": "eta"}, "published on 50,000 images, ours on 5,000"),
        ({"dataset": "imagenet-c", "arch": "robustbench/Standard_R50", "batch_size": 64, "limit": 5000,
          "n_images": 5000, "reset": "continual"}, "images are RobustBench's list, ours the first 5,000"),
    ],
)  # fmt: skip
def test_another_setting_says_why_not(changed: dict[str, Any], why_not: str) -> None:
    row = one(**changed)
    assert why_not in row["why_not"]
    assert np.isnan(row["published"])
    assert np.isnan(row["difference"])
    assert row["remark"] == ""


def test_continual_results_stand_beside_continual_ones() -> None:
    row = one(reset="continual", method="tent[norms=all]", config='{"norms": "all"}')
    assert (row["publication"], row["published"], row["why_not"]) == ("doebler2023", 80.0, "")
    assert one(reset="continual")["publication"] == "doebler2023"


def test_source_is_the_same_whatever_the_stream() -> None:
    row = one(
        base="source", method="source", config="{}", batch_size=1, reset="continual", order="dirichlet(1)"
    )
    assert (row["published"], row["why_not"]) == (56.5, "")


def test_other_weights_are_a_remark() -> None:
    row = one(
        arch="resnet18", base="quantile_paper", method="quantile_paper[minibatch=512]", mode="offline",
        batch_size=512, config="{}",
    )  # fmt: skip
    assert (row["publication"], row["published"]) == ("quantile2026", 79.4)
    assert row["remark"].startswith("weights: trained by the authors")
    assert "learning rate, epochs and weight of the regulariser are not stated" in row["remark"]


def paper(minibatch: int, **changed: Any) -> dict[str, Any]:
    """The paper's method as its sweep stores it; a setting at its default is not in the label."""
    config = {"minibatch": minibatch, "quantiles_per_class": changed.pop("points", 10)}
    shown = [f"minibatch={minibatch}"] if minibatch != 128 else []
    shown += ["quantiles_per_class=20"] if config["quantiles_per_class"] == 20 else []
    label = f"quantile_paper[{','.join(shown)}]" if shown else "quantile_paper"
    return result(
        base="quantile_paper", method=label, config=json.dumps(config), mode="offline", batch_size=512,
        **changed,
    )  # fmt: skip


def test_all_180_numbers_of_the_papers_tables_stand_beside_512_images_an_update_and_none_beside_128() -> None:
    table = [row for row in rows("quantile2026") if row["method"] == "quantile"]
    table = [row for row in table if row["corruption"] != "mean"]
    assert len(table) == 180
    for minibatch, beside_ours in ((512, 180), (128, 0)):
        ours = pd.DataFrame([
            paper(minibatch, **{name: row[name] for name in ("dataset", "arch", "corruption")}, accuracy=0.0)
            for row in table
            # Beside 128 none stands, whatever the corruption: one of each table is enough.
            if minibatch == 512
            or (row["corruption"] == "fog" and (row["dataset"], row["arch"]) != ("cifar100-c", "cct"))
        ])  # fmt: skip
        assert published.beside(ours)["published"].notna().sum() == beside_ours
    here = one(**paper(128, arch="resnet18"))
    assert here["why_not"] == "published with minibatch=512, ours has 128"


@each(
    ("minibatch", "points", "accuracy"),
    [(128, 10, 65.5), (256, 10, 65.8), (128, 20, 66.8), (256, 20, 65.6), (512, 10, 65.0)],
)
def test_each_row_of_the_ablation_stands_beside_its_own(minibatch: int, points: int, accuracy: float) -> None:
    own = paper(minibatch, points=points, dataset="cifar100-c", arch="official/cct_7_3x1_32_c100")
    frame = published.beside(pd.DataFrame([own]), every=True)
    assert frame[["publication", "published"]].to_numpy().tolist() == [["quantile2026", accuracy]]
    # Without the stored settings, a label that does not say all that is published is matched by none.
    unsaid = minibatch == 128 or (points == 10 and minibatch < 512)
    without_config = published.beside(pd.DataFrame([{**own, "config": ""}]))["published"]
    assert without_config.isna().all() if unsaid else [*without_config] == [accuracy]


@pytest.mark.parametrize(("severity", "numbers"), [(1, (80.7, 88.4)), (4, (43.6, 81.0))])
def test_the_severities_of_figure_1_are_found(severity: int, numbers: tuple[float, float]) -> None:
    place = {"severity": severity, "arch": "resnet18", "corruption": "gaussian_noise"}
    frame = pd.DataFrame([result(base="source", method="source", **place), paper(512, **place)])
    assert tuple(published.beside(frame)["published"]) == numbers
    assert "quantile2026_severity" not in set(published.load()["publication"])  # it is no row of a table


def test_the_quantile_papers_numbers_are_of_its_own_form() -> None:
    row = one(arch="resnet18", base="quantile", method="quantile", mode="offline", batch_size=512)
    assert (row["publication"], row["why_not"]) == ("", "nothing is published of quantile on cifar10-c")
    known = published.load("quantile2026")
    assert "quantile_paper[minibatch=128,quantiles_per_class=10]" in set(known["method"])
    assert not any(re.match(r"quantile\b", label) for label in known["method"])
    assert {row["method"] for row in rows("quantile2026")} >= {"quantile"}  # the file is as printed


def test_every_publication_that_has_the_number_can_be_asked_for() -> None:
    actual = published.beside(pd.DataFrame([result()]), every=True)
    assert actual["publication"].tolist() == ["tent2021", "doebler2023"]
    assert actual["why_not"].tolist()[0] == ""
    assert "published for reset continual, ours is per corruption" in actual["why_not"].tolist()[1]
    assert actual.index.tolist() == [0, 0]


def test_a_frame_without_a_protocol_is_matched_by_what_it_has() -> None:
    bare = pd.DataFrame([result()])[["dataset", "severity", "arch", "method", "corruption", "accuracy"]]
    assert published.beside(bare)["published"].tolist() == [81.4]
    with pytest.raises(UserError, match="no column accuracy"):
        published.beside(bare.drop(columns="accuracy"))


def test_the_report_format(tmp_path: Path) -> None:
    frame = cells(
        ("source", "tent"), ("robustbench/Standard", "cvt_2"), datasets=("cifar10-c",), n_images=10_000,
        accuracy=lambda row: 80.0, seeds=(0, 1),
    )  # fmt: skip
    paths = write(frame, tmp_path)
    names = ["published.csv", "published.md", "published_means.tex", "published.tex"]
    assert [path.name for path in paths] == [*names, "published_means_column.tex", "published_column.tex"]
    table = pd.read_csv(paths[0])
    mean = table[(table["method"] == "tent") & (table["corruption"] == "mean")].set_index("publication")
    assert mean.loc["tent2021", "published"] == 81.4
    assert mean.loc["tent2021", "difference"] == pytest.approx(-1.4)
    assert mean.loc["tent2021", "seeds"] == 2
    markdown = paths[1].read_text()
    assert "| CIFAR10-C | robustbench/Standard | TENT | 80.0 | 81.4 | -1.4 | tent2021 |" in markdown
    assert "ours is cvt\\_2" in markdown
    assert r"robustbench/Standard & TENT & 80.0 & 81.4\textsuperscript" in paths[2].read_text()
    for document in ("published", "published_column"):
        assert "tent2021" in compiled(tmp_path, document)


def test_names_are_no_markup_in_markdown(tmp_path: Path) -> None:
    frame = cells(("source", "tent[<script>]"), ("a|b",), datasets=("<img src=x>",))
    (text,) = (path.read_text() for path in write(frame, tmp_path) if path.suffix == ".md")
    assert "nothing is published on &lt;img src=x&gt;" in text
    assert not re.search(r"<img|<script|a\|b(?<!a\\\|b)", text)


def test_numbers_from_another_article_are_not_of_the_publications_networks(tmp_path: Path) -> None:
    """SoTTA's in the quantile-matching paper are those of SoTTA's own article."""
    setting = {"datasets": ("cifar10-c",), "n_images": 10_000, "accuracy": lambda row: 80.0}
    frame = cells(("source", "sotta"), ("resnet18",), batch_size=64, **setting)
    write(frame, tmp_path)
    table = pd.read_csv(tmp_path / "published.csv")
    means = table[(table["corruption"] == "mean") & (table["publication"] == "quantile2026")]
    remarks = means.set_index("method")["remark"]
    assert remarks["source"].startswith("weights: trained by the authors")
    assert remarks["sotta"] == "weights: those of SoTTA's own article, where the numbers are from"
    notes = [
        line for line in (tmp_path / "published.md").read_text().splitlines() if "- `quantile2026`" in line
    ]
    assert {("trained by" in line, "SoTTA's own article" in line) for line in notes} == {
        (True, False), (False, True),
    }  # fmt: skip
    latex = (tmp_path / "published_means.tex").read_text()
    number, note = (
        r"SoTTA & 80\.0 & 82\.2\\textsuperscript\{(\w)\}",
        r"\{\1\}\\,quantile2026: [^{]*SoTTA's own article",
    )
    assert re.search(f"{number}.*{note}", latex, re.DOTALL)


def test_without_a_published_number_there_is_no_latex(tmp_path: Path) -> None:
    paths = write(cells(), tmp_path)
    assert [path.suffix for path in paths] == [".csv", ".md"]


def test_a_mean_is_over_fifteen_or_not_there(tmp_path: Path) -> None:
    frame = cells(("tent",), ("robustbench/Standard",), datasets=("cifar10-c",), n_images=10_000)
    table = pd.read_csv(write(frame[frame["corruption"] != "fog"], tmp_path)[0])
    assert "mean" not in set(table["corruption"])
    assert len(table[table["publication"] == "tent2021"]) == 14


def standard(*methods: str, **given: Any) -> pd.DataFrame:
    """Cells in the setting of TENT's README."""
    return cells(methods, ("robustbench/Standard",), datasets=("cifar10-c",), **{"n_images": 10_000, **given})


def test_a_stale_result_beside_a_published_one_is_marked(tmp_path: Path) -> None:
    frame = standard("tent")
    frame["stale"] = frame["corruption"] == "fog"
    write(frame, tmp_path)
    table = pd.read_csv(tmp_path / "published.csv")
    assert set(table.loc[table["stale"], "corruption"]) == {"mean", "fog"}
    page, latex = ((tmp_path / name).read_text() for name in ("published.md", "published_means.tex"))
    assert "| TENT‡ |" in page
    assert f"‡ {LEGEND['‡']}." in page
    assert r"TENT\textsuperscript{\textdaggerdbl{}}" in latex
    assert LEGEND["‡"] in latex
    write(frame.assign(stale=False), tmp_path)
    assert "‡" not in (tmp_path / "published.md").read_text()


def numbers_of(frame: pd.DataFrame, to: Path, corruption: str = "mean") -> pd.DataFrame:
    table = pd.read_csv(write(frame, to)[0])
    return table[table["corruption"] == corruption].drop_duplicates(["method", "fingerprint", "baseline"])


def test_numbers_are_those_of_the_tables(tmp_path: Path) -> None:
    """Of a continual cell in two orders the latest, and one Source for both modes."""
    first = continual(standard("tent", accuracy=lambda row: 70.0), CORRUPTIONS)
    second = continual(standard("tent", written=1.8e9, accuracy=lambda row: 80.0), CORRUPTIONS[::-1])
    sources = [standard("source", reset="continual", mode=mode) for mode in ("online", "offline")]
    frame = pd.concat([second, first, *sources], ignore_index=True)
    (table,) = tables.tables(frame)
    expected = {row.method: row.value("mean") for row in table.rows if row.measured}
    result = numbers_of(frame, tmp_path).set_index("method")
    assert result["accuracy"].to_dict() == pytest.approx(expected, abs=1e-4)
    assert expected["tent"] == 80.0
    assert set(result["seeds"]) == {1}
    assert set(pd.read_csv(tmp_path / "published.csv")["mode"]) == {"online"}


@pytest.mark.parametrize("name", ["fingerprint", "baseline"])
def test_two_versions_of_the_data_are_not_averaged(tmp_path: Path, name: str) -> None:
    two = [standard("tent", accuracy=lambda row, n=n: n, **{name: f"v@{n}"}) for n in (70.0, 80.0)]
    result = numbers_of(pd.concat(two, ignore_index=True), tmp_path)
    assert result.set_index(name)["accuracy"].to_dict() == {"v@70.0": 70.0, "v@80.0": 80.0}


def test_a_seed_that_failed_leaves_no_mean(tmp_path: Path) -> None:
    frame = spoil(standard("tent", seeds=(0, 1)), "failed", "no memory", corruption="fog", seed=1)
    frame.loc[frame["status"] == "failed", "n_images"] = 0  # as it is stored
    assert numbers_of(frame, tmp_path).empty
    assert numbers_of(frame, tmp_path, "fog").empty
    assert numbers_of(frame, tmp_path, "snow")["seeds"].tolist() == [2]


def test_a_corruption_with_fewer_seeds_leaves_no_mean_over_the_fifteen(tmp_path: Path) -> None:
    frame = standard("tent", seeds=(0, 1))
    frame = frame[(frame["corruption"] != "fog") | (frame["seed"] == 0)]
    assert numbers_of(frame, tmp_path).empty
    assert numbers_of(frame, tmp_path, "fog")["seeds"].tolist() == [1]
    (row,) = tables.tables(frame)[0].rows
    assert pd.isna(row.value("mean"))  # as in the tables


def test_corruptions_with_different_seeds_leave_no_mean_over_the_fifteen(tmp_path: Path) -> None:
    """A slice of a sweep may hold one seed of each corruption, and not the same one."""
    frame = standard("tent", seeds=(0, 1))
    frame = frame[frame["seed"] == frame["corruption"].isin(("fog", "snow")).astype(int)]
    (row,) = tables.tables(frame)[0].rows
    assert pd.isna(row.value("mean"))
    assert numbers_of(frame, tmp_path).empty
    assert numbers_of(frame, tmp_path, "fog")["seeds"].tolist() == [1]


def test_the_command(ttabench: Run, tmp_path: Path) -> None:
    refused = ttabench("report", "--audit-published", "--format", "csv")
    assert (refused.code, refused.out) == (2, "")
    assert "--format is for a report; name a results folder too" in refused.err
    output = ttabench("report", "--audit-published")
    assert output.code == 0
    assert "printed 10.3, but 73.4 − 60.2 is 13.2" in output.out
    assert "7 misprints among" in output.out
    assert ttabench("report").code == 2


def test_the_view_is_registered() -> None:
    assert view("published") is published
