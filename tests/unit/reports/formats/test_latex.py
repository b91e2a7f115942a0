"""The LaTeX compiles as it stands, fits its page, and prints what was measured."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttabench
import ttabench_methods
from tests.cases import each
from tests.unit.made_cells import cells, spoil, where, with_correctness
from tests.unit.tex import compiled, font_sizes
from ttabench.corruptions.corruption_names import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttabench_reports import published
from ttabench_reports.evidence.report import Report
from ttabench_reports.formats import latex
from ttabench_reports.formats.latex import pages
from ttabench_reports.formats.latex.escape import SPECIAL
from ttabench_reports.formats.latex.floats import printed
from ttabench_reports.sheets import drops, every, means, methods, per_corruption
from ttabench_reports.sheets.sheet import Entry, Group, Head, Sheet
from ttabench_reports.sheets.words import GIVEN
from ttabench_reports.words import naming

NASTY = r"50% of batch_5 & {δ} \ ~^#$ <a> [b] “ü” → ∞ 中 x̂ ½ 10⁻⁵ Αλέξης ‖θ₀‖"
MANY = ("source", "bn_stats", "tent", "eata", "eta", "sar", "cotta", "rotta", "sotta", "medbn", "lame", "t3a",
        "deyo", "memo", "roid", "shot", "foa", "tent[norms=all,lr=0.0005]", "quantile",
        "quantile[per_class=1,information=0.1,start=identity]")  # fmt: skip


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Two datasets, all kinds of trouble, several seeds."""
    frame = cells(
        ("source", "tent", "tent[norms=all,lr=0.0005]", "quantile"),
        datasets=("my_data%", "cifar10-c"),
        corruptions=(*CORRUPTIONS, *EXTRA_CORRUPTIONS),
        seeds=(0, 1),
    )
    frame = spoil(frame, "n/a", "no batch norm", arch="cct", method="tent")
    return spoil(frame, "failed", NASTY, arch="cct", method="quantile", corruption="fog")


@pytest.fixture(scope="module")
def many() -> pd.DataFrame:
    """Twenty methods with alarms, as a sweep of everything has them, at two severities."""
    frame = cells(MANY, ("resnet18", "cct_2", "vit_lite_7"), datasets=("cifar10-c",), severities=(3, 5))
    frame = with_correctness(frame, 80)
    frame = spoil(frame, "n/a", "no batch norm", arch="cct_2", method="bn_stats")
    for k, corruption in enumerate(("fog", "snow", "frost", "contrast")):
        mask = where(frame, corruption=corruption, arch="cct_2") & frame["base"].isin(["tent", "sar", "eata"])
        frame.loc[mask, "alarm"] = (
            f"collapse: predictions have {1 + k}.5 effective classes and labels have 10.0"
        )
    return frame


def sheets(frame: pd.DataFrame, **kwargs: bool) -> dict[str, Sheet]:
    return {sheet.name: sheet for sheet in every.sheets(Report(frame), **kwargs)}


# ---- signs


def unescaped(text: str) -> str:
    """`text` without what LaTeX escapes or what starts a command."""
    return re.sub(r"\\[\\%&#_{}$,]|\\[A-Za-z]+", "", text)


@settings(deadline=None)  # busy machines
@given(st.text())
def test_escaped_text_has_no_special_left(text: str) -> None:
    left = unescaped(latex.escape(text.replace("\u00a0", " ")))
    plain = re.sub(r"\$[^$]*\$", "", left)  # carets belong in formulas
    assert not set(plain) & set("%&#_~^$\\")
    assert left.count("{") == left.count("}")


def test_escaping_keeps_plain_words() -> None:
    assert latex.escape("quantile, batch size 128.") == "quantile, batch size 128."
    assert latex.escape("lr=0.1_a") == r"lr=0.1\_a"
    assert latex.escape("*mine") == "{*}mine"  # after a line break, a star is part of the command
    assert latex.escape("δ = é") == r"$\delta$ = é"
    assert latex.escape("5\u00a0%") == r"5~\%"
    assert (
        latex.escape("--batch-size, ---, 3–4, 5–-6") == "-{}-batch-size, -{}-{}-, 3--4, 5--{}-6"
    )  # LaTeX prints "--" as a dash


