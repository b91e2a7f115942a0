"""The page of the paper: our numbers beside the right ones, and a reason for each that is missing."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib import colors, image

from tests.cases import each
from tests.unit import tex
from tests.unit.made_cells import cells, spoil
from ttabench_reports.cells.frames import checked
from ttabench_reports.formats.latex.pages import pages_of
from ttabench_reports.paper import sheets, theirs, write
from ttabench_reports.paper.curve import COLOURS, severity_curve
from ttabench_reports.paper.ours import Ours
from ttabench_reports.paper.setting import sentences
from ttabench_reports.paper.verdict import verdict
from ttabench_reports.sheets.sheet import Sheet
from ttabench_reports.words.notes import OTHER

OWN = "cifar10-own-c-local"
TRAINED = "the hash of weights that were trained here"


def measured(
    method: str = "quantile_paper", arch: str = "resnet18", dataset: str = "cifar10-c",
    accuracy: float = 64.5, minibatch: int = 512, points: int = 10, **more: Any,
) -> pd.DataFrame:  # fmt: skip
    """A row of a method; of the paper's method with its settings."""
    settings = {"minibatch": minibatch, "quantiles_per_class": points, "epochs": 10}
    more = {"mode": "offline" if method.startswith("quantile") else "online"} | more
    return checked(cells(
        (method,), (arch,), datasets=(dataset,), accuracy=lambda row: accuracy, config=json.dumps(settings),
        n_images=10_000, processor="NVIDIA H200", device_mb=3858.0, host_mb=207.0, **more,
    ))  # fmt: skip


def ours(*frames: pd.DataFrame, **more: Any) -> Ours:
    frame = pd.concat(frames, ignore_index=True) if frames else None
    return Ours(frame, **more)


def lines(sheet: Sheet) -> list[list[str]]:
    return [[cell.text for cell in line] for group in sheet.groups for line in group.lines]


def test_table_1_has_ours_the_papers_and_the_difference() -> None:
    made = ours(
        measured("source", accuracy=53.9), measured(), measured(minibatch=128, accuracy=10.0),
        missing={"cifar100-c": "cifar100-c is not here"},
    )  # fmt: skip
    sheet = sheets.table1(made)
    assert "of another article: 82.2 on CIFAR10-C, 60.5 on CIFAR100-C." in sheet.footer
    assert lines(sheet)[0] == [
        "ResNet18", "53.9", "54.4", "−0.5", "64.5", "79.4", "−14.9", "+10.6", "+25.0", "−14.4",
    ]  # fmt: skip
    assert len(lines(sheet)) == 12
    assert set(sheet.notes.values()) == {"not measured", "cifar100-c is not here"}
    for line in (line for group in sheet.groups for line in group.lines):
        assert all(cell.marks for cell in line if cell.text == "–")  # each that is missing has its reason


def test_table_2_has_one_row_of_cct_whatever_its_weights_are_called() -> None:
    made = ours(
        measured(arch="official/cct_7_3x1_32", accuracy=88.0, clean_accuracy=96.5),
        measured(arch="official/cct_7_3x1_32_c100", dataset="cifar100-c", accuracy=64.0, clean_accuracy=80.9),
    )  # fmt: skip
    found = [line for line in lines(sheets.table2(made)) if "CCT" in line[0]]
    assert found == [
        ["Quantile (paper) on CCT", "96.5", "96.2", "+0.3", "88.0", "88.8", "−0.8", "8.5", "7.4", "+1.1"],
        ["Quantile (paper) on CCT", "80.9", "80.9", "+0.0", "64.0", "65.0", "−1.0", "16.9", "15.9", "+1.0"],
    ]


def test_each_number_that_the_paper_took_from_another_article_has_a_note() -> None:
    made = ours(measured("sotta", accuracy=80.0, clean_accuracy=92.0))
    said = "the paper's number is from SoTTA's own article, on another ResNet18"
    places = {"paper_table2": 2 * 3, "paper_methods": 2, "paper_appendix_cifar10-c": 1}
    for sheet in (sheets.table2(made), sheets.others(made), next(sheets.appendix(made))):
        (letter,) = (letter for letter, text in sheet.notes.items() if text == said)
        marked = [cell.text for group in sheet.groups for line in group.lines for cell in line
                  if cell.marks == letter]  # fmt: skip
        assert len(marked) == places[sheet.name], sheet.name
        assert set(marked) <= {"paper", "95.2", "78.6", "82.2", "60.5", "13.0", "18.1"}
    assert said not in sheets.table1(made).notes.values()


