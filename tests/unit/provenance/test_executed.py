"""What runs while a cell is measured is in the hash of its code, or changes no number. Takes minutes."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import ttabench as core
import ttabench_methods
from tests.unit import data_fakes as fakes
from tests.unit.conftest import Run
from tests.unit.data_fakes import clean_images, write_png
from ttabench.cell import Cell, Result
from ttabench.data import catalog
from ttabench.provenance import roots
from ttabench.provenance.staleness import code_of
from ttabench.registry import METHODS, entry_points
from ttabench.run.worker import Worker

PACKAGES = {
    Path(package.__file__ or "").parent: package.__name__ for package in (core, ttabench_methods)
}  # fmt: skip

BESIDE = {
    "ttabench.observe", "ttabench.provenance", "ttabench.run.executors", "ttabench.store", "ttabench.sweep",
    "ttabench.system.garbage_collection", "ttabench.run.worker:Worker._clean_logits",
    "ttabench.data.own.plain_images:is_plain", "ttabench.data.own.open_own:corruptions_in",
}  # fmt: skip
"""What is measured or done beside the accuracy: what it calls changes no accuracy either."""

HARMLESS: Mapping[str, str] = {
    "ttabench.data.balanced_subset:undrawn": "names the whole of a dataset; data have a fingerprint",
    "ttabench.data.balanced_subset:drawn": "opens data by name; data have a fingerprint",
    "ttabench.data.published.cifar:CifarC.pieces": "names files; data have a fingerprint",
    "ttabench.data.published.clean_cifar:CleanCifar.pieces": "names files; data have a fingerprint",
    "ttabench.data.published.imagenet_subset:first_folder": "opens data by name; data have a fingerprint",
    "ttabench.data.published.imagenet_subset:names_in": "opens data by name; data have a fingerprint",
    "ttabench.data.published.imagenet_subset:open_imagenet_c": "opens data by name; data have a fingerprint",
    "ttabench.data.published.natural_shifts:Cifar101.pieces": "names files; data have a fingerprint",
    "ttabench.data.published.own_head:open_own_head": "opens data by name; data have a fingerprint",
    "ttabench.data.on_disk:OnDisk._known_folder_hash": "is in the identity of a result",
    "ttabench.data.own.image_folder_checks": "refuses folders with images of other formats",
    "ttabench.data.own.set_checks": "refuses sets that do not go together",
    "ttabench.data.files.array_files:save_images": "keeps images; what decodes them is a root of its readers",
    "ttabench.data.files.postscript": "keeps Pillow from running programs among images",
    "ttabench.data.files.whole_archive": "refuses archives that are not whole",
    "ttabench.data.files.image_folders:files_in_classes": "finds own data; they have a fingerprint",
    "ttabench.data.foreign:_foreign_name": "names foreign images; they have a fingerprint",
    "ttabench.data.foreign:coded": "names foreign images; they have a fingerprint",
    "ttabench.data.on_disk:OnDisk.fingerprint": "is in the identity of a result",
    "ttabench.data.own.ccc_shards:is_ccc": "opens data by name; data have a fingerprint",
    "ttabench.data.own.domain_checks": "opens data by name; data have a fingerprint",
    "ttabench.data.own.domain_folders": "opens data by name; data have a fingerprint",
    "ttabench.data.own.open_own": "opens data by name; data have a fingerprint",
    "ttabench.measure.declared_source": "refuses source data that a method does not declare",
    "ttabench.measure.torch_defaults:own_settings": "undoes what other cells left; its modes are in the hash",
    "ttabench.measure.torch_defaults:_hooks_of_all_modules": "undoes what other cells left",
    "ttabench.measure.torch_defaults:changed_setting": "is an alarm about settings of torch",
    "ttabench.measure.torch_defaults:settings": "is what that alarm compares",
    "ttabench.measure.streams.images:PathStream.follow_path": "asks earlier for points that are in the hash",
    "ttabench.models.architectures.arch_names:usual_name": "names networks; an identity has their weights",
    "ttabench.models.soundness.even_threads": "keeps the trial of gradients from a fault of torch",
    "ttabench.models.soundness.gradient_flow": "is an alarm about what gradients reach; it changes nothing",
    "ttabench.models.soundness.group_norm": "keeps gradients, which are the same, from a fault of torch",
    "ttabench.models.soundness.noise_logits": "refuses networks that give other logits the next time",
    "ttabench.models.soundness.torch_errors": "says what torch's errors mean",
    "ttabench.models.soundness.usable_tensors": "refuses networks whose tensors cannot be learned from",
    "ttabench.run.other_generators": "seeds generators that no method of ttabench draws from",
    "ttabench.run.prepared_method": "calls a root of the hash, and refuses what a reset cannot restore",
    "ttabench.run.progress_events": "says how far a sweep is",
    "ttabench.run.gpu": "chooses a device",
    "ttabench.models.checkpoints": "finds weights; their hash is in the identity of a result",
    "ttabench.models.external": "opens networks by name; what makes classifiers of them is in the hash",
    "ttabench.models.model": "finds weights; their hash is in the identity of a result",
    "ttabench.models.trained_model": "finds weights; their hash is in the identity of a result",
    "ttabench.models.training": "names weights; their hash is in the identity of a result",
    "ttabench.method.unrestored": "refuses methods that a reset does not restore",
    "ttabench.method.spelling": "reads settings; they are in the identity of a result",
    "ttabench.cell.stream_spec": "reads streams; what else of it is used while measuring is in the hash",
    "ttabench.cell.protocol": "refuses protocols; what else of it is used while measuring is in the hash",
    "ttabench.run.continual_failures": "leaves out failures of cells that have a number",
    "ttabench.run.replaced_torch": "refuses methods that replace a part of torch",
    "ttabench.run.shared_folder": "shares work between processes",
    "ttabench.run.summary_cache": "keeps what the source gives; files are named by the code that makes them",
    "ttabench.run.worker": "calls the roots of the hash, and stores what they give",
    "ttabench.run.cell_images": "calls the roots of the hash, for a test set or a long stream",
    "ttabench.run.cell_result": "collects what is stored of a cell",
    "ttabench.system.bounded_folder": "deletes what caches keep, which is made again",
    "ttabench.run.unchanged_data": "refuses data that changed; they have a fingerprint",
    "ttabench.cell.subset_names": "names datasets; data have a fingerprint",
    "ttabench.run.kept_objects": "keeps objects for the next cell",
}
"""What runs, is not in the hash, and changes no number → why. Its callees are looked at."""
HOOKS = frozenset({"alarms", "alarm", "check", "needs_of"})
"""Members of methods that warn or declare what a method needs."""


def name_of(code: CodeType) -> tuple[str, str] | None:
    """The module and the definition, as in `roots.shown`, of code of ttabench; None for other code."""
    file = Path(code.co_filename)
    for folder, package in PACKAGES.items():
        if file.is_relative_to(folder):
            module = ".".join([package, *file.relative_to(folder).with_suffix("").parts])
            return module.removesuffix(".__init__"), code.co_qualname.partition(".<locals>")[0]
    return None


def is_one_of(names: Mapping[str, str] | set[str], module: str, definition: str) -> bool:
    parts = module.split(".")
    above = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return bool(names.keys() & above if isinstance(names, Mapping) else names & above) or (
        f"{module}:{definition}" in names
    )


class Trace:
    """The functions of ttabench that ran while each cell was measured, but for those called by `BESIDE`."""

    def __init__(self) -> None:
        self.by_cell: dict[Cell, set[CodeType]] = {}
        self._kind: dict[CodeType, bool] = {}

    def _is_beside(self, code: CodeType) -> bool:
        if code not in self._kind:
            found = name_of(code)
            self._kind[code] = found is not None and is_one_of(BESIDE, *found)
        return self._kind[code]

    def run(self, worker: Worker, cells: tuple[Cell, ...], stored: Callable[[Result], None]) -> None:
        codes: set[CodeType] = set()
        inside: list[FrameType] = []  # the frame of `BESIDE` that is running

        def saw(frame: FrameType, event: str, _: object) -> None:
            if inside:
                if event == "return" and frame is inside[0]:
                    inside.clear()
            elif event == "call":
                if self._is_beside(frame.f_code):
                    inside.append(frame)
                else:
                    codes.add(frame.f_code)

        def one(result: Result) -> None:
            assert result.status == "ok", result
            self.by_cell[result.cell] = {*codes}
            stored(result)

        sys.setprofile(saw)
        try:
            RUN(worker, cells, one)
        finally:
            sys.setprofile(None)

    def not_reached(self) -> dict[str, list[str]]:
        """Definitions that ran and are neither in the hash of the cell nor known to be harmless → cells."""
        found: dict[str, set[str]] = {}
        for cell, codes in self.by_cell.items():
            reached = code_of(cell).definitions.keys()
            for name in filter(None, map(name_of, codes)):
                if not _counts(*name, reached):
                    found.setdefault(":".join(name), set()).add(f"{cell.label} on {cell.arch}")
        return {name: sorted(cells) for name, cells in sorted(found.items())}


RUN = Worker.run


def _counts(module: str, definition: str, reached: object) -> bool:
    if definition.startswith("<"):  # the statements of a module
        return True
    parts = definition.split(".")
    name = ".".join(parts[:2])
    nodes = [(module, roots.WHOLE, ""), (module, parts[0], parts[1] if len(parts) == 2 else "")]
    if any(roots.shown(node) in reached for node in nodes):  # type: ignore[operator]
        return True
    return (
        roots._left_out(module) or roots._left_out(f"{module}:{name}")
        or is_one_of(HARMLESS, module, name)
        or (module.startswith(("ttabench_methods", "ttabench.method", "ttabench.nn")) and parts[-1] in HOOKS)
        or definition in ("NormAdapter.needs_of", "norm_needs")
    )  # fmt: skip


DIGITS = ("--datasets", "digits-c")
RESNET = (*DIGITS, "--archs", "resnet18")
FOR_TRANSFORMERS = "actmad_vit,dpcore,foa,rem"
SOME = ("--methods", "bn_stats,cotta,tent,quantile")
QUICK = "one method"
CASES = {
    QUICK: ("--methods", "bn_stats", *RESNET, "--corruptions", "fog"),
    "every method, as in its paper": ("--methods", "all", *RESNET, "--corruptions", "fog"),
    "transformers": ("--methods", f"{FOR_TRANSFORMERS},tent,sar", *DIGITS, "--archs", "cct,vit_lite"),
    "online": (*SOME, *RESNET, "--mode", "online", "--reset", "every(2)"),
    "offline": (*SOME, *RESNET, "--mode", "offline", "--held-out", "0.5", "--epochs", "2"),
    "order": (*SOME, *RESNET, "--order", "dirichlet(0.1)"),
    "foreign images": (*SOME, *RESNET, "--contamination", "noise(0.5)"),
    "mixed": (*SOME, *RESNET, "--stream", "mixed"),
    "recurring": (*SOME, *RESNET, "--stream", "recurring(2,corruptions=fog+snow)", "--reset", "continual"),
    "gradual": (*SOME, *RESNET, "--stream", "gradual", "--reset", "episodic"),
    "ccc": ("--methods", "bn_stats", *RESNET, "--stream", "ccc(60,length=20,corruptions=fog+contrast)"),
    "hard ccc": ("--methods", "bn_stats", *RESNET, "--stream", "ccc(0,length=20,corruptions=fog+snow)"),
    "cdc": (*SOME, *RESNET, "--stream", "cdc(1,rounds=2,corruptions=fog+snow)"),
    "a pace": (*SOME, *RESNET, "--pace", "1", "--pace-ratio", "bn_stats=2,cotta=2,tent=2,quantile=2"),
    "every corruption": ("--methods", "bn_stats", *RESNET, "--corruptions", "every", "--severities", "1"),
}  # fmt: skip


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == QUICK else pytest.mark.slow) for case in CASES]
)
@pytest.mark.usefixtures("own_cache")
def test_what_runs_while_a_cell_is_measured_is_in_its_hash(
    case: str, ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace()
    monkeypatch.setattr(Worker, "run", lambda *arguments: trace.run(*arguments))
    options = CASES[case]
    further = () if "--corruptions" in options or "--stream" in options else ("--corruptions", "fog")
    done = ttabench(
        "sweep", *options, *further, "--limit", "24", "--batch-size", "8", "--workers", "0",
        "--out", tmp_path / "results",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert trace.by_cell
    missing = trace.not_reached()
    assert not missing, "\n" + json.dumps(missing, indent=1)
    if "all" in options:
        measured = {cell.method for cell in trace.by_cell}
        assert {*entry_points(METHODS)} - measured == {*FOR_TRANSFORMERS.split(",")}


def write_images(folder: Path, count: int) -> None:
    for number, pixels in enumerate(clean_images(count)):
        write_png(folder / f"{number:02}.png", pixels)


def arrays(folder: Path, few_images: Path) -> tuple[str, ...]:
    shutil.copytree(few_images, folder / few_images.name)
    return "--datasets", "./few-c-local", "--corruptions", "fog"


def class_folders(folder: Path, _: Path) -> tuple[str, ...]:
    for part in ("test", "train", "fog/5"):
        for name in ("cat", "dog"):
            write_images(folder / "pets-local" / part / name, 12)
    return "--datasets", "./pets-local", "--corruptions", "fog"


def domains(folder: Path, _: Path) -> tuple[str, ...]:
    for domain in ("art", "photo"):
        for name in ("cat", "dog"):
            write_images(folder / "pets" / domain / name, 12)
    return "--datasets", "./pets/photo"


def some_images(folder: Path, _: Path) -> tuple[str, ...]:
    return "--datasets", "digits-c[100]", "--corruptions", "fog"


def foreign_images(folder: Path, _: Path) -> tuple[str, ...]:
    write_images(folder / "textures", 30)
    return (*DIGITS, "--corruptions", "fog", "--limit", "24", "--contamination", "./textures/(0.5)")


SLOW_DATA = (class_folders, domains, some_images, foreign_images)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "data", [arrays, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW_DATA)]
)
def test_what_runs_on_data_of_each_kind_and_an_own_network_is_in_their_hash(
    data: Callable[[Path, Path], tuple[str, ...]],
    ttabench: Run, few_images: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    check_own_network(ttabench, tmp_path, own_cache, monkeypatch, lambda: data(tmp_path, few_images))


def imagenet_with_the_same_names(root: Path) -> None:
    """As published: an image has one name in all folders."""
    fakes.make_imagenet(root, ("frost",))
    for file in list((root / "imagenet" / "val").rglob("*.JPEG")):
        file.rename(file.with_name(file.name.replace("val_", "test_")))


PUBLISHED = {
    "cifar10-c": (fakes.FAKE_CIFAR10, fakes.make_cifar),
    "cifar10.1": (fakes.FAKE_CIFAR10_1, fakes.make_cifar10_1),
    "tinyimagenet-c": (fakes.FAKE_TINY, fakes.make_tiny),
    "imagenet-c": (fakes.FAKE_IMAGENET, lambda root: fakes.make_imagenet(root, ("frost",))),
    "imagenet-c[3]": (fakes.FAKE_IMAGENET, imagenet_with_the_same_names),
    "imagenet-r[2-way]": (  # as [200-way]
        fakes.FAKE_IMAGENET_R, lambda root: fakes.make_natural(root, fakes.FAKE_IMAGENET_R, fakes.WNIDS[:2]),
    ),
    "imagenet-v2": (
        fakes.FAKE_IMAGENET_V2, lambda root: fakes.make_natural(root, fakes.FAKE_IMAGENET_V2, "012"),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PUBLISHED)
def test_what_runs_on_published_data_is_in_their_hash(
    name: str, ttabench: Run, tmp_path: Path, own_cache: Path, own_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, make = PUBLISHED[name]
    make(own_data)
    monkeypatch.setitem(catalog.PUBLISHED, facts.name, facts)
    which = () if facts.name in ("cifar10.1", "imagenet-r", "imagenet-v2") else ("--corruptions", "frost")
    check_own_network(ttabench, tmp_path, own_cache, monkeypatch, lambda: ("--datasets", name, *which))


def check_own_network(
    ttabench: Run, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch,
    options: Callable[[], tuple[str, ...]],
) -> None:  # fmt: skip
    """What runs of ttabench while cells of two methods are measured, with an own network."""
    from tests.unit.sweep_processes import NET

    (folder / "net.py").write_text(NET.replace("AvgPool2d(8)", "AdaptiveAvgPool2d(4)"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    trace = Trace()

    def run(*arguments: Any) -> None:
        shutil.rmtree(cache / "decoded", ignore_errors=True)  # so that cells decode
        trace.run(*arguments)

    monkeypatch.setattr(Worker, "run", run)
    done = ttabench(
        "sweep", "--methods", "bn_stats,actmad", "--archs", "net:build", *options(),
        "--workers", "0", "--out", folder / "results",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert trace.by_cell
    missing = trace.not_reached()
    assert not missing, "\n" + json.dumps(missing, indent=1)
