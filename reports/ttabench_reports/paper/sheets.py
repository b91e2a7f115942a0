"""The paper's tables with three numbers in place of one: ours, the paper's, and the difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench_reports.paper import theirs
from ttabench_reports.paper.ours import MEAN, Found, Ours
from ttabench_reports.sheets.sheet import Entry, Group, Head, Line, Sheet
from ttabench_reports.sheets.words import minus
from ttabench_reports.words import naming
from ttabench_reports.words.notes import Notes

METHOD = "quantile_paper"
SETTING = {"minibatch": 512}  # images per update of the paper's tables
OTHERS = ("bn_stats", "tent", "cotta", "eata", "sotta", "rotta", "sar", "medbn", "quantile")
"""Methods of which the paper prints no table on these networks, or one only of SoTTA."""
RUNTIME: tuple[tuple[str, str, dict[str, Any], tuple[str, str]], ...] = (
    ("tent", "TENT", {}, ("", "")),
    ("cotta", "CoTTA, a mean teacher", {}, ("", "")),
    (METHOD, "Quantile (paper), bank in host memory", {"bank_on_cpu": True}, ("2.03", "1,429")),
    (METHOD, "Quantile (paper), bank on the device", {"bank_on_cpu": False}, ("", "")),
    (
        "quantile_strict",
        "Quantile without the decorruptor",
        {"decorruptor": "offset", "keep": "lowest"},  # keep as quantile_paper, so that no more differs
        ("1.44", "765"),
    ),
)
"""Method, its name in the table, its settings; of the paper: seconds per epoch and MB of the device."""
INDEX = "about, for the index of one batch; python scripts/bench_quantile.py measures ours"
IMAGES = "10,000"
"""Images of an epoch of the paper."""
TRIPLE = ("ours", "paper", "diff.")


def every(ours: Ours, runtime: Ours) -> list[Sheet]:
    """All tables, in the order of the paper."""
    return [
        table1(ours), table2(ours), table3(ours), severity(ours), others(ours), *appendix(ours),
        time(runtime),
    ]  # fmt: skip


def of_paper(ours: Ours, dataset: str, arch: str, method: str, severity: int = 5) -> Found:
    """Our row of a method, of the paper's method in the setting of its tables."""
    settings = SETTING if method == METHOD else {}
    return ours.find(dataset, arch, method, severity=severity, **settings)


class _Notes(Notes):
    """Footnotes: why a number of ours is missing, and where the paper has one of its own from."""

    def three(
        self, ours: float, paper: float, why: str, *, signed: bool = False, origin: str = ""
    ) -> list[Entry]:
        """Ours, the paper's (of that `origin`), and the difference of the printed numbers."""
        form = naming.points if signed else naming.number
        mine = _number(ours, form)
        cell = Entry(mine) if mine else Entry("–", marks=self.letter(why or "not measured"))
        gap = _number(_gap(ours, paper), naming.points)
        return [cell, self.paper(_number(paper, form), origin), Entry(gap, small=True)]

    def paper(self, text: str, origin: str) -> Entry:
        """A number of the paper; `origin` says where it is from, if not its own."""
        return Entry(text or "–", marks=self.letter(origin) if text and origin else "")


def _number(value: float, form: Callable[[float], str]) -> str:
    return "" if math.isnan(value) else minus(form(value))


def _over(found: Iterable[Found]) -> str:
    """How many corruptions our means are over, as a sentence, where they are not the paper's fifteen."""
    counts = sorted({one.over for one in found if one.over})
    if not counts or counts == [len(CORRUPTIONS)]:
        return ""
    return f" Our mean is over {naming.span(counts)} corruption{'s' if counts[-1] > 1 else ''}."


def _gap(one: float, other: float) -> float:
    """The difference of two printed numbers."""
    return round(one, 1) - round(other, 1)


def _heads(*labels: str, groups: Sequence[str]) -> tuple[list[Head], list[tuple[str, int]]]:
    heads = [Head(label, "l") for label in labels]
    heads += [Head(word) for _ in groups for word in TRIPLE]
    return heads, [("", len(labels)), *((name, 3) for name in groups)]