def test_table_3_has_the_rows_of_the_paper_and_no_others() -> None:
    frames = [
        measured(arch="cct", dataset="cifar100-c", accuracy=60.0 + n, minibatch=batch, points=points)
        for n, (batch, points) in enumerate([(128, 10), (256, 10), (128, 20), (256, 20), (512, 10)])
    ]
    for frame, name in zip(frames, range(5), strict=True):
        frame["cell_id"] = [f"{name}-{n}" for n in range(len(frame))]
    assert lines(sheets.table3(ours(*frames))) == [
        ["128", "10", "60.0", "65.5", "−5.5"], ["256", "10", "61.0", "65.8", "−4.8"],
        ["128", "20", "62.0", "66.8", "−4.8"], ["256", "20", "63.0", "65.6", "−2.6"],
        ["512", "10", "64.0", "65.0", "−1.0"],
    ]  # fmt: skip


def test_table_3_says_that_its_rows_have_other_numbers_of_updates() -> None:
    """At equal epochs, 128 images per update are four times the updates of 512."""
    cct = {"arch": "cct", "dataset": "cifar100-c"}
    rows = [measured(**cct, minibatch=batch, cell_id=f"{batch}") for batch in (128, 512)]
    footer = sheets.table3(ours(*rows)).footer
    assert footer.startswith("Ours: 10 epochs in each row, so rows with fewer images per update have more")
    one = measured(**cct, minibatch=256, epochs=1, cell_id="one")
    assert sheets.table3(ours(one)).footer.startswith("Ours: 1 epoch in each row")
    assert sheets.table3(ours(*rows, one)).footer == sheets.table3(ours()).footer == ""


def test_the_severities_of_figure_1_are_found() -> None:
    made = ours(
        *(measured(severities=(s,), accuracy=80.0 + s, corruptions=("gaussian_noise",)) for s in (1, 4))
    )
    assert [line[4:] for line in lines(sheets.severity(made))] == [
        ["81.0", "88.4", "−7.4"], ["–", "85.7", ""], ["–", "82.2", ""], ["84.0", "81.0", "+3.0"],
        ["–", "79.2", ""],
    ]  # fmt: skip


def test_what_failed_or_is_incomplete_says_so() -> None:
    failed = spoil(measured(), "failed", "out of memory", arch="resnet18")
    assert "failed: out of memory" in sheets.table1(ours(failed)).notes.values()
    part = measured(corruptions=("fog", "snow"))
    assert "2 of 15 corruptions" in sheets.table1(ours(part)).notes.values()
    assert ours(part, partial=True).find("cifar10-c", "resnet18", "quantile_paper").value("mean") == 64.5


def test_no_two_reasons_share_a_letter_however_many_there_are() -> None:
    methods = ("source", *sheets.OTHERS, "quantile_paper")
    failed = [
        spoil(measured(method, arch), "failed", f"{method} {arch}", arch=arch)
        for method in methods for arch in theirs.ARCHS
    ]  # fmt: skip
    sheet = sheets.others(ours(*failed))
    for method, line in zip(methods, sheet.groups[0].lines, strict=True):
        for arch, cell in zip(theirs.ARCHS, line[1:], strict=False):
            assert sheet.notes[cell.marks] in (f"failed: {method} {arch}", OTHER)


