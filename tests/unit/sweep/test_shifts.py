"""Sweeps of datasets other than the fifteen corruptions: which cells they have, and what is told of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit import data_fakes as fakes
from tests.unit.conftest import Run
from tests.unit.planning import plan
from tests.unit.sweep import test_grid
from ttabench.classifier import Architecture
from ttabench.corruptions.corruption_names import BAR_CORRUPTIONS, CORRUPTIONS, NATURAL, NO_SEVERITY
from ttabench.data.published.known_datasets import PUBLISHED
from ttabench.errors import UserError
from ttabench.registry import in_groups, method, method_names
from ttabench.store import load_frame
from ttabench.sweep.grid import Grid
from ttabench.sweep.options_to_grid import corruption_names, make_grid
from ttabench.sweep.plan import Planned, SourceFacts
from ttabench.sweep.resolve import resolve
from ttabench.sweep.sweep_file import with_flags

NET = Architecture(norm_layers=("batch",), num_classes=10)
CIFAR_C, BAR, CIFAR_10_1 = (
    SourceFacts("resnet18", name, 10, "f", NET, "c") for name in ("cifar10-c", "cifar10-c-bar", "cifar10.1")
)


def asked(**options: Any) -> Grid:
    return make_grid(with_flags({"methods": "source", "archs": "resnet18", **options}, {}))


def shifts(planned: list[Planned], dataset: str) -> list[tuple[str, int]]:
    return [(p.cell.corruption, p.cell.severity) for p in planned if p.cell.dataset == dataset]


# ---- which cells


def test_the_default_means_all_that_a_dataset_has_where_it_has_none_of_the_fifteen() -> None:
    planned = plan(asked(), [CIFAR_C, BAR, CIFAR_10_1])
    assert shifts(planned, "cifar10-c") == [(c, 5) for c in CORRUPTIONS]
    assert shifts(planned, "cifar10-c-bar") == [(c, 5) for c in BAR_CORRUPTIONS]
    assert shifts(planned, "cifar10.1") == [(NATURAL, NO_SEVERITY)]


def test_a_natural_shift_is_one_cell_per_seed_whatever_the_severities() -> None:
    planned = plan(asked(severities="1,3,5", seeds="0,1"), [CIFAR_10_1])
    assert [(p.cell.severity, p.cell.seed) for p in planned] == [(NO_SEVERITY, 0), (NO_SEVERITY, 1)]
    assert str(planned[0].cell) == "source · resnet18 · cifar10.1 · natural · seed 0"
    assert {s for _, s in shifts(plan(asked(severities="1,3,5"), [BAR]), "cifar10-c-bar")} == {1, 3, 5}


def test_cells_of_the_fifteen_are_what_they_were() -> None:
    named = ",".join(CORRUPTIONS)
    ids = [p.cell.cell_id for p in plan(asked(), [CIFAR_C])]
    assert ids == [p.cell.cell_id for p in plan(asked(corruptions=named), [CIFAR_C])]
    assert len(plan(asked(corruptions="fog,ripple"), [test_grid.RESNET])) == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("bar", BAR_CORRUPTIONS), ("natural", (NATURAL,)), ("ripple,fog", ("ripple", "fog")),
        ("all,bar", (*CORRUPTIONS, *BAR_CORRUPTIONS)),
    ],
)  # fmt: skip
def test_corruptions_by_group_and_by_name(text: str, names: tuple[str, ...]) -> None:
    assert corruption_names(text) == names


def test_a_corruption_that_nobody_knows_has_a_nearest_one() -> None:
    with pytest.raises(UserError, match="unknown corruption 'riple'; did you mean 'ripple'"):
        corruption_names("riple")


# ---- families of methods


def test_a_family_stands_for_its_methods_and_source() -> None:
    family = {name for name in method_names() if method(name).family == "alignment"}
    assert {"quantile", "actmad", "aqr"} <= family
    assert "tent" not in family
    grid = asked(methods="alignment")
    assert set(grid.methods) == {"source", *family}
    assert len(grid.methods) == len(family) + 1


def test_groups_and_names_join_and_each_method_stands_once() -> None:
    result = in_groups(["tent", "quantile[lr=1]", "quantile", "alignment"])
    assert result[:3] == ["tent", "quantile[lr=1]", "quantile"]
    assert len(result) == len(set(result))
    assert set(in_groups(["all", "alignment"])) == set(method_names())
    assert in_groups(["tent", "tent"]) == ["tent", "tent"]  # the grid refuses it
    assert in_groups(["alignmnet"]) == ["alignmnet"]  # and this, with the nearest name


# ---- from files to tables


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Small published datasets where ttabench looks for them."""

    def put(facts: Mapping[str, Any]) -> Path:
        for name, fact in facts.items():
            monkeypatch.setitem(PUBLISHED, name, fact)
        monkeypatch.setenv("TTABENCH_DATA", str(tmp_path))
        return tmp_path

    return put


