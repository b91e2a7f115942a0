from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest

from ttabench import provenance, registry
from ttabench.cell import Cell, Result
from ttabench.provenance import (
    changes,
    combined,
    current_modules,
    libraries,
    network_code,
    parts_of,
    shared_code,
    unused_modules,
)
from ttabench.store import Store, staleness
from ttabench.unit import Unit
from ttabench.worker import Worker
from ttabench.worker_state import WorkerState

CACHES = (
    provenance._current_modules, provenance._facts, provenance._imports,
    provenance.module_file, provenance._code_of, provenance._network_code, provenance._in_one_project,
    provenance.libraries, staleness._changes,
)  # fmt: skip


def forget() -> None:
    importlib.invalidate_caches()
    for cached in CACHES:
        cached.cache_clear()


@dataclass
class Project:
    """A stranger's folder: files are written into it, and its method is `some_methods.mine`."""

    root: Path

    def write(self, file: str, code: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        forget()

    def modules(self, dataset: str = "digits-c", arch: str = "") -> dict[str, str]:
        return dict(current_modules("mine", dataset, "fog", arch))

    def changed(self, file: str, code: str, arch: str = "") -> list[str]:
        """What is reported when a file gets this code."""
        before = self.modules(arch=arch)
        self.write(file, code)
        return changes(before, self.modules(arch=arch))


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    for name, code in (
        ("__init__", ""),
        ("mine", "from some_methods import helper\nfrom ttabench.nn import entropy\nimport other_package\n"),
        ("helper", "A = 1"),
        ("unused", "A = 1"),
    ):
        made.write(f"some_methods/{name}.py", code)
    made.write("other_package/__init__.py", "A = 1")
    monkeypatch.syspath_prepend(tmp_path)
    point = SimpleNamespace(module="some_methods.mine")
    monkeypatch.setattr(provenance, "entry_points", lambda group: {"mine": point})
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] in ("some_methods", "nets")]:
        del sys.modules[name]
    forget()


def test_what_a_method_imports_from_its_distribution_counts(project: Project) -> None:
    assert "some_methods.helper" in project.modules()
    assert project.changed("some_methods/helper.py", "A = 1  # the same") == []
    assert project.changed("some_methods/helper.py", "A = 2") == ["some_methods/helper.py changed"]
    assert project.changed("some_methods/unused.py", "A = 2") == []


def test_another_package_of_the_same_project_counts(project: Project) -> None:
    assert project.changed("other_package/__init__.py", "A = 2") == ["other_package/__init__.py changed"]


def test_another_package_of_the_same_installed_distribution_counts_and_no_other(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / "numpy-2.0.dist-info").mkdir()  # many distributions stand here
    project.write("a_stranger.py", "A = 1")
    project.write("some_methods/mine.py", "import a_stranger, other_package, torch")
    files = [PurePosixPath(name) for name in ("some_methods/mine.py", "other_package/__init__.py")]
    point = SimpleNamespace(module="some_methods.mine", dist=SimpleNamespace(files=files))
    monkeypatch.setattr(provenance, "entry_points", lambda group: {"mine": point})
    forget()
    assert project.changed("other_package/__init__.py", "A = 2") == ["other_package/__init__.py changed"]
    assert {"a_stranger", "torch"}.isdisjoint(project.modules())


def test_a_compiled_module_counts(project: Project) -> None:
    name = f"some_methods/fast{EXTENSION_SUFFIXES[0]}"
    (project.root / name).write_bytes(b"\x7fELF one kernel")
    project.write("some_methods/mine.py", "import some_methods.fast")
    before = project.modules()
    assert "some_methods.fast" in before
    (project.root / name).write_bytes(b"\x7fELF another one")
    forget()
    assert [text for text in changes(before, project.modules()) if "fast" in text]


def test_a_package_without_an_init_file_counts(project: Project) -> None:
    (project.root / "some_methods" / "__init__.py").unlink()
    forget()
    assert project.changed("some_methods/mine.py", "from some_methods.helper import A") == [
        "some_methods/mine.py changed", "other_package/__init__.py is gone"
    ]  # fmt: skip
    assert project.changed("some_methods/helper.py", "A = 2") == ["some_methods/helper.py changed"]