def table1(ours: Ours) -> Sheet:
    """Source, the paper's method, and the increase, on every dataset and network."""
    notes, groups = _Notes(), []
    shown: list[Found] = []
    for dataset in theirs.DATASETS:
        block: list[Line] = []
        for arch in theirs.ARCHS:
            source, method = (of_paper(ours, dataset, arch, name) for name in ("source", METHOD))
            shown += source, method
            paper = [theirs.accuracy(dataset, arch, name) for name in ("source", METHOD)]
            increase = _gap(method.value(MEAN), source.value(MEAN))
            block.append([
                Entry(naming.arch(arch)),
                *notes.three(source.value(MEAN), paper[0], source.why),
                *notes.three(method.value(MEAN), paper[1], method.why),
                *notes.three(increase, paper[1] - paper[0], method.why or source.why, signed=True),
            ])  # fmt: skip
        groups.append(Group(_dataset(ours, dataset), [block]))
    heads, over = _heads("Network", groups=("Source", "Quantile (paper)", "Increase"))
    caption = "The paper's Table 1: mean accuracy (%) over the fifteen corruptions at severity 5."
    caption += _over(shown)
    footer = (
        "diff.: ours minus the paper's, of the printed numbers. Increase: over Source. The paper's "
        f"current SOTA is SoTTA on ResNet18, of another article: {_sota()}. Ours: see the table of methods."
    )
    return Sheet("paper_table1", caption, footer, heads, groups, over, notes=notes.texts, wide=True)


def _sota() -> str:
    """What Table 1 has as the state of the art: ``82.2 on CIFAR10-C, 60.5 on CIFAR100-C``."""
    means = {dataset: theirs.accuracy(dataset, "resnet18", "sotta") for dataset in theirs.DATASETS}
    known = {dataset: mean for dataset, mean in means.items() if not math.isnan(mean)}
    return ", ".join(f"{naming.number(mean)} on {naming.dataset(each)}" for each, mean in known.items())


def table2(ours: Ours) -> Sheet:
    """The drop from clean to corrupted images; the two networks of CCT are one row."""
    notes = _Notes()
    shown: list[Found] = []
    by: dict[str, dict[str, dict[str, str]]] = {}
    for row in theirs.drops():
        by.setdefault(row["approach"], {})[row["clean_dataset"]] = row
    groups = []
    for clean in ("cifar10", "cifar100"):
        block: list[Line] = []
        for approach, printed in by.items():
            name, arch = approach.split("-")
            method = METHOD if name == "quantile" else name
            found = of_paper(ours, f"{clean}-c", arch, method)
            shown.append(found)
            row, origin = printed[clean], theirs.taken_from(method, arch)
            drop = _gap(found.clean, found.value(MEAN))
            block.append([
                Entry(f"{naming.method(method)} on {naming.arch(arch)}"),
                *notes.three(found.clean, float(row["clean"]), found.why, origin=origin),
                *notes.three(found.value(MEAN), float(row["corrupted"]), found.why, origin=origin),
                *notes.three(drop, float(row["printed_drop"]), found.why, origin=origin),
            ])  # fmt: skip
        groups.append(Group(_dataset(ours, f"{clean}-c"), [block]))
    heads, over = _heads("Method", groups=("Clean", "Corrupted", "Drop"))
    caption = (
        "The paper's Table 2: accuracy (%) on clean images, not adapted, the mean over corruptions, the drop."
        + _over(shown)
    )
    return Sheet(
        "paper_table2", caption, "diff.: ours minus the paper's.", heads, groups, over, notes=notes.texts,
        wide=True,
    )  # fmt: skip


def table3(ours: Ours) -> Sheet:
    """Images per update and quantiles per class: the rows that the paper has, and no others."""
    notes, block = _Notes(), []
    shown: list[Found] = []
    for row in theirs.ablation():
        batch, points = int(row["batch_size"]), int(row["quantiles_per_class"])
        found = ours.find(row["dataset"], row["arch"], METHOD, minibatch=batch, quantiles_per_class=points)
        shown.append(found)
        block.append([
            Entry(str(batch)), Entry(str(points)),
            *notes.three(found.value(MEAN), float(row["accuracy"]), found.why),
        ])  # fmt: skip
    heads, over = _heads("Images per update", "Quantiles per class", groups=("Mean accuracy",))
    caption = (
        f"The paper's Table 3: mean accuracy (%) of its method with CCT on {_dataset(ours, 'cifar100-c')}."
        + _over(shown)
    )
    footer = _updates(shown)
    return Sheet(
        "paper_table3", caption, footer, heads, [Group("", [block])], over, labels=2, notes=notes.texts
    )


def _updates(found: Sequence[Found]) -> str:
    """That our rows have other numbers of updates, where all have the same epochs."""
    epochs = {_epochs(one.about) for one in found if one.about}
    if len(epochs) != 1:
        return ""
    number = epochs.pop()
    return (
        f"Ours: {number} epoch{'s' * (number > 1)} in each row, so rows with fewer images per update have "
        "more updates. The paper does not state its epochs."
    )