def weights(ttabench: Run, dataset: str) -> Path:
    """A network trained for one epoch."""
    output = ttabench(
        "train", "--archs", "resnet18_w16", "--datasets", dataset, "--epochs", "1", "--workers", "0"
    )
    assert output.code == 0, output.err
    card = Path(output.out.partition("model card ")[2].partition(", learning")[0])
    return max(card.parent.glob("*.safetensors"), key=lambda path: path.stat().st_mtime)


@pytest.mark.slow
def test_a_natural_shift_with_some_of_the_classes_is_swept_and_reported(
    ttabench: Run, published: Callable[..., Path], tmp_path: Path
) -> None:
    facts = replace(fakes.FAKE_IMAGENET_R, image_size=32)  # small, so that training takes no time
    fakes.make_natural(published({"imagenet-r": facts}), facts, (fakes.WNIDS[2], fakes.WNIDS[0]))
    out = tmp_path / "results"
    file = weights(ttabench, "imagenet-r")
    output = ttabench(
        "sweep", "--methods", "tent", "--archs", "resnet18_w16", "--checkpoint", file,
        "--datasets", "imagenet-r", "--severities", "1,5", "--workers", "0", "--out", out,
    )  # fmt: skip
    assert output.code == 0, output.err
    cells = load_frame(out)
    assert cells[["corruption", "severity"]].drop_duplicates().values.tolist() == [[NATURAL, NO_SEVERITY]]
    assert set(cells["scored_classes"]) == {"2 of 3 classes"}
    assert set(cells["n_images"]) == {4}
    assert "ImageNet-R: accuracy in %" in output.out
    assert "chosen from the 2 of 3 classes that the images have" in " ".join(output.out.split())
    assert "severity" not in output.out
    assert "imagenet-r    a natural shift, without corruptions and severities" in ttabench("status", out).out
    limit = ("--limit", "5", "--out", tmp_path / "other")
    wrong = ttabench("sweep", "--datasets", "imagenet-r", "--archs", "resnet18_w16", *limit)
    assert "--limit 5: imagenet-r has 4 test images" in wrong.err


def test_what_a_dataset_does_not_have_is_named(published: Callable[..., Path]) -> None:
    fakes.make_cifar10_1(published({"cifar10.1": fakes.FAKE_CIFAR10_1}))
    for text, message in (
        ("fog", r"unknown corruption of cifar10\.1 'fog'"),
        ("mixed", r"mixed interleaves the fifteen corruptions, and cifar10\.1 has no gaussian_noise"),
    ):
        with pytest.raises(UserError, match=message):
            resolve(asked(datasets="cifar10.1", corruptions=text))
    resolve(asked(datasets="cifar10.1", corruptions="natural"))


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["tinyimagenet-c", "imagenet-c"])
def test_a_sample_in_the_published_layout_from_training_to_the_table(
    dataset: str, ttabench: Run, published: Callable[..., Path], tmp_path: Path
) -> None:
    facts, make = {
        "tinyimagenet-c": (fakes.FAKE_TINY, fakes.make_tiny),
        "imagenet-c": (fakes.FAKE_IMAGENET, fakes.make_imagenet),
    }[dataset]
    make(published({dataset: facts}), corruptions=("gaussian_noise", "fog"))
    out = tmp_path / "results"
    output = ttabench(
        "sweep", "--methods", "tent", "--archs", "resnet18_w16", "--checkpoint", weights(ttabench, dataset),
        "--datasets", dataset, "--corruptions", "gaussian_noise,fog", "--workers", "0", "--out", out,
    )  # fmt: skip
    assert output.code == 0, output.err
    cells = load_frame(out)
    assert cells["status"].tolist() == ["ok"] * 4
    assert set(cells["n_images"]) == {facts.test}
    assert set(cells["scored_classes"]) == {""}
    output = ttabench("report", out, "--format", "csv,markdown", "--out", tmp_path / "report")
    assert output.code == 0, output.err
    assert "severity 5" in (tmp_path / "report" / "summary.csv").read_text()
