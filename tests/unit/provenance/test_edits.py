"""Which edits of ttabench make results stale: those that change what runs, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import Run
from tests.unit.other_code import Edits, forget
from tests.unit.stored_results import fill
from tests.unit.sweep_processes import GRID
from ttabench.cell import Cell, Result
from ttabench.provenance import roots
from ttabench.provenance.closure import Graph, closure
from ttabench.provenance.roots import current_code, shared_code
from ttabench.provenance.staleness import code_of
from ttabench.store import Store

UPDATES, TENT = "ttabench.nn.updates", "ttabench_methods.tent"
BETAS = ("betas=(momentum, 0.999)", "betas=(momentum, 0.99)")


@pytest.fixture
def edits() -> Iterator[Edits]:
    with pytest.MonkeyPatch.context() as patch:
        yield Edits(patch)
    forget()


def code(method: str = "tent", corruption: str = "fog") -> str:
    return current_code(method, "digits-c", corruption).source


FRESH = {
    "layout of BibTeX": (
        "ttabench.method.contract", ("def bibtex(self) -> str:", "def bibtex(self, wide=3) -> str:"),
    ),
    "a paper": ("ttabench_methods.references", ("2021", "2020")),
    "words of a caption": ("ttabench.cell.protocol", ('f"batch size {self.batch_size}"', '"batches"')),
    "what a failed cell says": ("ttabench.run.worker", ("trace[-4000:]", "trace[-9000:]")),
    "budget of the disk cache": ("ttabench.run.summary_cache", ("BUDGET_GB = 8.0", "BUDGET_GB = 80.0")),
    "a function that it does not call": (UPDATES, ("1 - momentum)", "2 - momentum)")),
    "a docstring": (UPDATES, ("One step of the optimiser", "A step of the optimiser")),
    "an error": (UPDATES, ("expected adam, adamw", "give adam, adamw")),
    "what a method says of itself": (TENT, ("eval mode\"", "the mode of evaluation\"")),
    "a new word of a method": (
        TENT, ('    name = "tent"\n', '    name = "tent"\n    per_class = "nothing"\n'),
    ),
    "a local variable": (TENT, ("logits", "scores")),
}  # fmt: skip
STALE = {
    "a step of the optimiser": (UPDATES, ("    optimizer.zero_grad()\n", "")),
    "a parameter of Adam": (UPDATES, BETAS),
    "a word that is computed": (
        TENT, ('    name = "tent"\n', '    name = "tent"\n    per_class = str(entropy)\n'),
    ),
    "an own predict": (
        TENT, ("    def setup(self", "    def predict(self, x): return -x\n    def setup(self"),
    ),
    "a default": (TENT, ("steps: Count = 1", "steps: Count = 2")),
    "settings that a method shares": ("ttabench.nn.norm_adapter", ("lr", "rate")),
    "a constant of a corruption": ("ttabench.corruptions.constants", ("Fog(1.5, 1.75)", "Fog(1.5, 1.8)")),
    "the other loss": (TENT, ("staticmethod(entropy)", "staticmethod(minimise)")),
    "the period of resets": (
        "ttabench.cell.protocol", ("def reset_period(self)", "def reset_period(self, by=2)"),
    ),
    "scoring": ("ttabench.measure.scoring", ("def evaluate(", "def evaluate(_more=0, *, ")),
}  # fmt: skip


@pytest.mark.parametrize("what", FRESH)
def test_what_changes_no_number_leaves_results_fresh(edits: Edits, what: str) -> None:
    before = code()
    edits.edit(*FRESH[what])
    assert code() == before


@pytest.mark.parametrize("what", STALE)
def test_what_may_change_a_number_makes_results_stale(edits: Edits, what: str) -> None:
    before = code()
    edits.edit(*STALE[what])
    assert code() != before
    edits.undo()
    assert code() == before


def test_the_optimiser_counts_for_those_that_use_it(edits: Edits) -> None:
    before = {method: code(method) for method in ("tent", "sar", "quantile")}
    edits.edit(UPDATES, BETAS)
    assert {method for method in before if code(method) != before[method]} == {"tent", "sar"}


def test_a_function_beside_others_changes_nothing(edits: Edits) -> None:
    before = code()
    edits.write(
        UPDATES, f"{edits.text(UPDATES)}\n\ndef another(x):\n    return minimise(x, FURTHER)\nFURTHER = 1\n"
    )
    assert code() == before


def test_a_function_that_is_renamed_everywhere_changes_nothing(edits: Edits) -> None:
    before = code()
    for module in (UPDATES, "ttabench.nn", TENT):
        edits.write(module, re.sub(r"\bminimise\b", "descend", edits.text(module) or ""))
    assert code() == before
    edits.edit(UPDATES, ("optimizer.step()", "optimizer.step(); optimizer.step()"))
    assert code() != before  # and it still counts


def test_a_file_that_is_moved_changes_nothing(edits: Edits) -> None:
    before = code()
    edits.write("ttabench.nn.steps", edits.text(UPDATES) or "")
    for module in ("ttabench.nn", "ttabench.nn.norm_adapter"):
        edits.edit(module, ("ttabench.nn.updates", "ttabench.nn.steps"))
    edits.write(UPDATES, "")
    assert code() == before
    edits.edit("ttabench.nn.steps", BETAS)
    assert code() != before


def test_a_file_that_is_split_changes_nothing(edits: Edits) -> None:
    before = code()
    text = edits.text(UPDATES) or ""
    at = text.index("def minimise(")
    edits.write("ttabench.nn.descent", f"import torch\nfrom torch import Tensor\n\n{text[at:]}")
    edits.write(UPDATES, text[:at] + "from ttabench.nn.descent import minimise\n")
    assert code() == before
    edits.edit("ttabench.nn.descent", ("    optimizer.zero_grad()\n", ""))
    assert code() != before


def test_what_runs_on_a_stream_counts_there_alone(edits: Edits) -> None:
    before = {kind: code(corruption=kind) for kind in ("fog", "recurring", "gradual", "ccc")}
    edits.edit("ttabench.measure.streams.images", ("def part_seed(", "def part_seed(_more=0, *, "))
    assert {kind for kind in before if code(corruption=kind) != before[kind]} == {
        "recurring",
        "gradual",
        "ccc",
    }


STATISTICS, ELSEWHERE = "ttabench.measure.source_statistics", "ttabench.measure.any_network"
SUMMARIES = {
    "quantiles": (STATISTICS, ("def quantiles(", "def quantiles(_more=0, *, "), True),
    "the images of a summary": ("ttabench.measure.source_access", ("BATCH = 128", "BATCH = 64"), True),
    "quantiles of networks from elsewhere": (ELSEWHERE, ("invert(counts", "-invert(counts"), False),
}  # fmt: skip


@pytest.mark.parametrize("what", SUMMARIES)
def test_what_summarises_source_data_counts_for_the_summaries_that_are_kept(edits: Edits, what: str) -> None:
    def codes() -> list[str]:
        return [shared_code("digits-c"), shared_code("digits-c", ELSEWHERE)]

    module, change, everywhere = SUMMARIES[what]
    own, other = codes()
    edits.edit(module, change)
    after = codes()
    assert (after[0] != own, after[1] != other) == (everywhere, True)


OF_FILES = {
    "imagenet-c": "imagenet-c", "a subset": "imagenet-c[5000]", "imagenet-r": "imagenet-r",
    "an own head": "imagenet-r[200-way]", "imagenet-v2": "imagenet-v2", "tinyimagenet-c": "tinyimagenet-c",
    "some of its images": "tinyimagenet-c[100]", "domains": "mine-domains-local", "CCC": "base-ccc-local",
    "a folder of images": "mine-images-local",
}  # fmt: skip


@pytest.mark.parametrize("name", ["decode", "read_checked", "read_image", "_rgb", "_resize_and_crop"])
def test_what_decodes_files_counts_for_all_that_read_files(edits: Edits, name: str) -> None:
    of_arrays = {"digits-c": "digits-c", "cifar10-c": "cifar10-c", "own arrays": "mine-local"}
    of_files = {"own folders": "mine-local", "some of their images": "mine-local[100]"}

    def foreign(dataset: str, image_files: bool = False) -> str:
        contamination = f"{dataset}(0.5)"
        return current_code("tent", "digits-c", "fog", "", contamination, None, image_files).source

    def codes() -> dict[str, str]:
        plain = (OF_FILES | of_arrays).items()
        found = {kind: current_code("tent", dataset, "fog").source for kind, dataset in plain}
        for kind, dataset in of_files.items():
            found[kind] = current_code("tent", dataset, "fog", image_files=True).source
        return found | {
            "foreign": foreign("mine-images-local"), "foreign arrays": foreign("mine-local"),
            "foreign folders": foreign("mine-local", image_files=True),
            "source": shared_code("mine-local", image_files=True),
            "source arrays": shared_code("mine-local"),
        }  # fmt: skip

    before = codes()
    edits.edit("ttabench.data.files.read_image", (f"def {name}(", f"def {name}(_more=0, *, "))
    after = codes()
    fresh = {kind for kind in before if after[kind] == before[kind]}
    apart = name in ("decode", "read_checked")  # the reader of own folders, which counts for all, uses others
    arrays = {"own arrays", "foreign arrays", "source arrays"} if apart else set()
    assert fresh == {"digits-c", "cifar10-c"} | arrays


def test_an_edit_of_the_decoder_makes_results_on_own_image_files_stale(
    edits: Edits, result: Result, tmp_path: Path
) -> None:
    """And none on own arrays. An earlier version did not store which of the two a result is on."""
    own = replace(result.cell, dataset="mine-local", method="source", label="source", config=())
    of_files = replace(own, image_files=True, seed=1)
    store = Store.create(tmp_path / "results", {"methods": ["source"]})
    fill(store, replace(result, cell=own), replace(result, cell=of_files))

    def changes() -> dict[Cell, tuple[str, ...]]:
        return {record.result.cell: record.changes for record in Store.at(store.root).latest().values()}

    assert changes() == {own: (), of_files: ()}
    assert code_of(own) == current_code("source", "mine-local")
    edits.edit("ttabench.data.files.read_image", ("def decode(", "def decode(_more=0, *, "))
    changed = ("ttabench/data/files/read_image.py: decode changed",)
    assert changes() == {own: (), of_files: changed}
    Store.at(store.root).merge()
    assert changes() == {own: (), of_files: changed}


def test_each_reader_of_the_cache_of_decoded_images_has_the_decoder_as_a_root() -> None:
    """But for own datasets: those of arrays have the same names as those of folders, and cells tell them."""

    def reads_files(family: str) -> bool:
        graph = Graph(lambda module: roots._module(module, frozenset()))
        return ("ttabench.data.files.decoded_cache", "decoded", "") in closure(
            roots.READERS[family], graph
        ).texts

    lacking = {family for family, nodes in roots.READERS.items() if not {*roots.DECODER} <= {*nodes}}
    assert {family for family in lacking if reads_files(family)} == {"own"}


def test_a_sweep_reads_a_method_before_it_imports_it(
    edits: Edits, ttabench: Run, net_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, a network may be trained for hours between the import and the first cell."""
    monkeypatch.chdir(net_out.parent)
    monkeypatch.syspath_prepend(net_out.parent)
    make_folder, name = Store.make_folder, "ttabench_methods.bn_stats"

    def edited_meanwhile(store: Store, *given: Any, **more: Any) -> None:
        edits.texts[name] = (edits.text(name) or "").replace("self.predict(x)", "self.predict(-x)")
        make_folder(store, *given, **more)

    monkeypatch.setattr(Store, "make_folder", edited_meanwhile)
    output = ttabench("sweep", *GRID, "--corruptions", "fog", "--workers", "0", "--out", net_out)
    assert output.code == 0, output.err
    forget()
    changed = {record.data["cell"]["method"]: record.stale for record in Store.at(net_out).latest().values()}
    assert changed == {"source": False, "bn_stats": True}