def test_time_is_per_pass_and_beside_what_the_paper_says() -> None:
    row = measured(dataset="cifar100-c", corruptions=("gaussian_noise",), seconds=21.0, mode="offline")
    row["config"] = json.dumps({"bank_on_cpu": True, "epochs": 10, "minibatch": 128})
    table = {line[0]: line for line in lines(sheets.time(ours(row)))}
    assert table["Quantile (paper), bank in host memory"][1:5] == ["10,000", "10,000", "2.10", "2.03"]
    assert table["Quantile (paper), bank in host memory"][5:7] == ["3,858", "1,429"]
    assert table["Quantile without the decorruptor"][1:7] == ["–", "10,000", "–", "1.44", "–", "765"]
    assert table["The index alone"][1:7] == ["–", "128", "–", "0.002", "–", "570"]
    caption = sheets.time(ours(row)).caption  # TENT and CoTTA have batches of their own
    assert caption.endswith("Gaussian noise. Quantile matching has at most 128 images per update.")
    bare = row.assign(
        base="quantile_strict", seconds=9.0, device_mb=float("nan"),
        config=json.dumps({"decorruptor": "offset", "keep": "lowest", "epochs": 10}),
    )  # fmt: skip
    other = bare.assign(config=json.dumps({"decorruptor": "offset", "keep": "last"}), seconds=90.0)
    sheet = sheets.time(ours(row, bare, other))
    without = next(line for line in sheet.groups[0].lines if line[0].text.endswith("without the decorruptor"))
    assert [cell.text for cell in without[3:7]] == ["0.90", "1.44", "–", "765"]
    assert "measured on a processor" in sheet.notes[without[5].marks]


def test_a_seed_on_a_busy_machine_makes_no_epoch_longer() -> None:
    row = measured(
        "tent", dataset="cifar100-c", corruptions=("gaussian_noise",), seeds=(0, 1, 2), seconds=2.0
    )
    row.loc[row["seed"] == 2, "seconds"] = 900.0
    assert {line[0]: line for line in lines(sheets.time(ours(row)))}["TENT"][3] == "2.00"


def test_the_table_of_times_says_of_how_many_images_they_are() -> None:
    """A rehearsal has fewer than the paper, and so may one row of a folder."""
    small, whole = (
        measured(name, dataset="cifar100-c", corruptions=("gaussian_noise",)) for name in ("tent", "cotta")
    )
    sheet = sheets.time(ours(small.assign(n_images=60), whole))
    assert sheet.over[1] == ("Images", 2)
    images = {line[0]: line[1:3] for line in lines(sheet)}
    assert images["TENT"] == ["60", "–"]
    assert images["CoTTA, a mean teacher"] == ["10,000", "–"]
    assert images["Quantile (paper), bank in host memory"] == ["–", "10,000"]


def test_one_dataset_in_place_of_several_is_told_once() -> None:
    digits = dict.fromkeys(theirs.DATASETS, "digits-c")
    frame = measured("source", dataset="digits-c", accuracy=53.9, clean_accuracy=93.7)
    said = sentences(ours(frame, stands=digits), {})
    assert "Images: Digits-C takes the place of CIFAR10-C, CIFAR100-C and TinyImageNet-C. " in said[0]
    assert "not the published files" in said[0]
    assert (
        "other images and classes" in sentences(ours(frame, stands=digits), {"other_images": ["digits-c"]})[0]
    )
    assert not any(line.startswith("Images: ") for line in said[1:])
    clean = next(line for line in said if line.startswith("Accuracy (%) on clean images"))
    assert "CIFAR10-C: ResNet18 93.7 (paper: 92.0); CIFAR100-C: ResNet18 93.7 (paper: 72.5)" in clean


def test_precision_and_images_are_told_of_every_row_that_is_shown() -> None:
    """Also before the paper's method is measured, and where time and memory alone are."""
    fast: dict[str, Any] = {"dataset": "cifar100-c", "corruptions": ("gaussian_noise",), "precision": "tf32"}
    made, timed = ours(measured("source").assign(n_images=1_000)), ours(measured("tent", **fast))
    sheets.every(made, timed)
    said = sentences(made, {}, timed)
    assert "Images per corruption: 1,000; the paper has 10,000." in said
    assert [line for line in said if line.startswith("Precision")] == [
        "Precision of time and memory: ResNet18 in tf32; the paper does not state its own."
    ]


