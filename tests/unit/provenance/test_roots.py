from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import get_args, get_type_hints

import numpy as np
import pytest

from tests.cases import each
from tests.unit.other_code import Edits, forget
from tests.unit.stored_results import measured
from ttabench import provenance, registry
from ttabench.cell import Cell
from ttabench.provenance import changes, current_code, libraries, network_code, roots, shared_code
from ttabench.provenance import modules as modules_of
from ttabench.provenance.modules import module_file
from ttabench.run.cell_group import CellGroup
from ttabench.run.kept_objects import WorkerState
from ttabench.run.worker import Worker
from ttabench.store import Store


def files(method: str, dataset: str = "digits-c", *of: str) -> set[str]:
    """The files with code that a cell of a method depends on."""
    return {name.partition(":")[0] for name in current_code(method, dataset, *of).definitions}


def use(monkeypatch: pytest.MonkeyPatch, point: SimpleNamespace) -> None:
    known = {**registry.entry_points(registry.METHODS), "mine": point}
    for user in (modules_of, roots):
        monkeypatch.setattr(user, "entry_points", lambda group: known)
    forget()


@dataclass
class Project:
    """A stranger's folder: files are written into it, and its method is `some_methods.mine`."""

    root: Path

    def write(self, file: str, code: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        forget()

    def code(self, dataset: str = "digits-c", arch: str = "") -> dict[str, str]:
        return dict(current_code("mine", dataset, "fog", arch).definitions)

    def changed(self, file: str, code: str, arch: str = "") -> list[str]:
        """What is reported when a file gets this code."""
        before = self.code(arch=arch)
        self.write(file, code)
        after = self.code(arch=arch)
        return changes(before, after) if before != after else []


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
    use(monkeypatch, point)
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] in ("some_methods", "nets")]:
        del sys.modules[name]
    forget()


def test_what_a_method_imports_from_its_distribution_counts(project: Project) -> None:
    assert "some_methods/helper.py" in project.code()
    assert project.changed("some_methods/helper.py", "A = 1  # the same") == []
    assert project.changed("some_methods/helper.py", "A = 2") == ["some_methods/helper.py changed"]
    assert project.changed("some_methods/unused.py", "A = 2") == []


def test_another_package_of_the_same_project_counts(project: Project) -> None:
    assert project.changed("other_package/__init__.py", "A = 2") == ["other_package/__init__.py changed"]


