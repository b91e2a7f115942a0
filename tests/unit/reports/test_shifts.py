"""Natural shifts and the corruptions of CIFAR-10-C-bar in tables and pictures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tests.unit.made_cells import cells, with_correctness
from ttabench.corruptions.corruption_names import BAR_CORRUPTIONS, KNOWN_CORRUPTIONS, NATURAL, NO_SEVERITY
from ttabench_reports import plots
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import markdown
from ttabench_reports.sheets import every, means, words
from ttabench_reports.tables import build as tables
from ttabench_reports.words import naming


def test_every_known_shift_has_a_name_of_three_letters_and_a_heading() -> None:
    known = [*KNOWN_CORRUPTIONS, NATURAL]
    assert len({naming.short(c) for c in known}) == len(known)
    assert all(len(naming.short(c)) == 3 and naming.title(c) != c for c in known)


def test_a_natural_shift_has_no_severity_and_one_column() -> None:
    frame = cells(
        archs=("resnet18",), datasets=("imagenet-r",), corruptions=(NATURAL,), severities=(NO_SEVERITY,),
        scored_classes="200 of 1000 classes",
    )  # fmt: skip
    (table,) = tables.tables(frame)
    assert (table.title, table.heading) == ("imagenet-r", "ImageNet-R")
    assert table.main_columns == (NATURAL,)
    assert "Predictions are chosen from the 200 of 1000 classes that the images have." in table.measured
    for row in table.rows:
        assert row.value("mean") == row.value(NATURAL)
    text = " ".join(str(sheet.caption) for sheet in every.sheets(Report(frame)))
    assert "everity" not in text
    assert "over the images" in text


def test_a_head_for_the_classes_of_the_images_is_in_the_heading_and_the_caption() -> None:
    frame = cells(
        archs=("resnet18",), datasets=("imagenet-r[200-way]",), corruptions=(NATURAL,),
        severities=(NO_SEVERITY,),
    )  # fmt: skip
    (table,) = tables.tables(frame)
    assert table.heading == "ImageNet-R [200-way head]"
    assert naming.clean("imagenet-r[200-way]") == "ImageNet [200-way head]"
    assert "Networks have outputs only for the classes of the images" in table.measured
    assert "Predictions are chosen" not in table.measured


def test_means_say_whether_they_are_over_a_natural_shift_or_a_long_stream() -> None:
    corrupted = cells(archs=("cct",), datasets=("cifar10-c",))
    shift = cells(archs=("cct",), datasets=("cifar10.1",), corruptions=(NATURAL,), severities=(0,))
    stream = cells(
        archs=("cct",), datasets=("cifar10-c",), corruptions=("recurring",), stream="recurring(2)",
        reset="continual",
    )  # fmt: skip

    def over(*frames: pd.DataFrame) -> str:
        return words.over(tables.tables(pd.concat(frames, ignore_index=True)))

    assert over(corrupted) == "over the corruptions"
    assert over(shift) == over(stream) == over(shift, stream) == "over the images"
    assert over(corrupted, shift) == "over the corruptions, or the images of a natural shift"
    assert over(corrupted, stream) == "over the corruptions, or the images of a long stream"
    every_kind = "over the corruptions, or the images of a long stream or a natural shift"
    assert over(corrupted, shift, stream) == every_kind

    for frames, said in (((corrupted, stream), True), ((stream,), False)):
        footer = means.statistics(Report(pd.concat(frames, ignore_index=True))).footer
        assert ("mean over the corruptions" in footer) == said, footer


def test_beside_a_long_stream_its_ties_are_as_printed() -> None:
    corrupted = with_correctness(cells(("source", "tent"), ("cct",), corruptions=("fog", "snow")), 60)
    stream = corrupted[corrupted["corruption"] == "fog"].assign(
        corruption="recurring", stream="recurring(2)", reset="continual", correct=[b"", b""]
    )

    def how(*frames: pd.DataFrame) -> str:
        return words.ranking(tables.tables(pd.concat(frames, ignore_index=True)))

    assert "paired test" in how(corrupted, stream)
    assert words.AS_PRINTED in how(corrupted, stream)
    assert words.AS_PRINTED not in how(corrupted) + how(stream)


def test_shifts_and_corruptions_side_by_side_keep_their_own_means(tmp_path: Path) -> None:
    frame = pd.concat([
        cells(archs=("resnet18",), datasets=("cifar10-c",)),
        cells(archs=("resnet18",), datasets=("cifar10-c-bar",), corruptions=BAR_CORRUPTIONS),
        cells(archs=("resnet18",), datasets=("cifar10.1",), corruptions=(NATURAL,), severities=(0,)),
    ]).assign(cell_id=lambda f: [f"{n:064x}" for n in range(len(f))])  # fmt: skip
    result = {table.key["dataset"]: table for table in tables.tables(frame)}
    assert [(name, len(table.main), table.extra) for name, table in result.items()] == [
        ("cifar10-c", 15, ()), ("cifar10-c-bar", 10, ()), ("cifar10.1", 1, ()),
    ]  # fmt: skip
    assert result["cifar10-c-bar"].main == BAR_CORRUPTIONS
    assert [naming.dataset(name) for name in result] == ["CIFAR10-C", "CIFAR10-C-bar", "CIFAR10.1"]
    assert {naming.clean(name) for name in result} == {"CIFAR10"}
    pages = [path.read_text() for path in markdown.write(frame, tmp_path)]
    assert "severity 5" in "".join(pages)
    assert "severity 0" not in "".join(pages)
    pictures = plots.write(frame, tmp_path)
    assert tmp_path / "bars_cifar10.1.png" in pictures


def test_columns_and_sentences_of_tests_are_there_where_tests_are() -> None:
    stream = cells(archs=("cct",), corruptions=("recurring",), stream="recurring(2)", reset="continual")
    tested = with_correctness(cells(archs=("cct",)), 300, {"tent": 0.5})
    for frame, there in ((stream, False), (tested, True)):
        for sheet in (means.summary(Report(frame)), means.statistics(Report(frame))):
            heads = {head.text for head in sheet.heads}
            assert ({"95\u00a0% interval", "W/T/L"} <= heads) is there, sheet.name
            assert (("95\u00a0%" in sheet.footer) and ("W/T/L" in sheet.footer)) is there
            assert ("p:" in sheet.footer) is (there and sheet.name == "statistics")
            assert ("their intervals and tests" in sheet.caption) is (there and sheet.name == "statistics")
            assert all(len(line) == len(sheet.heads) for group in sheet.groups for line in group.lines)
            for part in sheet.narrow():
                assert {"Accuracy", "Increase"} <= {head.text for head in part.heads}
                assert "W/T/L" not in {head.text for head in part.heads} or sheet.name == "statistics"