def test_networks_are_trained_here_only_where_they_are() -> None:
    def networks(made: Ours) -> list[str]:
        said = sentences(made, {"recipes": {TRAINED: "cross-entropy"}})
        return [line.removeprefix("Networks: ") for line in said if line.startswith("Networks: ")]

    official = [
        measured("source", "official/cct_7"), measured("source", "official/cct_7", dataset="cifar100-c")
    ]  # fmt: skip
    published = (
        "CCT on CIFAR10-C and CIFAR100-C: the published weights of its authors, as in the paper on CIFAR."
    )
    assert networks(ours(*official)) == [published]
    trained = [measured(arch=arch, checkpoint=TRAINED) for arch in ("resnet18", "vit_lite")]
    both = networks(ours(*official, *trained))
    assert both[0] == published
    assert both[1] == "ResNet18 and ViT-Lite on CIFAR10-C: trained here with the recipe cross-entropy."
    assert both[2].startswith("the paper trained its own. Training")
    alone = networks(ours(measured("source", "cct")))
    assert alone[0] == "CCT on CIFAR10-C: trained here."
    assert alone[1].startswith("the paper trained its own, and took CCT on CIFAR from its authors.")
    other = ours(measured("source", "timm/x"), nets={"cifar10-c": {"resnet18": ["timm/x"]}})
    assert networks(other) == [
        "timm/x takes the place of ResNet18 on CIFAR10-C.",
        "ResNet18 on CIFAR10-C: weights that others trained, which are not the paper's.",
    ]
    own = ours(measured("source", "my:net", checkpoint=TRAINED), nets={"cifar10-c": {"resnet18": ["my:net"]}})
    assert networks(own)[1] == "ResNet18 on CIFAR10-C: trained here with the recipe cross-entropy."
    assert networks(ours()) == []
    assert networks(ours(spoil(measured(), "failed", "out of memory", arch="resnet18"))) == []


def test_the_account_of_networks_is_of_the_shown_rows_and_no_history() -> None:
    """A folder after two runs: other recipes on two datasets, and another network in the second run."""
    frames = [
        measured("source", checkpoint="a"), measured("source", checkpoint="b", written=2e9),
        measured("source", dataset="cifar100-c", checkpoint="c"),
    ]  # fmt: skip
    facts = {
        "recipes": {"a": "fast", "b": "paper", "c": "cross-entropy"},
        "notes": {"a": "a is trained here", "b": "b is trained here: its weights cannot be had", "c": ""},
    }
    said = sentences(ours(*frames), facts)
    assert "Networks: ResNet18 on CIFAR10-C: trained here with the recipe paper." in said
    assert "Networks: ResNet18 on CIFAR100-C: trained here with the recipe cross-entropy." in said
    assert "b is trained here: its weights cannot be had." in said
    assert not any("fast" in line or "a is trained" in line for line in said)

    alone = ours(measured("source", dataset="cifar100-c", checkpoint="a", corruptions=("gaussian_noise",)))
    assert "Networks: ResNet18 on CIFAR100-C: trained here with the recipe fast." in sentences(
        ours(), facts, alone
    )


def test_the_network_that_was_asked_for_last_is_shown_and_named() -> None:
    """Also where its cells were stored before those of the other one."""
    wide, deep = (
        measured("source", arch, accuracy=accuracy, written=written)
        for arch, accuracy, written in (("resnet18", 40.0, 2e9), ("resnet20", 30.0, 1e9))
    )
    for asked, value in ((["resnet18", "resnet20"], 30.0), (["resnet20", "resnet18"], 40.0), ([], 40.0)):
        made = ours(wide, deep, nets={"cifar10-c": {"resnet18": asked}})
        assert made.find("cifar10-c", "resnet18", "source").value("mean") == pytest.approx(value)
        assert ("Networks: ResNet20 takes the place of ResNet18 on CIFAR10-C." in sentences(made, {})) == (
            value == 30.0
        )
    elsewhere = ours(wide, nets={"cifar10-c": {"resnet18": ["resnet18", "resnet20"]}})  # it was timed alone
    assert elsewhere.find("cifar10-c", "resnet18", "source").value("mean") == pytest.approx(40.0)