def test_a_package_of_another_project_counts_and_an_installed_one_does_not(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    library, installed = (tmp_path_factory.mktemp(name) for name in ("library", "installed"))
    (installed / "numpy-2.0.dist-info").mkdir()
    for folder, package in ((library, "my_library"), (installed, "a_stranger")):
        monkeypatch.syspath_prepend(folder)
        project.write(str(folder / package / "__init__.py"), "")
        project.write(str(folder / package / "core.py"), "from ttabench.nn import entropy as loss")
    imports = "from my_library.core import Mine\nimport a_stranger.core, torch, ttabench"
    project.write("some_methods/mine.py", imports)
    assert project.changed(str(library / "my_library/core.py"), "A = 2")[0] == "my_library/core.py changed"
    assert {"a_stranger/core.py", "torch/__init__.py", "ttabench/__init__.py"}.isdisjoint(project.code())


def test_another_package_of_the_same_installed_distribution_counts_and_no_other(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / "numpy-2.0.dist-info").mkdir()  # many distributions stand here
    project.write("a_stranger.py", "A = 1")
    project.write("some_methods/mine.py", "import a_stranger, other_package, torch")
    files = [PurePosixPath(name) for name in ("some_methods/mine.py", "other_package/__init__.py")]
    point = SimpleNamespace(module="some_methods.mine", dist=SimpleNamespace(files=files))
    use(monkeypatch, point)
    assert project.changed("other_package/__init__.py", "A = 2") == ["other_package/__init__.py changed"]
    assert {"a_stranger.py", "torch/__init__.py"}.isdisjoint(project.code())


def test_a_compiled_module_counts(project: Project) -> None:
    name = f"some_methods/fast{EXTENSION_SUFFIXES[0]}"
    (project.root / name).write_bytes(b"\x7fELF one kernel")
    project.write("some_methods/mine.py", "import some_methods.fast")
    before = project.code()
    assert "some_methods/fast.py" in before
    (project.root / name).write_bytes(b"\x7fELF another one")
    forget()
    assert [text for text in changes(before, project.code()) if "fast" in text]


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
    assert "ttabench_methods/tent.py: Tent" not in project.code()
    project.write("some_methods/mine.py", "from ttabench_methods.tent import Tent\nclass Mine(Tent): ...")
    assert {"ttabench_methods/tent.py: Tent", "ttabench_methods/tent.py: Tent.adapt"} <= project.code().keys()
    assert not [name for name in project.code() if name.startswith("ttabench_methods/references.py")]


def test_a_setting_of_a_strangers_method_may_be_a_word_that_is_the_name_of_a_method(project: Project) -> None:
    project.write("some_methods/mine.py", "from ttabench.nn import entropy\n\ndef loss(x): return entropy(x)")
    whole = current_code("mine", "digits-c")
    assert current_code("mine", "digits-c", config={"statistics": "source"}) == whole


def test_a_network_of_the_user_and_what_it_imports_from_its_folder_count(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("here/nets.py", "from layers import A\n\ndef build(): ...")
    project.write("here/layers.py", "A = 1")
    monkeypatch.chdir(project.root / "here")  # not on the path: a model is looked for in the current folder
    forget()
    arch = "nets:build"
    assert {"nets.py", "layers.py"} <= project.code(arch=arch).keys()
    assert project.changed("here/layers.py", "A = 2", arch) == ["layers.py changed"]
    assert project.changed("here/nets.py", "from layers import A", arch) == ["nets.py changed"]
    before = project.code(arch=arch)
    monkeypatch.chdir(project.root)
    forget()
    gone = [text for text in changes(before, project.code(arch=arch)) if not text.startswith("ttabench/")]
    assert gone == ["layers.py is gone", "nets.py is gone"]


@each(
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
    external = "ttabench/models/external"
    found = {name for name in files("tent", "digits-c", "fog", arch) if name.startswith(f"{external}/")}
    assert found == ({f"{external}/{module}.py", f"{external}/external_model.py"} if module else set())
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
    found = files("tent")
    for name in ("nn/batch_norm", "measure/scoring", "measure/order_and_batches", "measure/source_access",
                 "method/contract", "cell/protocol", "method/saved_state", "measure/contamination",
                 "classifier/classifier", "data/dataset", "data/digits", "measure/torch_defaults",
                 "corruptions/noise", "models/architectures/resnet", "measure/prepare"):  # fmt: skip
        assert f"ttabench/{name}.py" in found, name
    assert "ttabench_methods/tent.py" in found
    assert not [
        name for name in found if name.startswith(("ttabench/cli", "ttabench/store", "ttabench/sweep"))
    ]


def test_a_module_of_python_itself_has_no_file() -> None:
    assert module_file("sys") is None
    assert module_file("zipimport") is None  # its name of a file is "frozen"


def test_what_is_outside_is_there() -> None:
    """A name that is gone would leave nothing out."""
    for name in roots.OUTSIDE:
        module, _, definition = name.partition(":")
        assert module_file(module) is not None or module_file(f"{module}.__init__") is not None, name
        of, _, member = definition.partition(".")
        facts = modules_of.module_facts(module)
        assert facts is not None
        if of:
            assert member in facts.definitions[of].members


def test_all_roots_are_there() -> None:
    nodes = [
        *roots.MEASURE,
        *roots.STREAM,
        *roots.NETWORKS,
        *roots.OF_OTHERS,
        *sum(roots.READERS.values(), ()),
    ]
    for module, of, member in nodes:
        facts = modules_of.module_facts(module)
        assert facts is not None, module
        assert of in facts.definitions
        assert not member or member in facts.definitions[of].members


@each(
    ("dataset", "reader"),
    [
        ("digits-c", "data/digits"),
        ("cifar10-c", "data/published/cifar"),
        ("cifar100-c", "data/published/cifar"),
        ("cifar10-c-bar", "data/published/cifar_bar"),
        ("cifar10.1", "data/published/natural_shifts"),
        ("imagenet-c", "data/published/imagenet"),
        ("imagenet-r", "data/published/natural_shifts"),
        ("imagenet-c-local", "data/own/own_corruption_folders"),
        ("cifar10.1-local", "data/own/own_arrays"),
    ],
)
def test_what_reads_the_images_of_a_dataset_counts(dataset: str, reader: str) -> None:
    assert f"ttabench/{reader}.py" in files("tent", dataset)


def test_what_reads_the_images_of_a_contaminating_dataset_counts() -> None:
    cifar = "ttabench/data/published/cifar.py"
    assert cifar not in files("tent", "digits-c", "fog", "", "noise(0.5)")
    assert cifar in files("tent", "digits-c", "fog", "", "cifar100-c(0.5)")


def test_what_asks_for_corrupted_images_counts() -> None:
    generated = "ttabench/data/generated_datasets.py"
    assert generated in files("tent", "digits-c")
    assert generated in files("tent", "cifar10-c-bar")
    assert generated in files("tent", "cifar10-c", "fog", "", "digits-c(0.5)")
    assert generated not in files("tent", "cifar10-c")


def test_what_is_kept_of_the_source_depends_on_what_reads_its_images() -> None:
    assert shared_code("cifar10-c") == shared_code("cifar100-c")
    assert len({shared_code(name) for name in ("cifar10-c", "digits-c", "imagenet-c")}) == 3


@pytest.mark.parametrize("stream", ["recurring", "gradual", "ccc"])
def test_the_code_of_a_long_stream_counts(stream: str) -> None:
    found = files("tent", "digits-c", stream)
    assert "ttabench/run/stream_of_cell.py" in found
    for name in ("images", "ccc_path", "source_accuracy", "checkpoint", "method_state"):
        assert f"ttabench/measure/streams/{name}.py" in found
    assert "ttabench/corruptions/fractional.py" in found
    assert not [name for name in files("tent") if name.startswith("ttabench/measure/streams/")]


def test_corruptions_count_only_where_they_are_applied() -> None:
    assert "ttabench/corruptions/noise.py" in files("tent")
    assert "ttabench/corruptions/noise.py" not in files("tent", "cifar10-c")
    assert "ttabench/data/published/natural_shifts.py" not in files("tent", "imagenet-c")


def test_methods_have_code_of_their_own_and_nobody_has_none() -> None:
    assert len({current_code(name, "digits-c").source for name in ("source", "tent", "quantile")}) == 3
    assert current_code("nobody", "digits-c") == roots.NO_CODE


def test_of_a_composed_method_only_the_methods_that_its_settings_name_count() -> None:
    def of(method: str, **config: str) -> set[str]:
        names = current_code(method, "digits-c", config=config).definitions
        return {
            name.partition(".py")[0].rpartition("/")[2] for name in names if name.startswith("ttabench_m")
        }

    both = of("stack", first="quantile", second="cotta")
    assert {"stack", "method", "geometric", "cotta", "cotta_views", "view_average"} <= both
    assert not {"roid", "lame", "rotta"} & both
    assert {"roid", "lame", "rotta", "cotta"} <= of("stack")
    assert "fisher" in of("come", host="eata")
    assert "fisher" not in of("come", host="tent")


@pytest.mark.parametrize("method", ["quantile_aqr", "quantile", "shot"])
def test_a_setting_that_is_also_the_name_of_a_method_leaves_nothing_out(method: str) -> None:
    """``batch_norm = "source"`` does not mean that the class which a method extends is not used."""
    named = current_code(method, "digits-c", config={"batch_norm": "source", "statistics": "source"})
    assert named == current_code(method, "digits-c")


@pytest.mark.parametrize(("method", "settings"), [("stack", ("first", "second")), ("come", ("host",))])
def test_settings_name_all_methods_that_a_composed_method_imports(
    method: str, settings: tuple[str, ...]
) -> None:
    hints = get_type_hints(registry.method(method).Config)
    options = {name for setting in settings for name in get_args(hints[setting])}
    known = registry.entry_points(registry.METHODS)
    assert options <= known.keys()
    imported = modules_of.imports_of(known[method].module)
    assert {name for name, point in known.items() if point.module in imported} <= options


def test_a_result_of_a_composed_method_is_stale_if_a_part_of_it_changes_and_not_if_another_does(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(forget)
    config = (("first", "quantile"), ("second", "cotta"))
    store = Store.create(tmp_path / "results", {"methods": ["stack"]})
    stacked = replace(cell, method="stack", label="stack", config=config)
    store.writer().append(measured(stacked, np.ones(1, bool)))
    edits = Edits(monkeypatch)
    for part, stale in (("roid", False), ("cotta", True), ("quantile.geometric", True)):
        module = f"ttabench_methods.{part}"
        edits.write(module, (edits.text(module) or "").replace("return ", "return 1 and "))
        (record,) = store.records()
        assert record.stale is stale, part
        edits.undo()


def test_what_has_another_name_and_the_same_text_is_not_named() -> None:
    assert changes({"a.py: f": "1", "b.py: g": "2"}, {"a.py: h": "1", "b.py: g": "3"}) == ["b.py: g changed"]
    assert changes({"a.py: f": "1"}, {"a.py: h": "1"}) == ["what definitions refer to changed"]


def test_changes_are_named() -> None:
    then, now = {"a/b.py: f": "1", "c.py: g": "2"}, {"a/b.py: f": "3", "d.py: h": "4"}
    assert changes(then, now) == ["a/b.py: f changed", "c.py: g is gone", "d.py: h is new"]


def test_it_imports_no_torch_and_runs_no_method() -> None:
    code = (
        "import sys; from ttabench.provenance import current_code; "
        "assert len(current_code('tent', 'digits-c').definitions) > 20; "
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
        worker.writer().append(measured(mine, np.ones(1, bool)))

    monkeypatch.setattr(Worker, "run", run)
    CellGroup(((mine,),), folder.root)(lambda event: None, WorkerState())
    forget()
    (record,) = Store.at(folder.root).records()
    assert record.changes == ("some_methods/helper.py changed",)


def test_after_forget_all_code_is_read_again() -> None:
    """Without it, an attestation would not notice that a file changed while it ran."""
    kept = {name: made for name, made in vars(roots).items() if hasattr(made, "cache_info")}
    current_code("tent", "digits-c")
    assert kept["code_by_kind"].cache_info().currsize
    provenance.forget()
    assert not [name for name, made in kept.items() if made.cache_info().currsize]


def test_a_method_of_ttabench_is_followed_in_its_own_package_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel lists all packages of ttabench, and an editable install none: both read the same modules."""
    monkeypatch.setattr(modules_of, "_packages", lambda dist: {"ttabench", "ttabench_methods"})
    forget()
    assert {name.partition(".")[0] for name in modules_of.method_modules("quantile")} == {"ttabench_methods"}
    forget()