@each(
    ("text", "expected"),
    [
        ("d_margin 0.05 < 1/√C", r"d\_margin 0.05 \textless{} 1/$\surd$C"),
        ("−1 ≤ x ± 2·y × z ≥ λ", r"$-$1 $\le$ x $\pm$ 2$\cdot$y $\times$ z $\ge$ $\lambda$"),
        ("Ω ς ο Α µ", r"$\Omega$ $\varsigma$ o A $\mu$"),
        ("10⁻⁵ m² θ₀ ½ š",
         r"10\textsuperscript{$-$}\textsuperscript{5} m\textsuperscript{2} $\theta$\textsubscript{0} 1/2 s"),
        ("中 한 🙂 ϛ", "U+4E2D U+D55C U+1F642 U+03DB"),
    ],
)  # fmt: skip
def test_signs_are_printed_or_named(text: str, expected: str) -> None:
    assert latex.escape(text) == expected


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="?")))
def test_nothing_becomes_a_question_mark(text: str) -> None:
    assert "?" not in latex.escape(text)


@pytest.mark.parametrize("package", [ttabench, ttabench_methods], ids=lambda package: package.__name__)
def test_all_signs_of_our_own_sentences_are_printed(package: ModuleType) -> None:
    for file in Path(package.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isprintable():
                assert "U+" not in latex.escape(node.value.replace("U+", "")), (file.name, node.value)


# ---- shape


@pytest.mark.parametrize("form", ["page", "column"])
def test_environments_close_and_every_row_has_every_column(
    frame: pd.DataFrame, many: pd.DataFrame, form: pages.Form
) -> None:
    for sheet in (*sheets(frame).values(), *sheets(many).values()):
        text = printed(sheet, form).text
        opened, closed = (re.findall(rf"\\{word}{{([a-z*]+)}}", text) for word in ("begin", "end"))
        assert sorted(opened) == sorted(closed)
        assert unescaped(text).count("{") == unescaped(text).count("}")
        for align, body in re.findall(r"\\begin{tabular}{@{}([lr]+)@{}}(.*?)\\end{tabular}", text, re.DOTALL):
            rows = [line for line in body.splitlines() if line.endswith(r"\\")]
            assert rows
            for row in rows:
                spans = [int(n) - 1 for n in re.findall(r"\\multicolumn{(\d+)}", row)]
                assert len(re.findall(r"(?<!\\)&", row)) + sum(spans) == len(align) - 1, row
            for rule in ("toprule", "midrule", "bottomrule"):
                assert f"\\{rule}" in body


def test_documents_input_every_fragment_and_labels_are_unique(frame: pd.DataFrame, tmp_path: Path) -> None:
    paths = latex.write(frame, tmp_path)
    text = ""
    for document in ("all.tex", "all_column.tex", "appendix.tex", "appendix_column.tex"):
        inputs = re.findall(r"\\input{(.*?)}", (tmp_path / document).read_text())
        assert inputs
        text += "".join((tmp_path / name).read_text() for name in inputs)
    assert sorted(paths) == sorted(tmp_path.glob("*.tex"))
    labels = re.findall(r"\\label{(.*?)}", text)
    assert len(set(labels)) == len(labels) >= len(paths) - 4


def test_the_main_tables_are_apart_from_those_of_an_appendix(many: pd.DataFrame, tmp_path: Path) -> None:
    latex.write(many, tmp_path)
    inputs = {
        name: re.findall(r"\\input{(.*?)}", (tmp_path / f"{name}.tex").read_text())
        for name in ("all", "appendix")
    }
    assert inputs["all"] == ["summary.tex", "drop.tex", "severity_cifar10-c.tex"]
    assert {"statistics.tex", "given.tex", "protocols.tex"} < set(inputs["appendix"])
    assert not set(inputs["all"]) & set(inputs["appendix"])


def test_captions_have_three_lines_at_most(frame: pd.DataFrame, many: pd.DataFrame) -> None:
    """The protocols of all methods stand once, in a table of their own."""
    odd = many.assign(batch_size=[16 * len(base) for base in many["base"]])
    for sheet in (*sheets(frame).values(), *sheets(odd).values()):
        assert len(sheet.caption) <= 3 * pages.CAPTION_WIDTH["page"], sheet.name
    listed = sheets(odd)["protocols"]
    batches = {line[0].text for group in listed.groups for line in group.lines}
    assert len(batches) >= odd.loc[odd["base"] != "source", "batch_size"].nunique()
    names = {name for group in listed.groups for line in group.lines for name in line[1].text.split(", ")}
    assert {"EATA", "SAR", "CoTTA", "Quantile"} < names


def test_where_every_method_failed_the_caption_has_the_protocol_that_was_planned() -> None:
    """Not that of Source, which adapts to no batch and may have another size."""
    made = cells(("source", "tent"), ("cct",), batch_size=64)
    made.loc[made["base"] == "source", "batch_size"] = 32
    planned = "Protocol: online, batch size 64, iid order"
    for frame in (made, spoil(made, "failed", "out of memory", method="tent")):
        for name in ("per_corruption_digits-c-severity-5", "summary", "statistics"):
            assert planned in sheets(frame)[name].caption, name
    (alone,) = Report(made[made["base"] == "source"]).tables
    assert "batch size 32" in alone.brief


def test_a_paced_protocol_has_the_ratio_of_each_method() -> None:
    made = cells(("source", "tent", "sar"), pace=1.0)
    made["pace_ratio"] = [{"tent": 2.4, "sar": 3.0}.get(base, 1.0) for base in made["base"]]
    made.loc[where(made, base="sar", arch="cct"), "pace_ratio"] = 5.0
    (group,) = sheets(made)["protocols"].groups
    (line,) = group.lines
    assert "compute ratio" not in line[0].text
    assert line[1].text == "SAR (C 3 on ResNet18, 5 on CCT), TENT (C 2.4)"


def test_quotation_marks_open_and_close_and_code_has_no_backticks() -> None:
    assert latex.escape('a "word" ("b")') == "a ``word'' (``b'')"
    assert latex.escape("`x`") == r"\textasciigrave{}x\textasciigrave{}"
    sheet = methods.given(Report(cells(MANY)))
    assert not any("`" in cell.text for group in sheet.groups for line in group.lines for cell in line)


def test_rows_of_running_text_stand_apart_and_keep_their_spaces() -> None:
    heads = [Head("Method", "l"), Head("Settings", "p", width=0.2), Head("Differs", "p", width=0.3)]
    lines = [[Entry(name), Entry("k: 0 = all, a_b=1"), Entry("none")] for name in ("A", "B", "C")]
    text = printed(Sheet("made", "Made", "", heads, [Group("", [lines])]), "page").text
    assert text.count(r"\addlinespace[2pt]") == 2
    assert re.sub(r"\\allowbreak{}", "", text).count(r"k: 0 = all, a\_b=1") == 3
    assert r"\allowbreak " not in text  # TeX would take the space for the end of the command


def test_source_has_no_spread_of_zeros() -> None:
    values = {"source": 60.0, "tent": 70.0}
    made = cells(("source", "tent"), ("cct",), seeds=(0, 1, 2), accuracy=lambda row: values[row["base"]])
    lines = sheets(made)["per_corruption_digits-c-severity-5"].groups[0].lines
    assert [line[0].text for line in lines] == ["Source", "TENT", "", "Increase"]
    assert [cell.text for cell in lines[2]].count("±0.0") == 16


def test_best_is_bold_second_underlined_and_the_caption_is_the_protocol() -> None:
    values = {"source": 61.5, "tent": 72.5, "eata": 73.5}
    frame = cells(tuple(values), ("resnet18",), accuracy=lambda row: values[row["base"]])
    (sheet,) = per_corruption.sheets(Report(frame).tables[0])
    text = printed(sheet, "page").text
    assert text.count(r"\textbf{73.5}") == text.count(r"\textbf") == len(CORRUPTIONS) + 1
    assert text.count(r"\underline{72.5}") == text.count(r"\underline") == len(CORRUPTIONS) + 1
    assert "+12.0" in text
    assert "online, batch size 200, iid order, reset per corruption, all images" in sheet.caption
    assert "results with the same printed number" in sheet.footer  # there is no correctness to test


def test_offline_and_online_rows_have_a_best_each() -> None:
    values = {"source": 61.5, "tent": 72.5, "eata": 71.5, "quantile": 93.5, "quantile[size=paper]": 90.0}
    frame = cells(tuple(values), ("resnet18",), accuracy=lambda row: values[row["method"]])
    (sheet,) = per_corruption.sheets(Report(frame).tables[0])
    text = printed(sheet, "page").text
    assert text.count(r"\textbf{72.5}") == text.count(r"\textbf{93.5}") == len(CORRUPTIONS) + 1
    assert text.count(r"\underline{71.5}") == text.count(r"\underline{90.0}") == len(CORRUPTIONS) + 1
    assert "Online and offline rows (†) are ranked separately." in sheet.footer
    assert text.index("\nEATA") < text.index("\nQuantile")


def test_falls_have_a_proper_minus() -> None:
    frame = cells(("source", "tent"), accuracy=lambda r: 50.0 - 3 * (r["base"] == "tent"))
    (sheet,) = per_corruption.sheets(Report(frame).tables[0])
    assert "$-$3.0" in printed(sheet, "page").text


def test_increase_rows_can_be_left_out(many: pd.DataFrame) -> None:
    name = "per_corruption_cifar10-c-severity-5"
    whole, folded = (sheets(many, increase=each)[name] for each in (True, False))
    count = [sum(len(group.lines) for group in sheet.groups) for sheet in (whole, folded)]
    assert count[0] - count[1] == 3 * (len(MANY) - 1) - 1  # one method is n/a on one architecture
    assert "Increase" not in printed(folded, "page").text


def test_what_a_method_was_given_is_in_every_table(many: pd.DataFrame) -> None:
    frame = many.assign(config='{"epochs": 9, "source_features": 2000}')
    for name, sheet in sheets(frame).items():
        text = printed(sheet, "page").text
        if name == "protocols":
            assert "Given:" not in text
        elif name == "given":
            assert "features of 2000 source images" in text
            assert "Differs from paper or official code" in text
            assert "eval mode" in text  # one of TENT's
        else:
            assert "F 2k, 9 ep." in text, name
            assert "Given: what a method sees of the source data" in text, name


def test_long_tables_break_and_each_footnote_stands_once(many: pd.DataFrame) -> None:
    sheet = sheets(many)["per_corruption_cifar10-c-severity-5"]
    text = printed(sheet, "page").text
    parts = text.split(r"\begin{table*}")[1:]
    assert len(parts) > 1
    assert printed(sheet, "page").height <= pages.TALLEST
    lines = [
        line for page, _ in pages.pages_of(sheet, "page") for group in page.groups for line in group.lines
    ]
    assert lines == [line for group in sheet.groups for line in group.lines]  # none lost, none twice
    before: set[str] = set()
    for part in parts:  # each footnote once, where it is first needed
        marks = set(re.findall(r"\\textsuperscript{(\w)}", part.split(r"\bottomrule")[0]))
        noted = set(re.findall(r"\\textsuperscript{(\w)}", part.split(r"\bottomrule")[-1]))
        assert noted == marks - before
        before |= marks
    assert text.count("Given: what a method sees") == 1
    assert text.count(pages.AGAIN) == len(parts) - 1
    assert text.count("predictions have 1.5 to 4.5 effective classes and labels have 10.0") >= 1
    assert "(continued)" in parts[1]
    for part in parts:  # an increase stays with its method
        body = part.split(r"\midrule")[1].splitlines()
        first = next(line for line in body if "&" in line)
        assert "Increase" not in first


@pytest.mark.parametrize("form", ["page", "column"])
def test_no_row_of_a_block_stands_alone_on_a_page(form: pages.Form) -> None:
    heads = [Head("Method", "l"), Head("Accuracy")]
    for above in range(2, 120):  # a page ends at each row of the second block once
        blocks = [[[Entry(f"{block}{k}"), Entry("70.0")] for k in range(above)] for block in "AB"]
        sheet = Sheet("made", "Made", "", heads, [Group("", blocks)])
        parts = [page for page, _ in pages.pages_of(sheet, form)]
        assert [line for part in parts for group in part.groups for line in group.lines] == [
            line for block in blocks for line in block
        ]
        alone = [
            block for part in parts for group in part.groups for block in group.blocks if len(block) == 1
        ]
        assert not alone, above


def test_every_table_has_the_difference_of_the_printed_numbers() -> None:
    values = {"source": 61.449, "tent": 72.451}  # 11.002 apart
    frame = cells(("source", "tent"), accuracy=lambda row: values[row["base"]]).assign(clean_accuracy=98.449)
    made = sheets(frame)
    for name in ("summary", "statistics", "per_corruption_digits-c-severity-5"):
        texts = {cell.text for line in made[name].groups[0].lines for cell in line}
        assert "+11.1" in texts, name
        assert "+11.0" not in texts, name
    drops = {line[1].text: line[-1].text for line in made["drop"].groups[0].lines}
    assert drops == {"Source": "37.0", "TENT": "25.9"}  # 98.4 - 72.5, where 98.449 - 72.451 is 26.0


def test_of_two_drops_the_one_that_prints_smaller_is_bold() -> None:
    """Of 50.05, printed 50.0, the unrounded distances of 49.2 and 49.3 round to one number."""
    values = {"source": 48.0, "tent": 49.2, "eata": 49.3}
    frame = cells(("source", "tent", "eata"), ("cct",), accuracy=lambda row: values[row["base"]])
    made = sheets(frame.assign(clean_accuracy=50.05))["drop"]
    drops = {line[1].text: (line[-1].text, line[-1].place) for line in made.groups[0].lines}
    assert drops == {"Source": ("2.0", ""), "EATA": ("0.7", "best"), "TENT": ("0.8", "")}


def test_source_has_the_smallest_drop_only_if_no_online_method_has_a_smaller_one() -> None:
    """Offline methods that drop further do not make it bold, as in the other tables."""
    values = {"source": 80.0, "tent": 85.0, "quantile": 70.0}
    frame = cells(archs=("cct",), accuracy=lambda row: values[row["base"]])
    for some, best in ((frame, "TENT"), (frame[frame["base"] != "tent"], "Source")):
        (lines,) = (group.lines for group in sheets(some)["drop"].groups)
        assert [line[1].text for line in lines if line[-1].place == "best"] == [best]


def test_a_group_that_goes_on_says_so(many: pd.DataFrame) -> None:
    sheet = sheets(many)["per_corruption_cifar10-c-severity-5"]
    begun: set[str] = set()
    continued = 0
    for page, _ in pages.pages_of(sheet, "page"):
        for group in page.groups:
            name = group.heading.removesuffix(" (continued)")
            assert group.heading.endswith(" (continued)") == (name in begun)
            continued += name in begun
            begun.add(name)
    assert continued


def test_the_drop_table_has_datasets_side_by_side() -> None:
    values = {"cifar10-c": 80.04, "cifar100-c": 60.0}
    frame = cells(datasets=tuple(values), accuracy=lambda row: values[row["dataset"]])
    (sheet,) = drops.drops(Report(frame))
    heads = [head.text for head in sheet.heads]
    assert heads[3:] == ["CIFAR10", "CIFAR10-C", "Drop", "CIFAR100", "CIFAR100-C", "Drop"]
    for line in sheet.groups[0].lines:
        assert [cell.text for cell in line[3:]] == ["98.0", "80.0", "18.0", "98.0", "60.0", "38.0"]
    assert "severity 5" in sheet.caption
    assert drops.LIMITED not in sheet.footer
    (limited,) = drops.drops(Report(frame.assign(limit=600)))
    assert drops.LIMITED in limited.footer
    (held_out,) = drops.drops(Report(frame.assign(held_out=0.5)))
    assert drops.LIMITED in held_out.footer
    (drawn,) = drops.drops(Report(cells(datasets=("cifar10-c[500]",))))
    assert drops.LIMITED in drawn.footer
    (listed,) = drops.drops(Report(cells(datasets=("imagenet-c[5000]",))))
    assert listed.heads[3].text == "ImageNet [5000 images, balanced]"
    assert drops.LIMITED not in listed.footer, "the clean images are those of the subset too"


def test_published_weights_of_one_architecture_are_one_row_of_the_drop_table() -> None:
    """Those for CIFAR-100 have a name of their own; their rows would be half empty."""
    names = {"cifar10-c": "official/cct_7_3x1_32", "cifar100-c": "official/cct_7_3x1_32_c100"}
    frame = pd.concat([cells(archs=(arch,), datasets=(dataset,)) for dataset, arch in names.items()])
    (sheet,) = drops.drops(Report(frame.reset_index(drop=True)))
    models = [line[0].text for line in sheet.groups[0].lines]
    assert models == ["official/cct_7_3x1_32", *[""] * (len(models) - 1)]
    assert all("–" not in cell.text for line in sheet.groups[0].lines for cell in line[3:])


@pytest.mark.parametrize(
    ("datasets", "said"),
    [
        (("cifar10-c[500]",), "reset per corruption, all images of the subset"),
        (("imagenet-c[list-1a2b3c4d]",), "reset per corruption, all images of the subset"),
        (("cifar10-c", "cifar100-c[500]"), "all images, or all of the subset that a heading names"),
        (("imagenet-r[200-way]",), "reset per corruption, all images"),
        (("cifar10-c",), "reset per corruption, all images"),
    ],
)
def test_every_caption_says_that_the_images_are_a_subset(datasets: tuple[str, ...], said: str) -> None:
    report = Report(cells(datasets=datasets))
    for sheet in (means.summary(report), *drops.drops(report)):
        assert f"{said};" in sheet.caption  # then that there are exceptions
    if len(datasets) == 1:
        assert f"{said}." in report.tables[0].protocol


def test_the_drop_table_says_what_was_given_on_each_dataset() -> None:
    frame = cells(datasets=("cifar10-c", "cifar100-c"))
    counts = frame["dataset"].map({"cifar10-c": 2000, "cifar100-c": 3000}).astype(str)
    frame["config"] = ('{"source_features": ' + counts + "}").where(frame["base"] == "quantile", "{}")
    (sheet,) = drops.drops(Report(frame))
    given = {line[1].text: line[2].text for group in sheet.groups for line in group.lines}
    assert re.fullmatch(r"F 2k.*; F 3k.*", given["Quantile"])
    assert given["TENT"] == "–"


def test_datasets_stand_side_by_side_where_one_has_another_protocol_too() -> None:
    frame = cells(datasets=("cifar10-c", "cifar100-c"))
    other = cells(datasets=("cifar10-c",), order="dirichlet(0.1)")
    made = drops.drops(Report(pd.concat([frame, other], ignore_index=True)))
    assert [[head.text for head in sheet.heads[3::3]] for sheet in made] == [
        ["CIFAR10", "CIFAR100"], ["CIFAR10"]
    ]  # fmt: skip


def test_long_headings_fold_and_are_no_wider_than_their_columns() -> None:
    frames = [cells(datasets=("digits-c",), order=order) for order in ("iid", "dirichlet(0.1)")]
    (sheet,) = drops.drops(Report(pd.concat(frames, ignore_index=True)))
    columns = len("Digits Digits-C Drop")
    assert pages.over_lines(sheet) == [
        [""],
        ["Digits-C, severity 5"],
        ["Digits-C, severity 5", "(dirichlet(0.1)", "order)"],
    ]
    assert all(len(line) <= columns for lines in pages.over_lines(sheet) for line in lines)
    assert r"\shortstack[c]{Digits-C, severity 5\\(dirichlet(0.1)\\order)}" in printed(sheet, "page").text
    (named,) = drops.drops(Report(cells(datasets=("my data (own)",))))
    assert r" & \shortstack[r]{my data (own),\\clean} & my data (own) & Drop " in printed(named, "page").text


def test_drops_of_datasets_without_a_common_architecture_are_tables_of_their_own() -> None:
    frame = cells(datasets=("cifar10-c", "cifar100-c", "digits-c"))
    frame = frame[(frame["dataset"] == "digits-c") == (frame["arch"] == "cct")]
    sheets_of = list(drops.drops(Report(frame)))
    assert [[head.text for head in sheet.heads[3::3]] for sheet in sheets_of] == [
        ["CIFAR10", "CIFAR100"],
        ["Digits"],
    ]
    assert not any(
        cell.text == "–" for sheet in sheets_of for line in sheet.groups[0].lines for cell in line[3:]
    )


def test_the_severity_table_has_a_column_for_each() -> None:
    frame = cells(severities=(1, 3, 5), accuracy=lambda row: 90.0 - 10 * row["severity"])
    (sheet,) = means.severities(Report(frame))
    assert [head.text for head in sheet.heads[3:]] == ["Severity 1", "Severity 3", "Severity 5"]
    for line in sheet.groups[0].lines:
        assert [cell.text for cell in line[3:]] == ["80.0", "60.0", "40.0"]
    assert list(means.severities(Report(cells()))) == []


def test_other_weights_or_settings_at_another_severity_are_another_line() -> None:
    frame = cells(("source", "tent"), ("cct",), severities=(3, 5))
    for method, column, value, names in (
        (
            "source",
            "checkpoint",
            "f" * 64,
            ["Source (weights ffffffff)", "Source (weights weights-)", "TENT (weights weights-)"],
        ),
        ("tent", "config", '{"lr": 0.5}', ["Source", "TENT (lr=0.001)", "TENT (lr=0.5)"]),
        ("tent", "batch_size", 64, ["Source", "TENT (batch size 200)", "TENT (batch size 64)"]),
        ("tent", "mode", "offline", ["Source", "TENT", "TENT"]),  # the latter with †
        ("source", "batch_size", 64, ["Source", "TENT"]),
    ):
        changed = frame.copy()
        changed.loc[where(frame, severity=5, method=method), column] = value
        (sheet,) = means.severities(Report(changed))
        assert sorted(line[1].text for line in sheet.groups[0].lines) == names


def test_summary_has_the_best_published_number_beside_ours() -> None:
    frame = cells(datasets=("cifar10-c",), n_images=10_000)
    report = Report(frame, published.load("quantile2026"))
    sheet = means.summary(report)
    assert sheet.heads[-1].text == "Best published"
    first = {line[0].text: line[-1] for line in sheet.groups[0].lines if line[0].text}
    assert first["ResNet18"].text == "82.2"  # as in the paper's summary table
    assert "SoTTA" in first["ResNet18"].after
    assert "of the same setting (quantile2026)" in sheet.footer
    where, weights = (sheet.notes[mark] for mark in first["ResNet18"].marks)
    assert where == "published in quantile2026: appendix, tables of accuracies per corruption at severity 5"
    assert weights.startswith("weights: those of SoTTA's own article, where the numbers are from")
    sheet = means.summary(Report(frame.assign(n_images=360), published.load("quantile2026")))
    assert {line[-1].text for line in sheet.groups[0].lines} == {"–", ""}


def test_the_best_published_mean_stands_beside_no_mean_of_fewer_corruptions() -> None:
    frame = cells(datasets=("cifar10-c",), corruptions=("snow", "fog"))
    sheet = means.summary(Report(frame, published.load("quantile2026")))
    assert {line[-1].text for line in sheet.groups[0].lines} == {"–", ""}


def test_a_paper_is_not_the_best_published_beside_its_own_method() -> None:
    frame = cells(("source", "quantile_paper"), ("cct",), datasets=("cifar10-c",), n_images=10_000)
    sheet = means.summary(Report(frame, published.load("quantile2026")))
    assert [line[-1].text for line in sheet.groups[0].lines] == ["–"]  # 88.8 is the paper's own


def test_missing_cells_are_seen_in_every_table() -> None:
    frame = cells(severities=(3, 5), datasets=("cifar10-c",))
    frame = frame[~where(frame, arch="cct", method="tent", corruption="snow", severity=5)]
    for name, sheet in sheets(frame).items():
        if name not in ("given", "protocols", "per_corruption_cifar10-c-severity-3"):
            text = printed(sheet, "page").text
            assert "no mean: 14 of 15 corruptions" in text, name
            assert "--" in text, name


def test_methods_that_were_given_the_same_are_said_once(many: pd.DataFrame) -> None:
    sheet = methods.given(Report(many))
    names = [line[0].text for line in sheet.groups[0].lines]
    assert names.count("EATA") == 1
    assert names.count("TENT") == 2  # two settings
    assert [line[1].text for line in sheet.groups[0].lines] == sorted(
        (line[1].text for line in sheet.groups[0].lines), key=lambda mode: mode == "offline"
    )


# ---- on paper


@pytest.mark.parametrize("document", ["all", "all_column", "appendix", "appendix_column"])
def test_troubled_results_compile(frame: pd.DataFrame, tmp_path: Path, document: str) -> None:
    latex.write(frame, tmp_path, report=Report(frame, published.load()))
    signs = latex.escape(" ".join(SPECIAL))
    path = tmp_path / f"{document}.tex"
    path.write_text(path.read_text().replace(r"\end{document}", signs + "\n" + r"\end{document}"))
    text = compiled(tmp_path, document)
    assert "no batch norm" in text


@pytest.fixture(scope="module")
def written(many: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    latex.write(many, folder)
    return folder


@pytest.mark.parametrize("document", ["all", "all_column", "appendix", "appendix_column"])
def test_twenty_methods_compile_and_no_footnote_leaves_its_page(written: Path, document: str) -> None:
    text = compiled(written, document)
    source = "".join(path.read_text() for path in written.glob("*.tex"))
    floats = [r"\begin{table}", r"\begin{table*}"]
    form = "_column" if document.endswith("_column") else ""
    names = re.findall(r"\\input{(.*?)}", (written / f"{document}.tex").read_text())
    count = sum((written / name).read_text().count(each) for name in names for each in floats)
    # The end of each footer is on paper as often as there are floats.
    ends = (GIVEN.rpartition("–: ")[2], "each batch is seen once.", "against online ones.", pages.AGAIN)
    pattern = "|".join(r"\s+".join(map(re.escape, end.split())) for end in ends)
    assert len(re.findall(pattern, _flat(text))) == count
    assert source.count(f"per_corruption_cifar10-c-severity-5{form}") >= 1


@pytest.mark.parametrize(("options", "form"), [("", ""), ("[twocolumn]", "_column")])
def test_fragments_fit_into_a_paper_with_nothing_but_two_packages(
    many: pd.DataFrame, tmp_path: Path, options: str, form: str
) -> None:
    latex.write(many, tmp_path)
    names = re.findall(r"\\input{(.*?)}", (tmp_path / f"all{form}.tex").read_text())
    inputs = "\n".join(f"\\input{{{name}}}\\clearpage" for name in names)
    (tmp_path / "paper.tex").write_text(
        f"\\documentclass{options}{{article}}\\usepackage{{booktabs,graphicx}}\n"
        f"\\begin{{document}}\n{inputs}\n\\end{{document}}\n"
    )
    assert "Increase" in compiled(tmp_path, "paper")


def test_a_wide_table_is_broken_as_on_a_page_of_one_column(many: pd.DataFrame) -> None:
    sheet = sheets(many)["statistics"]
    assert sheet.wide
    page, column = (printed(sheet, form).text for form in ("page", "column"))
    assert column == page.replace(r"\label{tab:statistics", r"\label{tab:statistics-column")


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_accuracies_by_corruption_stay_readable_in_one_of_two_columns(
    many: pd.DataFrame, tmp_path: Path, seeds: tuple[int, ...]
) -> None:
    frame = pd.concat([many.assign(seed=seed) for seed in seeds], ignore_index=True)
    frame = frame.assign(
        config='{"epochs": 10, "source_features": 2000}', accuracy=frame["accuracy"] + frame["seed"]
    )
    (sheet,) = per_corruption.sheets(Report(frame[frame["severity"] == 5]).tables[0])
    latex.write_sheets([sheet], tmp_path, "all")
    assert min(font_sizes(tmp_path, "all_column")) >= 7
    text = _flat((tmp_path / "all_column.txt").read_text())
    assert "F 2k" in text
    assert all(re.search(rf"{naming.title(column)}\b", text) for column in CORRUPTIONS)


def _flat(text: str) -> str:
    """Text of a page with columns: words may stand in any line, so lines are joined."""
    return " ".join(text.split())