def test_the_verdict_says_what_is_and_is_not_reproduced() -> None:
    said = verdict(ours(
        measured("source", accuracy=53.9), measured(), measured("tent", accuracy=77.3),
        measured("source", "cct", accuracy=70.0), measured(arch="cct", accuracy=78.9),
        measured("quantile", "cct", accuracy=80.0), measured("sar", "cct", accuracy=71.0),
    ))  # fmt: skip
    assert said[0] == (
        "2 of the 12 rows of Table 1 are measured. Source and the increase over it are both within 2 points "
        "of the paper's in 0 of them; in 1 more, only the increase is."
    )
    assert "+10.6 here and +25.0 there" in said[1]
    assert said[2].startswith("ResNet18 on CIFAR10-C: Quantile (paper) 64.5, after all images were seen. ")
    assert said[2].endswith("each image once, TENT has the highest mean, 77.3.")
    assert "Quantile (paper) 78.9 and Quantile 80.0, after all images" in said[3]  # never ranked against SAR
    assert verdict(ours()) == []


def test_an_increase_is_of_one_network_and_a_mean_of_whole_seeds_in_one_precision() -> None:
    before = [measured("source", accuracy=53.9, checkpoint="a"), measured(checkpoint="a")]
    again = measured("source", accuracy=63.9, checkpoint="b", written=2e9)
    sheet = sheets.table1(ours(*before, again))
    assert lines(sheet)[0][1::3] == ["63.9", "–", "–"]
    assert "measured with other weights or data, or in another precision or protocol" in sheet.notes.values()

    some = [measured(seeds=(seed,), accuracy=90.0, corruptions=("fog", "snow")) for seed in (1, 2)]
    found = ours(measured(), *some).find("cifar10-c", "resnet18", "quantile_paper")
    assert (found.value("mean"), found.value("fog"), found.seeds) == (64.5, 64.5, 1)
    extra = measured(seeds=(0,), corruptions=("saturate",))
    assert ours(measured(seeds=(0, 1)), extra).find("cifar10-c", "resnet18", "quantile_paper").seeds == 2
    lacking = [measured(seeds=(seed,), corruptions=names) for seed, names in ((0, ("fog",)), (1, ("snow",)))]
    assert ours(*lacking).find("cifar10-c", "resnet18", "quantile_paper").why == "no seed has all corruptions"

    faster = measured(precision="tf32", accuracy=44.5, corruptions=("fog", "snow"), written=2e9)
    found = ours(measured(), faster).find("cifar10-c", "resnet18", "quantile_paper")
    assert (found.value("fog"), found.why) == (44.5, "2 of 15 corruptions")


def test_a_row_is_of_one_mode_and_one_setting_whatever_else_the_folder_has() -> None:
    """Cells that were added later, with other modes, epochs, settings or sizes of a batch."""

    def mean(*frames: pd.DataFrame, method: str = "tent") -> Any:
        return ours(*frames).find("cifar10-c", "resnet18", method)

    later: dict[str, Any] = {"corruptions": ("fog", "snow"), "accuracy": 10.0, "written": 2e9}
    offline = measured("tent", mode="offline", epochs=3, **later)
    found = mean(measured("tent", accuracy=77.0), offline)
    assert (found.value("mean"), found.value("fog")) == pytest.approx((77.0, 77.0))
    assert mean(offline).why == "not measured online"
    added = measured("tent[lr=0.01]", **later)
    assert mean(measured("tent", accuracy=77.0), added).value("fog") == 77.0
    assert mean(added).value("fog") == 10.0
    sizes = mean(measured("tent", accuracy=77.0), measured("tent", batch_size=64, **later))
    assert (sizes.value("fog"), sizes.why) == (10.0, "2 of 15 corruptions")

    paper = "quantile_paper"
    assert mean(measured(), measured(mode="online", **later), method=paper).value("fog") == 64.5
    assert mean(measured(), measured(epochs=3, **later), method=paper).value("fog") == 64.5
    assert mean(measured(mode="online"), method=paper).why == "not measured offline"
    source = measured("source", mode="offline", batch_size=512)
    assert mean(source, method="source").value("mean") == 64.5