def test_the_package_that_a_module_stands_in_counts(project: Project) -> None:
    project.write("some_methods/inner/__init__.py", "")
    project.write("some_methods/inner/deep.py", "")
    project.write("some_methods/mine.py", "import some_methods.inner.deep")
    assert project.changed("some_methods/inner/__init__.py", "import torch") == [
        "some_methods/inner/__init__.py changed"
    ]


def test_a_method_of_ttabench_that_a_stranger_builds_on_counts(project: Project) -> None:
    project.write("some_methods/mine.py", "from ttabench_methods.tent import Tent")
    assert "ttabench_methods.tent" in project.modules()
    assert "ttabench_methods.references" not in project.modules()


def test_a_network_of_the_user_and_what_it_imports_from_its_folder_count(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("here/nets.py", "from layers import A\n\ndef build(): ...")
    project.write("here/layers.py", "A = 1")
    monkeypatch.chdir(project.root / "here")  # not on the path: a model is looked for in the current folder
    forget()
    arch = "nets:build"
    assert {"nets", "layers"} <= project.modules(arch=arch).keys()
    assert project.changed("here/layers.py", "A = 2", arch) == ["layers.py changed"]
    assert project.changed("here/nets.py", "from layers import A", arch) == ["nets.py changed"]
    before = project.modules(arch=arch)
    monkeypatch.chdir(project.root)
    forget()
    assert changes(before, project.modules(arch=arch)) == ["layers.py is gone", "nets.py is gone"]


@pytest.mark.parametrize(
    ("arch", "module", "needed"),
    [
        ("resnet18", "", ()),
        ("timm/resnet50", "timm", ("timm",)),
        ("torchvision/resnet50:IMAGENET1K_V2", "torchvision", ("torchvision",)),
        ("hf/a/b", "huggingface", ("transformers",)),
        ("robustbench/Standard", "robustbench", ("robustbench", "timm")),
        ("official/cct_7", "official", ()),
    ],
)
def test_a_network_of_another_package_counts_with_its_version(
    arch: str, module: str, needed: tuple[str, ...]
) -> None:
    modules = current_modules("tent", "digits-c", "fog", arch)
    external = {name for name in modules if name.startswith("ttabench.models.external.")}
    assert external == ({f"ttabench.models.external.{module}"} if module else set())
    assert "ttabench.worker" in modules
    assert libraries("tent", arch) == needed


def test_the_libraries_of_a_strangers_code_count(project: Project) -> None:
    assert libraries("mine", "resnet18") == ()
    project.write("some_methods/helper.py", "import os, torch, pytest")
    assert libraries("mine", "resnet18") == ("pytest",)
    project.write("nets.py", "from rich import box")
    assert libraries("mine", "nets:build") == ("pytest", "rich")


def test_the_version_of_a_strangers_own_distribution_does_not_count(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code counts by its hash: a new version with the same code makes the same numbers."""
    project.write("some_methods/helper.py", "import pytest")
    known = {"some_methods": ["strangers-methods"], "pytest": ["pytest"]}
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: known)
    assert libraries("mine", "resnet18") == ("pytest",)


def test_the_code_of_a_network_is_that_of_all_that_it_imports_from_its_folder(project: Project) -> None:
    project.write("nets.py", "from layers import A\n\ndef build(): ...")
    project.write("layers.py", "A = 1")
    before = network_code("nets:build")
    project.write("layers.py", "A = 1  # the same")
    assert network_code("nets:build") == before != ""
    project.write("layers.py", "A = 2")
    assert network_code("nets:build") != before
    assert network_code("resnet18") == network_code("timm/resnet50") == ""


def test_the_scoring_code_the_reader_of_the_data_and_the_networks_count() -> None:
    modules = current_modules("tent", "digits-c")
    for name in ("nn.batch_norm", "scoring", "stream", "source", "source_cache", "summaries", "method",
                 "saved", "worker", "protocol", "contamination", "classifier.probe", "data.dataset",
                 "data.digits", "corruptions.noise", "models.architectures.resnet"):  # fmt: skip
        assert modules[f"ttabench.{name}"], name
    assert modules["ttabench_methods.tent"]
    for name in modules:
        assert not name.startswith(
            ("ttabench.cli", "ttabench.store", "ttabench_reports", "ttabench.data.fetch")
        )


@pytest.mark.parametrize(
    ("dataset", "reader"),
    [
        ("digits-c", "data.digits"),
        ("cifar10-c", "data.published.cifar"),
        ("cifar100-c", "data.published.cifar"),
        ("cifar10-c-bar", "data.published.cifar_bar"),
        ("cifar10.1", "data.published.natural_shifts"),
        ("imagenet-c", "data.published.imagenet"),
        ("imagenet-r", "data.published.natural_shifts"),
        ("imagenet-c-local", "data.own.own_image_folders"),
        ("cifar10.1-local", "data.own.own_arrays"),
    ],
)
def test_what_reads_the_images_of_a_dataset_counts(dataset: str, reader: str) -> None:
    assert f"ttabench.{reader}" in current_modules("tent", dataset)


def test_what_reads_the_images_of_a_contaminating_dataset_counts() -> None:
    cifar = "ttabench.data.published.cifar"
    assert cifar not in current_modules("tent", "digits-c", "fog", contamination="noise(0.5)")
    assert cifar in current_modules("tent", "digits-c", "fog", contamination="cifar100-c(0.5)")


def test_what_asks_for_corrupted_images_and_what_sets_precision_counts() -> None:
    generated = "ttabench.data.generated_datasets"
    assert generated in current_modules("tent", "digits-c")
    assert generated in current_modules("tent", "cifar10-c-bar")
    assert generated in current_modules("tent", "cifar10-c", contamination="digits-c(0.5)")
    assert generated not in current_modules("tent", "cifar10-c")
    assert "ttabench.torch_defaults" in current_modules("tent", "cifar10-c")


def test_what_is_kept_of_the_source_depends_on_what_reads_its_images() -> None:
    assert shared_code("cifar10-c") == shared_code("cifar100-c")
    assert len({shared_code(name) for name in ("cifar10-c", "digits-c", "imagenet-c")}) == 3


@pytest.mark.parametrize("stream", ["recurring", "gradual", "ccc"])
def test_the_code_of_a_long_stream_counts(stream: str) -> None:
    modules = current_modules("tent", "digits-c", stream)
    for name in ("cell", "images", "path", "score", "checkpoint", "method_state"):
        assert f"ttabench.streams.{name}" in modules
    assert "ttabench.corruptions.fractional" in modules


def test_corruptions_count_only_where_they_are_applied() -> None:
    assert "ttabench.corruptions.noise" not in current_modules("tent", "cifar10-c")
    assert "ttabench.data.published.cifar" in current_modules("tent", "cifar10-c")
    assert "ttabench.data.published.imagenet" in current_modules("tent", "imagenet-c")
    assert "ttabench.data.published.natural_shifts" not in current_modules("tent", "imagenet-c")
    for name in ("own_dataset", "own_arrays", "own_image_folders"):
        assert f"ttabench.data.own.{name}" in current_modules("tent", "cifar10-c-local")
    assert "ttabench.data.mixed" in current_modules("tent", "digits-c", "mixed")
    assert "ttabench.data.mixed" not in current_modules("tent", "digits-c")


def test_methods_have_code_of_their_own_and_nobody_has_none() -> None:
    hashes = {combined(current_modules(name, "digits-c")) for name in ("source", "tent", "quantile")}
    assert len(hashes) == 3
    assert combined(current_modules("nobody", "digits-c")) == ""


def test_of_a_composed_method_only_the_methods_that_its_settings_name_count() -> None:
    both = {"first": "quantile", "second": "cotta"}
    modules = current_modules("stack", "digits-c", parts=parts_of("stack", both))
    for name in ("quantile.stack", "quantile.method", "quantile.geometric", "cotta", "views", "view_average"):
        assert modules[f"ttabench_methods.{name}"], name
    unused = unused_modules("stack", ("quantile", "cotta"))
    assert {"ttabench_methods.roid", "ttabench_methods.lame"} <= unused
    assert not unused & modules.keys()
    assert modules.keys() | unused == current_modules("stack", "digits-c").keys()
    assert "ttabench_methods.fisher" in current_modules("come", "digits-c", parts=("eata",))
    assert "ttabench_methods.fisher" not in current_modules("come", "digits-c", parts=("tent",))
    assert parts_of("tent", {"first": "quantile"}) == ()
    assert not unused_modules("tent", ())


@pytest.mark.parametrize("method", provenance.COMPOSED)
def test_settings_name_all_methods_that_a_composed_method_imports(method: str) -> None:
    config = registry.method(method).Config
    hints = get_type_hints(config)
    options = {name for setting in provenance.COMPOSED[method] for name in get_args(hints[setting])}
    known = registry.entry_points(registry.METHODS)
    assert options <= known.keys()
    imported = provenance._imports(known[method].module)
    assert {name for name, point in known.items() if point.module in imported} <= options


@pytest.mark.parametrize("recorded", ["all parts", "its parts"])
def test_a_result_of_a_composed_method_is_stale_if_a_part_of_it_changes_and_not_if_another_does(
    recorded: str, cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """Earlier versions recorded the modules of all parts."""
    request.addfinalizer(forget)
    config = (("first", "quantile"), ("second", "cotta"))
    store = Store.create(tmp_path / "results", {"methods": ["stack"]})
    with monkeypatch.context() as patch:
        if recorded == "all parts":
            patch.setattr(provenance, "parts_of", lambda *_: ())
        stacked = replace(cell, method="stack", label="stack", config=config)
        store.writer().append(Result(cell=stacked, status="ok", accuracy=50.0))
    (record,) = store.records()
    assert ("ttabench_methods.roid" in record.modules) is (recorded == "all parts")
    assert not record.stale
    unchanged = provenance.module_hash
    for part, stale in (("roid", False), ("cotta", True), ("quantile.geometric", True)):
        changed = f"ttabench_methods.{part}"

        def module_hash(name: str, changed: str = changed) -> str:
            return "0" if name == changed else unchanged(name)

        monkeypatch.setattr(provenance, "module_hash", module_hash)
        forget()
        (record,) = store.records()
        assert record.stale is stale, part


def test_all_code_together_has_one_hash_over_names_and_hashes_in_any_order() -> None:
    one = combined({"a": "1", "b": "2"})
    assert combined({"b": "2", "a": "1"}) == one
    others = ({"a": "1", "c": "2"}, {"a": "2", "b": "1"}, {"a": "1", "b": "3"}, {"a": "1"})
    assert len({one, *map(combined, others)}) == 5


def test_changes_are_named() -> None:
    then, now = {"a.b": "1", "c": "2"}, {"a.b": "3", "d": "4"}
    assert changes(then, now) == ["a/b.py changed", "c.py is gone", "d.py is new"]
    assert changes(then, then) == []


def test_a_renamed_module_is_recorded_with_its_first_name_and_shown_with_its_new_one(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(forget)
    before = dict(current_modules("tent", "digits-c"))
    monkeypatch.setitem(provenance.FIRST_NAMES, "ttabench.scoring", "ttabench.marking")
    forget()
    now = dict(current_modules("tent", "digits-c"))
    assert now.pop("ttabench.marking") == before.pop("ttabench.scoring")
    assert now == before
    assert changes({"ttabench.marking": "1"}, {"ttabench.marking": "2"}) == ["ttabench/scoring.py changed"]


def test_a_module_of_ttabench_that_was_not_recorded_before_is_no_change() -> None:
    then = {"ttabench.nn": "1"}
    assert changes(then, then | {"ttabench.data.own.own_arrays": "2"}) == []
    assert changes(then, then | {"my_net": "2"}) == ["my_net.py is new"]
    assert changes(then, {"ttabench.nn": "2", "ttabench.b": "3"}) == [
        "ttabench/nn/__init__.py changed", "ttabench/b.py is new"
    ]  # fmt: skip


def test_it_imports_no_torch_and_runs_no_method() -> None:
    code = (
        "import sys; from ttabench.provenance import current_modules; "
        "assert len(current_modules('tent', 'digits-c')) > 20; "
        "sys.exit('torch' in sys.modules or 'ttabench_methods.tent' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_code_that_changes_while_a_sweep_runs_makes_its_results_stale(
    project: Project, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash is that of the code that was imported, not of the files at the time a result is stored."""
    folder = Store.create(project.root / "results", {"methods": ["mine"]})
    mine = replace(cell, method="mine", label="mine")

    def run(worker: Worker, cells: tuple[Cell, ...], stored: object) -> None:
        (project.root / "some_methods" / "helper.py").write_text("A = 2")
        worker.writer().append(Result(cell=mine, status="ok", accuracy=50.0))

    monkeypatch.setattr(Worker, "run", run)
    Unit(((mine,),), folder.root)(lambda event: None, WorkerState())
    forget()
    (record,) = Store.at(folder.root).records()
    assert record.changes == ("some_methods/helper.py changed",)