def severity(ours: Ours) -> Sheet:
    """The accuracies under the panels of Figure 1."""
    notes, block = _Notes(), []
    for row in theirs.severities():
        line = [Entry(row["severity"])]
        for method, printed in (("source", row["source"]), (METHOD, row["quantile"])):
            found = of_paper(ours, row["dataset"], row["arch"], method, int(row["severity"]))
            line += notes.three(found.value(row["corruption"]), float(printed), found.why)
        block.append(line)
    heads, over = _heads("Severity", groups=("Source", "Quantile (paper)"))
    caption = (
        f"The paper's Figure 1: accuracy (%) under Gaussian noise, ResNet18, {_dataset(ours, 'cifar10-c')}."
    )
    return Sheet("paper_severity", caption, "", heads, [Group("", [block])], over, notes=notes.texts)


def others(ours: Ours) -> Sheet:
    """The other methods on each network: mean accuracies of ours, and the paper's of SoTTA."""
    notes, groups = _Notes(), []
    shown: list[Found] = []
    for dataset in theirs.DATASETS:
        block: list[Line] = []
        for method in ("source", *OTHERS, METHOD):
            line = [Entry(naming.method(method))]
            for arch in theirs.ARCHS:
                found = of_paper(ours, dataset, arch, method)
                shown.append(found)
                value = _number(found.value(MEAN), naming.number)
                line.append(Entry(value) if value else Entry("–", marks=notes.letter(found.why)))
            paper = _number(theirs.accuracy(dataset, "resnet18", method), naming.number)
            line.append(notes.paper(paper, theirs.taken_from(method, "resnet18")))
            block.append(line)
        groups.append(Group(_dataset(ours, dataset), [block]))
    heads = [
        Head("Method", "l"), *(Head(naming.arch(arch)) for arch in theirs.ARCHS), Head("paper, ResNet18"),
    ]  # fmt: skip
    caption = "The methods of the appendix, ours on each network. Mean accuracy (%) over the corruptions."
    caption += _over(shown)
    footer = (
        "Online methods see each image once; quantile matching sees all, in each epoch, before it scores."
    )
    return Sheet("paper_methods", caption, footer, heads, groups, notes=notes.texts, wide=True)


def appendix(ours: Ours) -> Iterator[Sheet]:
    """The tables of the appendix: every corruption of Table 1, of SoTTA and of Table 3."""
    for dataset in theirs.DATASETS:
        notes, groups = _Notes(), []
        for arch in theirs.ARCHS:
            rows = [_row(ours, dataset, arch, name) for name in ("source", METHOD)]
            increase = _Row(
                "Increase", [_gap(*pair) for pair in zip(rows[1].ours, rows[0].ours, strict=True)],
                [theirs.increase(dataset, arch, c) for c in COLUMNS], rows[1].why or rows[0].why,
                naming.points,
            )  # fmt: skip
            every = [*rows, increase, _row(ours, dataset, arch, "sotta")]
            groups.append(Group(naming.arch(arch), [[*_three(row, notes)] for row in every if row.printed]))
        yield _per_corruption(naming.slug(dataset), _dataset(ours, dataset), groups, notes)
    notes, blocks = _Notes(), []
    for row in theirs.ablation():
        batch, points = int(row["batch_size"]), int(row["quantiles_per_class"])
        settings = {"minibatch": batch, "quantiles_per_class": points}
        name = f"{METHOD}[minibatch={batch},quantiles_per_class={points}]"
        shown = f"{batch} images, {points} quantiles"
        blocks.append([*_three(_row(ours, row["dataset"], row["arch"], name, shown, **settings), notes)])
    yield _per_corruption("ablation", f"{_dataset(ours, 'cifar100-c')}, CCT", [Group("", blocks)], notes)


COLUMNS = (*CORRUPTIONS, MEAN)


@dataclass(frozen=True)
class _Row:
    """Accuracies in percent, or points, in :data:`COLUMNS`: ours and the paper's.

    `why` ours are missing; the `origin` of the paper's, if not its own.
    """

    name: str
    ours: Sequence[float]
    paper: Sequence[float]
    why: str
    form: Callable[[float], str] = naming.number
    origin: str = ""

    @property
    def printed(self) -> bool:
        return not all(map(math.isnan, self.paper))


def _row(ours: Ours, dataset: str, arch: str, method: str, name: str = "", **settings: Any) -> _Row:
    """`method` as the paper's number has it; `settings` where they are not those of the paper's tables."""
    base = method.partition("[")[0]
    found = ours.find(dataset, arch, base, **settings) if settings else of_paper(ours, dataset, arch, base)
    paper = [theirs.accuracy(dataset, arch, method, c) for c in COLUMNS]
    why = found.why or f"not every corruption was measured; the mean is over {found.over}"
    return _Row(
        name or naming.method(method), [found.value(c) for c in COLUMNS], paper, why,
        origin=theirs.taken_from(base, arch),
    )  # fmt: skip