@each(
    ("unusual", "words"),
    [
        ({"order": "dirichlet(0.1)"}, "dirichlet(0.1) order"), ({"reset": "continual"}, "continual"),
        ({"contamination": "noise(0.2)"}, "contaminated by noise(0.2)"),
        ({"held_out": 0.5}, "50 % held out"), ({"pace": 1.0}, ""),
    ],
)  # fmt: skip
def test_the_usual_protocol_comes_first_and_another_is_named(unusual: dict[str, Any], words: str) -> None:
    usual = [measured("source", accuracy=53.9), measured()]
    other = [
        measured(method, accuracy=30.0, written=2e9, **unusual) for method in ("source", "quantile_paper")
    ]
    both = ours(*usual, *other)
    assert lines(sheets.table1(both))[0][1::3] == ["53.9", "64.5", "+10.6"]
    assert not any(line.startswith("Protocol: ") for line in sentences(both, {}))
    alone = ours(*other)
    assert lines(sheets.table1(alone))[0][1::3] == ["30.0", "30.0", "+0.0"]
    (said,) = (line for line in sentences(alone, {}) if line.startswith("Protocol: "))
    assert said.startswith(f"Protocol: ResNet18 on CIFAR10-C: {words}")


def test_other_images_under_one_name_are_not_of_the_same_row() -> None:
    before, after = (measured("source", fingerprint=name, written=n) for name, n in (("a", 1e9), ("b", 2e9)))
    found = ours(before, after[after["corruption"] == "fog"]).find("cifar10-c", "resnet18", "source")
    assert found.why == "1 of 15 corruptions"


def test_the_appendix_has_increases_as_printed_and_the_table_behind_table_3() -> None:
    first, *_, last = sheets.appendix(ours(measured("source", accuracy=53.9), measured()))
    increase = next(line for line in lines(first) if line[0] == "Increase")
    assert increase[1:3] == ["ours", "+10.6"]
    printed = lines(first)[lines(first).index(increase) + 1]
    assert printed[2] == f"+{theirs.increase('cifar10-c', 'resnet18', 'gaussian_noise'):.1f}" == "+40.5"
    names = [line[0] for line in lines(last) if line[0]]
    assert names == [
        "128 images, 10 quantiles", "256 images, 10 quantiles", "128 images, 20 quantiles",
        "256 images, 20 quantiles", "512 images, 10 quantiles",
    ]  # fmt: skip
    means = {row["accuracy"] for row in theirs.ablation()}
    shown = {line[-1] for line in lines(last) if line[1] == "paper"}
    assert shown
    assert shown <= means


def test_the_page_says_what_stands_for_what(tmp_path: Path) -> None:
    facts = {
        "scale": 1.0, "recipes": {TRAINED: "cross-entropy"}, "stands": {"cifar10-c": OWN}, "nets": {},
        "notes": {TRAINED: "<b>"},
        "missing": {"cifar100-c": "cifar100-c is not here"}, "figures": {"tsne": "out of memory"},
    }  # fmt: skip
    frame = pd.concat(
        [
            measured("source", dataset=OWN, accuracy=53.9, precision="tf32", checkpoint=TRAINED),
            measured(dataset=OWN, precision="tf32", checkpoint=TRAINED),
        ]
    )
    paths, _ = write(frame.reset_index(drop=True), None, facts, tmp_path)
    page = (tmp_path / "paper.html").read_text()
    for words in (
        "cifar10-own-C (own) takes the place of CIFAR10-C", "recipe cross-entropy", "ResNet18 in tf32",
        "64.5", "79.4", "Not drawn: out of memory", "cifar100-c is not here", "&lt;b&gt;.", "epochs 10",
        "<li>cifar10-c, cvt increase, motion_blur: printed 10.3",
    ):  # fmt: skip
        assert words in page
    assert all(path.exists() for path in paths)
    first = page
    write(frame.reset_index(drop=True), None, facts, tmp_path)
    assert (tmp_path / "paper.html").read_text() == first  # the same bytes
    with (tmp_path / "tables" / "paper_table1.csv").open() as file:
        head, row, missing, *_ = csv.reader(file)
    assert head[:4] == ["part", "Network", "Source ours", "Source paper"]
    assert row[1:5] == ["ResNet18", "53.9", "54.4", "-0.5"]
    assert (head[-1], missing[2], missing[-1]) == ("note", "", "not measured")


def test_the_curve_of_source_is_seen_behind_an_equal_one(tmp_path: Path) -> None:
    where: dict[str, Any] = {"severities": (1, 5), "corruptions": ("gaussian_noise",), "accuracy": 50.0}
    source, method = measured("source", **where), measured(**where)

    def grey(*frames: pd.DataFrame) -> int:
        """Pixels in the colour of Source; the paper's curve of Source is always there."""
        png, _ = severity_curve(ours(*frames), tmp_path, "curve")
        pixels = image.imread(png)[..., :3]
        return int((abs(pixels - colors.to_rgb(COLOURS["Source"])) < 0.02).all(axis=2).sum())

    assert grey(source, method) > 1.2 * grey(method)


def test_the_document_has_the_sentences_and_figures_of_the_page(tmp_path: Path) -> None:
    curve = {"severities": (1, 5), "corruptions": ("gaussian_noise",)}
    frame = pd.concat([measured("source", **curve), measured(**curve)], ignore_index=True)
    facts = {"figures": {"tsne": "100 % of memory"}, "missing": {"cifar100-c": "cifar100-c is not here"}}
    write(frame, None, facts, tmp_path)
    text = (tmp_path / "tables" / "paper.tex").read_text()
    order = [
        "ours, the paper's, the difference",
        "What differs in setting",
        "Not measured",
        "cifar100-c is not here",
        r"\input{paper_table1.tex}",
        "{../figures/severity-curve.pdf}",
        r"100 \% of memory",
        "Misprints",
        r"\end{document}",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_a_figure_of_a_network_names_it_and_its_dataset(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "tsne.pdf").touch()
    of = {"arch": "cct", "dataset": "digits-c", "settings": []}
    facts = {"figures": {"tsne": "", "two-moons": ""}, "drawn": {"tsne": of, "two-moons": {"settings": []}}}
    write(None, None, facts, tmp_path)
    for file in (tmp_path / "paper.html", tmp_path / "tables" / "paper.tex"):
        assert "(t-SNE). Drawn of CCT on Digits-C." in file.read_text()
        assert file.read_text().count("Drawn of") == 1


def test_the_document_compiles_with_a_figure(tmp_path: Path) -> None:
    frame = measured(severities=(1, 5), corruptions=("gaussian_noise",))
    write(frame, None, {"figures": {"tsne": "λ ≠ 0 & 100 %"}}, tmp_path)
    text = tex.compiled(tmp_path / "tables", "paper")
    assert "What differs in setting" in text
    assert "Accuracy under Gaussian noise by severity" in text


def test_where_there_is_no_pdf_a_sentence_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    paths, why = write(None, None, {}, tmp_path)
    assert why.startswith("no PDF: none of latexmk, pdflatex, tectonic, chromium, ")
    program = programs / "pdflatex"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    assert write(None, None, {}, tmp_path)[1] == "no PDF: pdflatex ended with 3"
    program.write_text("#!/bin/sh\n: > paper.log\nexit 3\n")
    again, why = write(None, None, {}, tmp_path)
    assert why == f"no PDF: pdflatex ended with 3, see {tmp_path / 'tables' / 'paper.log'}"
    program.write_text("#!/bin/sh\n: > paper.pdf\n")
    assert write(None, None, {}, tmp_path) == ([*paths, tmp_path / "tables" / "paper.pdf"], "")
    program.write_text("#!/no/such/shell\n")
    assert write(None, None, {}, tmp_path)[1].startswith("no PDF: pdflatex cannot be started (")
    assert again == paths
    assert not (tmp_path / "tables" / "paper.pdf").exists()  # of an earlier page


def test_beside_a_pdf_nothing_of_tex_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "pdflatex"
    program.write_text("#!/bin/sh\n: > paper.log; : > paper.aux; : > paper.out; : > paper.pdf\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    _, why = write(None, None, {}, tmp_path)
    endings = {file.suffix for file in (tmp_path / "tables").glob("paper.*")}
    assert (why, endings) == ("", {".tex", ".pdf"})


def test_what_the_folder_has_for_latexmk_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file .latexmkrc is a program, and the folder may be somebody else's."""
    programs = tmp_path / "programs"
    programs.mkdir()
    latexmk = programs / "latexmk"
    latexmk.write_text(f'#!{shutil.which("sh")}\necho "$@" > paper.pdf\n')
    latexmk.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    assert write(None, None, {}, tmp_path)[1] == ""
    assert "-norc" in (tmp_path / "tables" / "paper.pdf").read_text().split()


def test_without_tex_a_browser_makes_the_pdf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    browser = programs / "google-chrome"
    browser.write_text(
        f"#!{shutil.which('sh')}\n"
        f'for o; do case "$o" in --print-to-pdf=*) echo "$@" > "${{o#*=}}";; esac; done\n'
    )
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    paths, why = write(None, None, {}, tmp_path)
    pdf = tmp_path / "tables" / "paper.pdf"
    assert (paths[-1], why) == (pdf, "")
    assert pdf.read_text().rstrip().endswith((tmp_path / "paper.html").as_uri())


def test_the_three_lines_of_a_row_stay_on_one_page() -> None:
    for sheet in sheets.appendix(ours(measured())):
        for page, _ in pages_of(sheet, "page"):
            whose = [line[1].text for group in page.groups for line in group.lines]
            assert whose == ["ours", "paper", "diff."] * (len(whose) // 3)


def test_a_caption_stays_with_its_picture(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "tsne.pdf").touch()
    write(None, None, {"figures": {"tsne": ""}}, tmp_path)
    text = (tmp_path / "tables" / "paper.tex").read_text()
    picture, caption = text.index("tsne.pdf"), text.index("(t-SNE)")
    assert (
        text.rindex(r"\begin{minipage}", 0, picture)
        < picture
        < caption
        < text.index(r"\end{minipage}", picture)
    )


@pytest.mark.parametrize("dataset", theirs.DATASETS)
def test_the_papers_numbers_are_whole(dataset: str) -> None:
    for arch in theirs.ARCHS:
        for method in ("source", "quantile_paper"):
            assert theirs.accuracy(dataset, arch, method) > 0


def test_stale_cells_and_seeds_are_those_of_all_tables() -> None:
    source, tent = measured("source", seeds=(0,)), measured("tent", seeds=(0, 1))
    tent.loc[[0, 3], "stale"] = True
    made = ours(source, tent)
    alone = measured("tent", dataset="cifar100-c", corruptions=("gaussian_noise",), seeds=(0,))
    timed = ours(alone.assign(stale=True, cell_id="timed"))
    sheets.every(made, timed)
    said = sentences(made, {}, timed)
    assert "Measured with other code than is installed: 3 cells of the tables." in said
    assert "Seeds: 1 or 2 per cell here; the paper does not state them." in said


def test_the_table_of_times_names_every_device() -> None:
    one, other = (
        measured(name, dataset="cifar100-c", corruptions=("gaussian_noise",)) for name in ("tent", "cotta")
    )
    footer = sheets.time(ours(one, other.assign(processor="AMD EPYC"))).footer
    assert "on AMD EPYC and NVIDIA H200. Rows of different devices cannot be compared." in footer
    assert "on NVIDIA H200. Paper" in sheets.time(ours(one, other)).footer


def test_captions_say_over_how_many_corruptions_our_means_are() -> None:
    one, two = ("fog",), ("fog", "snow")
    few = ours(
        measured("source", corruptions=one), measured(corruptions=two),
        measured(arch="cct", dataset="cifar100-c", corruptions=two), partial=True,
    )  # fmt: skip
    for sheet in (sheets.table1(few), sheets.others(few)):
        assert sheet.caption.endswith(" Our mean is over 1 to 2 corruptions."), sheet.name
    for sheet in (sheets.table2(few), sheets.table3(few)):  # neither has Source
        assert sheet.caption.endswith(" Our mean is over 2 corruptions."), sheet.name
    notes = next(sheets.appendix(few)).notes.values()
    assert "not every corruption was measured; the mean is over 1 to 2" in notes
    whole = ours(measured("source"), measured())
    assert "Our mean" not in sheets.table1(whole).caption + sheets.table1(ours()).caption