def _three(row: _Row, notes: _Notes) -> Iterator[Line]:
    """Ours, the paper's and the difference of the printed numbers, one below the other."""
    mine = [_number(value, row.form) for value in row.ours]
    mark = "" if all(mine) else notes.letter(row.why)
    yield [Entry(row.name), Entry("ours", marks=mark), *(Entry(text or "–") for text in mine)]
    yield [
        Entry(""),
        notes.paper("paper", row.origin),
        *(Entry(_number(value, row.form) or "–") for value in row.paper),
    ]
    gaps = [_gap(*pair) for pair in zip(row.ours, row.paper, strict=True)]
    yield [Entry(""), Entry("diff."), *(Entry(_number(gap, naming.points), small=True) for gap in gaps)]


def _per_corruption(name: str, of: str, groups: list[Group], notes: _Notes) -> Sheet:
    heads = [Head("Method", "l"), Head("whose", "l"), *(Head(naming.short(each)) for each in COLUMNS)]
    caption = f"The paper's appendix: accuracy (%) per corruption on {of}, severity 5."
    return Sheet(f"paper_appendix_{name}", caption, "", heads, groups, labels=2, notes=notes.texts, wide=True)


def time(runtime: Ours) -> Sheet:
    """Section 5.2: seconds per epoch and memory, beside what the paper says."""
    notes, block = _Notes(), []
    for method, words, settings, paper in RUNTIME:
        found = runtime.find("cifar100-c", "resnet18", method, **settings)
        seconds, memory = _per_pass(found.about), _memory(found.about, "device_mb")
        why = "" if seconds == seconds else found.why or "not measured"
        block.append([
            Entry(words, marks=notes.letter(why) if why else ""),
            Entry(f"{int(found.about['n_images']):,}" if found.about else "–"),
            Entry(IMAGES if any(paper) else "–"),
            Entry(_number(seconds, lambda v: f"{v:.2f}") or "–"), Entry(paper[0] or "–"),
            Entry(memory or "–", marks="" if memory or why else notes.letter(NO_GPU)), Entry(paper[1] or "–"),
            Entry(_memory(found.about, "host_mb") or "–"),
            Entry(_number(found.value("gaussian_noise"), naming.number) or "–"),
        ])  # fmt: skip
    index = ("–", "128", "–", "0.002", "–", "570", "–", "–")
    block.append([Entry("The index alone", marks=notes.letter(INDEX)), *map(Entry, index)])
    heads = [Head("Method", "l"), *map(Head, (*("ours", "paper") * 3, "ours", "ours"))]
    over = [
        ("", 1), ("Images", 2), ("Seconds per epoch", 2), ("Device MB", 2), ("Host MB", 1),
        ("Accuracy (%)", 1),
    ]  # fmt: skip
    caption = (
        "The paper's Section 5.2: time and memory: ResNet18, "
        f"{_dataset(runtime, 'cifar100-c')}, Gaussian noise. Quantile matching has at most 128 images per "
        "update."
    )
    devices = sorted({str(one.about["processor"]) for one in runtime.shown()} - {"", "nan"})
    footer = f"Ours: on {' and '.join(devices)}. " if devices else ""
    if len(devices) > 1:
        footer += "Rows of different devices cannot be compared. "
    footer += (
        "Paper: on an NVIDIA H100. An epoch is a pass over these images; of an online method, its only one. "
        "What is done once, such as scoring, is divided by the epochs too. Without the decorruptor, one "
        "number per channel is trained."
    )
    return Sheet(
        "paper_runtime", caption, footer, heads, [Group("", [block])], over, notes=notes.texts, wide=True
    )


NO_GPU = "measured on a processor, which has no memory of a device"


def _per_pass(about: Mapping[str, Any]) -> float:
    """Seconds of one pass over the images: of an offline method, its time by its epochs."""
    return float(about["seconds"]) / _epochs(about) if about else math.nan


def _epochs(about: Mapping[str, Any]) -> int:
    """Passes over the images before they are scored; of an online method, its only one."""
    epochs = about["_settings"].get("epochs", 1) if about["mode"] == "offline" else 1
    return max(1, int(about["epochs"] or epochs))


def _memory(about: Mapping[str, Any], name: str) -> str:
    value = about.get(name, math.nan)
    return "" if value is None or math.isnan(value) else f"{value:,.0f}"


def _dataset(ours: Ours, published: str) -> str:
    """The dataset of the paper, and the one that stands for it."""
    here = ours.dataset(published)
    name = naming.dataset(published)
    return name if here == published else f"{name} (ours: {naming.dataset(here)})"
