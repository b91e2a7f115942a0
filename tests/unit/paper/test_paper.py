"""`ttabench paper`: its experiments are the tables of the paper, and the flags of the user hold."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases import each
from tests.unit.conftest import Run
from tests.unit.stored_results import folder
from ttabench.cli import _paper
from ttabench.corruptions.corruption_names import CORRUPTIONS
from ttabench.data.catalog import EMBEDDED, dataset
from ttabench.data.dataset import Labelled
from ttabench.data.own.generate_corrupted import generate
from ttabench.errors import UserError
from ttabench.method.settings import configured
from ttabench.method.spelling import parse_method
from ttabench.models.external.official import OfficialModel
from ttabench.models.resolve import resolve_trainable
from ttabench.paper import experiments, plan, ready
from ttabench.paper import measure as measuring
from ttabench.paper.asked import Asked, table_tasks
from ttabench.paper.experiments import DATASETS, EXPERIMENTS, FIGURES, Task, stands_for, tasks
from ttabench.paper.page_facts import PageFacts
from ttabench.paper.rehearsal import SMALL, Rehearsal, share
from ttabench.paper.sources import Weights, trained, weights_of
from ttabench.registry import figure_names
from ttabench.sweep.chosen_methods import choose_methods
from ttabench.system.files import replace_file
from ttabench_reports.published.catalog import rows

pytestmark = pytest.mark.usefixtures("own_data")


@each("name", EXPERIMENTS)
def test_every_experiment_has_a_title_and_small_networks(name: str) -> None:
    assert experiments.title(name).endswith(".")
    for task in tasks(name):
        assert task.arch in SMALL
        assert task.dataset in DATASETS
    assert any("quantile_paper" in {parse_method(m)[0] for m in task.grid.methods} for task in tasks(name))
    assert set(FIGURES) <= set(figure_names())


def test_table_1_has_nine_methods_on_four_networks_and_three_datasets() -> None:
    made = tasks("table1")
    assert len({(task.dataset, task.arch) for task in made}) == len(made) == 12
    for task in made:
        assert set(task.grid.methods) - {"source", "quantile"} == {
            "bn_stats", "tent", "cotta", "eata", "sotta", "rotta", "sar", "medbn", "quantile_paper",
        }  # fmt: skip
        assert (task.grid.corruptions, task.grid.severities, task.grid.seeds) == (
            CORRUPTIONS,
            (5,),
            (0, 1, 2),
        )
        assert task.grid.settings == ("quantile_paper.minibatch=512",)


def test_table_3_and_figure_1_are_those_of_the_paper() -> None:
    planned: set[tuple[str, str]] = set()
    for task in tasks("table3"):
        values = dict(text.removeprefix("quantile_paper.").split("=") for text in task.grid.settings)
        points = values["quantiles_per_class"].split(",")
        planned |= {(batch, n) for batch in values["minibatch"].split(",") for n in points}
    assert planned == {
        (row["batch_size"], row["quantiles_per_class"]) for row in rows("quantile2026_ablation")
    }
    (task,) = tasks("severity")
    assert {str(severity) for severity in task.grid.severities} == {
        row["severity"] for row in rows("quantile2026_severity")
    }


def test_datasets_and_networks_of_the_user_take_the_place_of_the_papers() -> None:
    own = tasks("table1", ["my-cifar10-c-local"])
    assert {task.dataset for task in own} == {"my-cifar10-c-local"}
    assert [task.arch for task in own] == ["resnet18", "cct", "cvt", "vit_lite"]  # no published CIFAR weights
    assert tasks("table3", ["my-cifar10-c-local"]) == []  # which is of CIFAR-100
    assert {task.dataset for task in tasks("table3", ["birds-c-local"])} == {"birds-c-local"}
    assert {task.arch for task in tasks("table1", archs=["official/cct_7"])} == {"official/cct_7", "cct"}
    assert {task.arch for task in tasks("table2", ["cifar10-c"], ["resnet18_w16"])} == {"resnet18_w16"}
    assert tasks("table3", archs=["resnet18_w16"]) == []  # which is of CCT


@each(
    ("name", "published"),
    [
        ("cifar10-own-c-local", "cifar10-c"), ("real-cifar-100-local", "cifar100-c"), ("birds-c-local", ""),
        ("tinyimagenet-x0.1-c-local", "tinyimagenet-c"), ("digits-c", ""), ("notcifar10", ""),
        ("cifar10.1", ""), ("cifar10-c-bar", ""), ("my-cifar-10-c-bar-local", ""),
        ("cifar10-c[500]", "cifar10-c"),
    ],
)  # fmt: skip
def test_which_dataset_of_the_paper_a_name_speaks_of(name: str, published: str) -> None:
    assert stands_for(name) == published


def test_seeds_of_the_user_take_the_place_of_the_papers(tmp_path: Path) -> None:
    asked = Asked(["table1"], [], [], [], 1.0, "", "float32", tmp_path, "0", "cpu", 1, (4,))
    assert {task.grid.seeds for task in table_tasks(asked)} == {(4,)}


# ---- weights


def task(arch: str) -> Task:
    return tasks("table1", [EMBEDDED], [arch])[0]


def test_published_weights_that_cannot_be_had_are_trained_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offline(self: OfficialModel, progress: object = None) -> Path:
        raise UserError("no network")

    monkeypatch.setattr(OfficialModel, "weights", offline)
    weights = weights_of(task("official/cct_7"))
    assert weights.arch == "cct"
    assert weights.model is not None
    assert "official/cct_7 on digits-c is trained here" in weights.note
    assert "no network" in weights.note
    assert weights_of(task("official/cct_7"), fetch=False).arch == "official/cct_7"


def test_the_recipe_is_the_papers_or_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def seen(name: str, data: object, *, recipe: str = "", epochs: int = 0) -> object:
        asked.append(recipe)
        return resolve_trainable(name, dataset(EMBEDDED), recipe="fast", epochs=epochs)

    with pytest.raises(UserError, match="recipe"):
        weights_of(task("resnet18"), "cross-entropy")  # digits-c has none, and it was named
    assert weights_of(task("resnet18")).model.plan.recipe.name == "fast"  # type: ignore[union-attr]
    monkeypatch.setattr("ttabench.paper.sources.resolve_trainable", seen)
    weights_of(task("resnet18"))
    weights_of(task("resnet18"), "paper")
    assert asked == ["cross-entropy", "paper"]


def test_what_is_trained_is_trained_by_that_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr(ready, "train_all", lambda these, *rest: jobs.extend(these))
    asked = Asked([], [], [], [], 1.0, "fast", "float32", tmp_path, "0", "cpu")
    model = trained("resnet18", EMBEDDED, "fast", 3).model
    assert model is not None
    ready._train(model, asked)
    assert [(job.recipe, job.epochs, job.dataset) for job in jobs] == [("fast", 3, EMBEDDED)]


def test_the_page_names_the_recipe_that_was_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The paper's recipe is not known for the embedded images; `fast` is used there."""
    monkeypatch.setattr(ready, "train_all", lambda *rest: None)
    monkeypatch.setattr("ttabench.models.trained_model.TrainedModel.ready", True)
    facts = PageFacts()
    asked = Asked([], [], [], [], 0.01, "", "float32", tmp_path, "0", "cpu")
    for _ in range(2):
        ready.prepared(task("resnet18"), asked, facts)
    sha256 = weights_of(task("resnet18")).model.load().sha256  # type: ignore[union-attr]
    assert (facts.recipes, facts.notes) == ({sha256: "fast"}, {sha256: ""})


def test_a_network_has_the_name_that_its_results_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else its cells have no place in a table: `cct_2_3x2_32` is `cct_2` in results."""
    monkeypatch.setattr(ready, "find_weights", lambda task, *rest, **more: Weights(task.arch, None))
    own = str(own_cifar10(tmp_path))
    facts, asked = PageFacts(), Asked([], [], [own], [], 0.1, "", "float32", tmp_path, "0", "cpu")
    for each_task in tasks("table1", [own]):
        ready.prepared(each_task, asked, facts)
    (nets,) = facts.nets.values()
    assert nets == {"resnet18": ["resnet18_w16"], "cct": ["cct_2"], "cvt": ["cvt_2"], "vit_lite": ["vit_2"]}


def test_the_last_network_that_was_asked_for_is_the_last_one_of_the_facts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ready, "find_weights", lambda task, *rest, **more: Weights(task.arch, None))
    facts, asked = PageFacts(), Asked([], [], [], [], 1.0, "", "float32", tmp_path, "0", "cpu")
    for arch in ("resnet18", "resnet20", "resnet18"):
        ready.prepared(task(arch), asked, facts)
    assert facts.nets == {EMBEDDED: {"resnet18": ["resnet20", "resnet18"]}}


def test_the_time_of_the_papers_method_is_measured_with_and_without_its_decorruptor() -> None:
    methods = {name for each in tasks("runtime") for name in each.grid.methods}
    assert methods == {"source", "tent", "cotta", "quantile_paper", "quantile_strict"}
    held = {
        (choice.cls.name, config["bank_on_cpu"]): config
        for each in tasks("runtime") for choice in choose_methods(each.grid)
        if "minibatch" in (config := asdict(configured(choice.cls, choice.given, {})))
    }  # fmt: skip
    whole, bare = held["quantile_paper", True], held["quantile_strict", True]
    assert bare.pop("decorruptor") == "offset"
    assert {name: value for name, value in bare.items() if whole.get(name) != value} == {
        "keep": "lowest", "rebase": "stored", "loss": "quantile",  # which quantile_paper has no settings for
    }  # fmt: skip


# ---- rehearsals


def test_a_rehearsal_has_few_of_everything_and_the_embedded_images_where_no_others_are(
    tmp_path: Path,
) -> None:
    small = Rehearsal(0.01, tmp_path).task(tasks("table1")[0])
    assert (small.dataset, small.arch) == (EMBEDDED, "resnet18")
    grid = small.grid
    assert (len(grid.corruptions), grid.seeds, grid.limit) == (1, (0,), 60)
    assert {"quantile.epochs=1", "quantile_paper.epochs=1"} <= set(grid.settings)
    for arch, kept in (("resnet20", "resnet20"), ("official/cct_7", "cct")):  # a user's network stays
        (asked, *_) = tasks("table1", archs=[arch])
        assert Rehearsal(0.01, tmp_path).task(asked).arch == kept


def own_cifar10(folder: Path, corruption: str = "gaussian_noise") -> Path:
    """A small dataset of the user that stands for CIFAR10-C, in `folder / "data"`; of one severity."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 60), ("test", 40)):
        images = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        np.savez(folder / f"{part}.npz", images=images, labels=np.arange(count) % 10)
    return generate(
        folder / "test.npz", train=folder / "train.npz", name="my-cifar10", root=folder / "data",
        corruptions=(corruption,), severities=(5,), workers=0,
    )  # fmt: skip


def test_a_dataset_that_is_here_is_rehearsed_on_a_share_of_its_own_images(tmp_path: Path) -> None:
    own = own_cifar10(tmp_path)
    small = Rehearsal(0.1, tmp_path / "small")
    (asked,) = tasks("severity", [str(own)])
    made = small.task(asked)
    data = dataset(made.dataset)
    assert (len(data.train()), len(data.test())) == (10, 10)  # one of each class
    assert made.arch == "resnet18_w16"
    assert made.grid.limit == 0
    assert small.task(asked) == made  # made once


def test_a_rehearsal_that_was_stopped_while_it_saved_images_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (asked,) = tasks("severity", [str(own_cifar10(tmp_path))])

    def half(path: Path, data: Labelled) -> None:
        path.write_bytes(b"PK")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("ttabench.paper.rehearsal.save_npz", half)
        with pytest.raises(KeyboardInterrupt):
            Rehearsal(0.1, tmp_path / "small").task(asked)
    assert len(dataset(Rehearsal(0.1, tmp_path / "small").task(asked).dataset).test()) == 10


def test_a_share_has_every_class() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(7), 20))
    images = np.broadcast_to(np.arange(140, dtype=np.uint8)[:, None, None, None], (140, 2, 2, 3))
    small = share(Labelled(images, labels), 0.1)
    assert np.bincount(small.labels).tolist() == [2] * 7
    assert (labels[small.images[:, 0, 0, 0]] == small.labels).all()
    assert np.bincount(share(Labelled(images, labels), 0.001).labels).tolist() == [1] * 7


# ---- the command


def test_of_two_runs_of_other_scales_that_begin_at_once_the_second_is_refused(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one begins when this one has found an empty folder."""
    out = tmp_path / "paper"

    def lacking_of(*_: object) -> dict[str, str]:
        if not out.exists():
            out.mkdir()
            PageFacts(scale=0.02).keep(out)
        return {}

    monkeypatch.setattr(_paper, "lacking_of", lacking_of)
    output = ttabench("paper", "--scale", "0.01", "--only", "six-blobs", "--out", out)
    assert (output.code, output.out) == (2, "")
    assert f"{out} is a folder of --scale 0.02, and this run has 0.01; numbers of both" in output.err
    assert PageFacts.of(out) == PageFacts(scale=0.02)


def test_two_runs_in_one_folder_keep_what_both_know(tmp_path: Path) -> None:
    PageFacts(missing={"cifar10-c": "not here"}, drawn={"tsne": {"arch": "cct"}}).keep(tmp_path)
    one, two = PageFacts.of(tmp_path), PageFacts.of(tmp_path)
    one.nets["digits-c"] = {"resnet18": ["resnet18"]}
    del one.missing["cifar10-c"]
    one.keep(tmp_path)
    two.nets["digits-c"] = {"cct": ["cct_2"]}
    two.left_out["table1"] = "no weights"
    del two.drawn["tsne"]
    two.keep(tmp_path)
    one.figures["tsne"] = ""
    one.keep(tmp_path)
    for known in (one, PageFacts.of(tmp_path)):
        assert known == PageFacts(
            nets={"digits-c": {"resnet18": ["resnet18"], "cct": ["cct_2"]}},
            left_out={"table1": "no weights"}, figures={"tsne": ""},
        )  # fmt: skip


def test_a_rehearsal_measures_the_seeds_that_are_named(ttabench: Run, tmp_path: Path) -> None:
    small = ("--scale", "0.01", "--only", "table1", "--datasets", "digits-c", "--archs", "resnet18")
    for seeds, cells in (((), 11), (("--seeds", "4,5"), 22)):
        output = ttabench("paper", *small, *seeds, "--out", tmp_path / "out", "--dry-run")
        assert output.code == 0, output.err
        assert f"{cells} cells: {cells} to measure" in output.out


def test_a_rehearsal_on_the_embedded_images_takes_the_recipe_that_they_have(
    ttabench: Run, tmp_path: Path
) -> None:
    """The command that is rehearsed names a recipe of its own dataset, which is not here."""
    asked = ("--scale", "0.01", "--only", "table2", "--archs", "resnet18", "--recipe", "cross-entropy")
    output = ttabench("paper", *asked, "--device", "cpu", "--out", tmp_path / "out")
    assert output.code == 0, output.err
    note = "digits-c, which this rehearsal uses, has no recipe cross-entropy: trained with fast."
    assert output.err.count(f"Note: {note}") == 1
    assert note in (tmp_path / "out" / "paper.html").read_text()
    named = ttabench("paper", *asked, "--datasets", EMBEDDED, "--dry-run")
    assert named.out.count("unknown recipe 'cross-entropy'") == 2


def test_mistakes_are_told_before_anything_runs(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for arguments, sentence in (
        (("--only", "tabel1"), "did you mean 'table1'"),
        (("--scale", "0"), "expected a share above 0, at most 1"),
        (("--only", "severity"), "ttabench data fetch cifar10-c"),
        (("--datasets", "no-such-data"), "no-such-data"),
        (("--page",), "holds no results of ttabench paper; name its folder with --out, or leave out --page"),
        (
            ("--recipe", "croos-entropy", "--scale", "0.01"),
            "unknown recipe 'croos-entropy'; did you mean 'cross",
        ),
        (("--recipe", "nope-no-mirror", "--dry-run"), "unknown recipe 'nope-no-mirror'"),
        (("--page", "--only", "table2", "--per-gpu", "1"), "leave out --only, --per-gpu."),
        (("--page", "--dry-run"), "leave out --dry-run."),
        (
            ("--only", "table3", "--datasets", "cifar10-c"),
            "table3: nothing is measured of --datasets",
        ),
        (("--archs", "resnet81"), "did you mean"),
        (("--archs", "timm/mobilenetv3_small_100"), "is none of the paper's networks (ResNet18,"),
        (("--archs", "cct_2,cvt_2,cct_7"), "cct_2 and cct_7 both stand for cct, and a table"),
        (
            ("--only", "table3", "--archs", "resnet18", "--dry-run"),
            "nothing is measured of --archs resnet18; name",
        ),
        (
            ("--datasets", "cifar10.1"),
            "one of digits-c, cifar10-c, cifar100-c, tinyimagenet-c, imagenet-c",
        ),
        (("--datasets", "cifar10-c-bar[500]", "--dry-run"), "none of the corruptions of the paper's tables"),
        (("--datasets", "imagenet-r[200-way]", "--scale", "0.01"), "none of the corruptions"),
        (("--datasets", "digits-c,cifar10-c"), "digits-c and cifar10-c both stand for cifar10-c"),
        (("--datasets", "birds,digits-c"), "birds and digits-c both stand for cifar10-c"),
        (("--precision", "fp16", "--dry-run"), "--precision 'fp16'"),
        (
            ("--precision", "tf32", "--device", "cpu", "--only", "table2", "--datasets", EMBEDDED),
            "precision tf32 is for NVIDIA GPUs; on cpu, use",
        ),
        (("--workers", "x", "--dry-run"), "--workers x: expected auto"),
        (("--device", "foo", "--scale", "0.01", "--only", "table2"), "unknown device 'foo'"),
        (("--only", "tsne", "--datasets", "nosuch", "--scale", "0.01"), "unknown dataset 'nosuch'"),
        (("--only", "tsne"), "ttabench data fetch cifar10-c"),
        (("--only", "pipeline,six-blobs", "--datasets", "digits-c"), "--datasets is for tables and for fig"),
        (("--only", "pipeline", "--archs", "cct", "--dry-run"), "not for pipeline; leave it out"),
        (("--only", "pipeline", "--recipe", "fast"), "--recipe is for tables and for figures of a network"),
        (("--only", "pipeline", "--device", "cpu"), "--device is for tables and for figures of a network"),
        (("--only", "tsne", "--precision", "tf32"), "--precision is for tables, and --only names none"),
        (("--only", "tsne", "--seeds", "7"), "--seeds is for tables, and --only names none (tsne)"),
    ):
        output = ttabench("paper", *arguments, "--out", out)
        assert output.code == 2, arguments
        assert sentence in output.err
        assert not out.exists()


@each(
    ("file", "sentence"),
    [("notes.txt", "is not a results folder"), ("sweep.json", "is not what ttabench wrote")],
)
def test_a_folder_that_cannot_take_the_results_is_refused_before_a_network_is_trained(
    file: str, sentence: str, ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "prepared", lambda *rest: pytest.fail("trained"))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / file).write_text("{}")
    asked = ("--only", "table2", "--datasets", EMBEDDED, "--archs", "resnet18", "--out", tmp_path)
    for more in ((), ("--dry-run",)):
        output = ttabench("paper", *asked, *more)
        assert (output.code, sentence in output.err) == (2, True)
    assert not (tmp_path / "paper.json").exists()


def test_a_dry_run_says_cells_hours_and_downloads(ttabench: Run, tmp_path: Path) -> None:
    output = ttabench("paper", "--only", "severity", "--dry-run", "--out", tmp_path / "out")
    assert output.code == 0, output.err
    assert "10 cells" in output.out
    assert "3.1 GB to download; ttabench data fetch cifar10-c" in output.out
    assert "\nLess than 0.1 hours on one H200 GPU with --per-gpu 7 --precision tf32" in output.out
    assert not (tmp_path / "out").exists()


def work(out: Path, *experiments: str, archs: tuple[str, ...] = ("resnet18",), **more: Any) -> Any:
    """What a dry run finds, of the embedded dataset if no other is named."""
    given = {"datasets": [EMBEDDED], "scale": 1.0, "figures": [], **more}
    asked = Asked(
        experiments,
        given["figures"],
        given["datasets"],
        archs,
        given["scale"],
        "",
        "float32",
        out,
        "0",
        "cpu",
        network_figures=given["figures"],
    )
    return plan.work_of(asked, out / "elsewhere")[0]


def test_a_dry_run_counts_a_cell_of_two_tables_once(tmp_path: Path) -> None:
    for datasets in (["cifar100-c"], [EMBEDDED]):  # the first one is not here
        found = work(tmp_path, "table1", "table2", "severity", "runtime", datasets=datasets)
        cells = [(row[0], int(row[-1])) for row in found.rows]
        assert cells[0] == ("table1", 11 * 15 * 3), datasets
        assert "table2" not in dict(cells)  # it has no cell of its own
        assert sum(count for _, count in cells) == len(found.cells)
        timed = sum(count for label, count in cells if label == "runtime")
        assert timed == 6  # they are measured alone, whatever other tables have


def test_a_row_of_table_3_is_counted_with_table_1_before_its_dataset_is_here(tmp_path: Path) -> None:
    """The defaults of a method on the dataset are known: ten points per class of a hundred."""
    found = work(tmp_path, "table1", "table3", datasets=["cifar100-c"], archs=("official/cct_7",))
    assert [(row[0], int(row[-1])) for row in found.rows] == [("table1", 11 * 15 * 3), ("table3", 4 * 15)]


def test_a_dry_run_says_what_is_trained_and_counts_its_time(tmp_path: Path) -> None:
    known = work(tmp_path, "table2")
    assert {row[3] for row in known.rows} == {"trained already: fast"}  # these weights come with ttabench
    assert known.training == {}
    new = work(tmp_path, "table1", "severity", archs=("resnet18_w16",))
    assert [row[3] for row in new.rows] == ["to train: fast", "trained by then: fast"]
    assert list(new.training) == [(EMBEDDED, "resnet18_w16")]
    figure = work(tmp_path, figures=["tsne"], archs=("cvt",))
    assert figure.rows == [("figures", EMBEDDED, "cvt", "to train: fast", "0")]


def test_a_dry_run_says_the_size_of_weights_and_the_time_of_a_rehearsal(
    ttabench: Run, tmp_path: Path
) -> None:
    options = ("--only", "table1,table3", "--dry-run", "--out", tmp_path / "out")
    weights = "weights of official/cct_7 for cifar10-c and cifar100-c, about 15 MB each."
    minutes = "With --scale 0.01, all of it takes about five minutes on a CPU."
    whole = ttabench("paper", *options)
    assert weights in whole.out  # once, though two tables have them
    assert whole.out.count("official/cct_7 for") == 1
    assert minutes not in whole.out
    small = ttabench("paper", *options, "--scale", "0.01", "--device", "cpu")
    assert minutes in small.out
    assert "weights of" not in small.out  # it has small networks, which are trained
    page = (Path(__file__).resolve().parents[3] / "docs" / "quantile.md").read_text()
    assert "takes about five minutes on a CPU." in page


def test_a_dry_run_subtracts_what_the_folder_holds(ttabench: Run, tmp_path: Path) -> None:
    options = ("--only", "table2", "--datasets", EMBEDDED, "--archs", "resnet18", "--out", tmp_path)
    assert ttabench("paper", *options, "--scale", "0.01", "--device", "cpu").code == 0
    again = ttabench("paper", *options, "--scale", "0.01", "--device", "cpu", "--dry-run")
    assert "3 cells: 0 to measure, 3 stored already" in again.out
    assert "is a folder of --scale 0.01" in ttabench("paper", *options, "--dry-run").err  # as without it


def test_a_dry_run_of_a_rehearsal_leaves_the_folder_as_it_is(ttabench: Run, tmp_path: Path) -> None:
    options = ("--only", "severity", "--datasets", own_cifar10(tmp_path), "--scale", "0.1", "--dry-run")
    output = ttabench("paper", *options, "--out", tmp_path / "out")
    assert output.code == 0, output.err
    assert "10 cells: 10 to measure" in output.out
    assert not (tmp_path / "out").exists()


def test_a_dry_run_names_a_table_that_cannot_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agenda(task: Task, *rest: object) -> Any:
        if task.experiment == "severity":
            raise UserError("severities 1 to 4 are not here")
        return plan.Agenda()

    monkeypatch.setattr(plan, "_agenda", agenda)
    found = work(tmp_path, "table2", "severity")
    assert found.left_out == ["severity, resnet18 on digits-c: severities 1 to 4 are not here"]
    with pytest.raises(UserError, match="severities 1 to 4"):
        work(tmp_path, "severity")


def test_the_page_has_what_was_drawn_and_why_the_rest_is_missing(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # without a TeX
    monkeypatch.setattr(measuring, "_measure", lambda task, asked: 0)
    draw = _paper._figure.make

    def some(name: str, *rest: Any) -> list[Path]:
        if name == "two-moons":
            raise UserError("no room for moons")
        return draw(name, *rest)

    monkeypatch.setattr(_paper._figure, "make", some)
    out = tmp_path / "out"
    only = "severity,quantile-index,two-moons"
    output = ttabench("paper", "--only", only, "--scale", "0.01", "--out", out, "--device", "cpu")
    assert output.code == 0, output.err
    page = (out / "paper.html").read_text()
    assert output.err.count("no PDF: none of latexmk") == 1
    assert "A rehearsal at 0.01 of the size" in page
    assert "data:image/png;base64," in page
    assert "Not drawn: no room for moons" in page
    assert "Not drawn: no severity was measured" in page
    assert "Not drawn: not asked for yet" in page
    assert json.loads((out / "paper.json").read_text())["stands"] == {"cifar10-c": EMBEDDED}
    again = ttabench("paper", "--only", only, "--scale", "0.01", "--out", out, "--device", "cpu")
    assert again.err.count("It was drawn before") == 1  # and not the one that could not be
    whole = ttabench("paper", "--only", "quantile-index", "--out", out)
    assert "is a folder of --scale 0.01, and this run has 1" in whole.err
    assert "A rehearsal at 0.01" in (out / "paper.html").read_text()
    assert "A rehearsal; its numbers mean nothing." in (out / "tables" / "paper_table1.tex").read_text()
    (out / "paper.json").write_text("{")
    assert "is damaged" in ttabench("paper", "--page", "--out", out).err


@each("kind", ["link", "pipe"])
@each("name", ["paper.json", "figures/tsne.png", "figures/pipeline.pdf"])
def test_a_page_holds_no_file_from_elsewhere(ttabench: Run, tmp_path: Path, name: str, kind: str) -> None:
    """A link to a file of whoever makes the page, in a folder of somebody else; a pipe would never end."""
    out = tmp_path
    PageFacts(scale=0.01, figures={"tsne": "", "pipeline": ""}).keep(out)
    (out / "figures").mkdir()
    (out / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(out / name)
    else:
        (out / name).symlink_to(Path(__file__))
    output = ttabench("paper", "--page", "--out", out)
    assert (output.code, output.out) == (2, "")
    assert f"{out / name} is a" in output.err
    assert "expected a file" in output.err
    assert not (out / "paper.html").exists()
    assert not (out / "tables").exists()


@each(
    ("name", "value"),
    [
        ("scale", 2), ("scale", 0), ("scale", float("nan")), ("drawn", {"tsne": {"arch": ["cct"]}}),
        ("drawn", {"tsne": 1}), ("more", {}),
    ],
)  # fmt: skip
def test_facts_of_another_kind_are_damaged(name: str, value: object, tmp_path: Path) -> None:
    (tmp_path / "paper.json").write_text(json.dumps({**asdict(PageFacts()), name: value}))
    with pytest.raises(UserError, match=r"paper\.json is damaged"):
        PageFacts.of(tmp_path)


def test_what_a_figure_was_drawn_of_may_lack_its_dataset(ttabench: Run, tmp_path: Path) -> None:
    PageFacts(figures={"tsne": ""}, drawn={"tsne": {"arch": "cct"}}).keep(tmp_path)
    assert ttabench("paper", "--page", "--out", tmp_path).code == 0


def test_no_text_of_the_facts_steers_who_reads_the_page(ttabench: Run, tmp_path: Path) -> None:
    evil = "\x1b[2J\u202e<script>"
    PageFacts(missing={"cifar10-c": evil}, left_out={"a": evil}, figures={"tsne": evil}).keep(tmp_path)
    assert ttabench("paper", "--page", "--out", tmp_path).code == 0
    for file in ("paper.html", "tables/paper.tex"):
        text = (tmp_path / file).read_text()
        assert not {"\x1b", "\u202e"} & {*text}
        assert "<script>" not in text or file.endswith("tex")


def drawn_by(ttabench: Run, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> list[tuple[str, Any]]:
    """The figures that a command draws, and what of: options of `ttabench figure`."""
    made: list[tuple[str, Any]] = []
    monkeypatch.setattr(_paper._figure, "make", lambda name, out, given, *rest: made.append((name, given)))
    monkeypatch.setattr(ready, "train_all", lambda *rest: None)
    output = ttabench("paper", *arguments)
    assert output.code == 0, output.err
    return made


def test_figures_alone_show_the_network_and_dataset_that_are_asked_for(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--only", "tsne,pipeline", "--datasets", EMBEDDED, "--archs", "cct", "--device", "cpu")
    made = drawn_by(ttabench, monkeypatch, *asked, "--out", tmp_path / "out")
    of = {"arch": "cct", "dataset": EMBEDDED, "device": "cpu", "checkpoint": ""}
    assert made == [("pipeline", {}), ("tsne", of)]
    facts = json.loads((tmp_path / "out" / "paper.json").read_text())
    assert (facts["stands"], facts["nets"]) == ({}, {})  # nothing was measured
    small = ("--only", "tsne", "--scale", "0.01", "--out", tmp_path / "small")
    assert drawn_by(ttabench, monkeypatch, *small)[0][1]["arch"] == "resnet18"


def test_a_figure_whose_drawing_was_stopped_is_drawn_again(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its two files may be of two networks then."""
    made: list[str] = []

    def draw(name: str, out: Path, given: Any, *rest: Any) -> None:
        made.append(given["arch"])
        if made == ["cct", "resnet18"]:
            raise KeyboardInterrupt
        for file in ("tsne.png", "tsne.pdf"):
            replace_file(out / file, b"")

    monkeypatch.setattr(_paper._figure, "make", draw)
    for arch in ("cct", "resnet18", "cct"):
        ttabench("paper", "--only", "tsne", "--datasets", EMBEDDED, "--archs", arch, "--out", tmp_path)
    assert made == ["cct", "resnet18", "cct"]


def test_a_figure_whose_dataset_is_not_here_is_left_out_and_the_others_are_drawn(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = drawn_by(ttabench, monkeypatch, "--only", "tsne,pipeline", "--out", tmp_path)
    assert made == [("pipeline", {})]
    why = json.loads((tmp_path / "paper.json").read_text())["figures"]["tsne"]
    assert "ttabench data fetch cifar10-c" in why


def test_a_figure_whose_weights_cannot_be_had_is_left_out(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--only", "tsne,pipeline", "--datasets", EMBEDDED, "--recipe", "cross-entropy")
    assert drawn_by(ttabench, monkeypatch, *asked, "--out", tmp_path) == [("pipeline", {})]
    assert "recipe" in json.loads((tmp_path / "paper.json").read_text())["figures"]["tsne"]


def test_one_table_that_cannot_be_measured_does_not_stop_the_others(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[dict[str, str]] = []

    def measure(task: Task, asked: object) -> int:
        if task.experiment == "severity":
            raise UserError("severities 1 to 4 are not here")
        known.append(json.loads((out / "paper.json").read_text())["stands"])
        return 0

    monkeypatch.setattr(measuring, "_measure", measure)
    out = tmp_path / "out"
    only = ("--only", "table2,severity,quantile-index", "--datasets", EMBEDDED, "--archs", "resnet18")
    output = ttabench("paper", *only, "--out", out, "--device", "cpu")
    assert output.code == 1
    assert "Left out: severities 1 to 4 are not here" in output.err
    assert (
        "severity, resnet18 on digits-c: severities 1 to 4 are not here" in (out / "paper.html").read_text()
    )
    # A page that is made while the first table is measured knows what stands for what.
    assert known[0] == dict.fromkeys(("cifar10-c", "cifar100-c"), EMBEDDED)


@each(
    ("corruption", "only", "sentence"),
    [
        ("gaussian_noise", "severity", "has no gaussian_noise at severity 1, 2, 3, 4; make the images with"),
        ("fog", "severity", "has no gaussian_noise; make the images with ttabench data generate, or leave"),
        ("speckle_noise", "table1", "has none of the fifteen corruptions; make the images with ttabench"),
    ],
)
def test_a_table_that_a_dataset_has_no_images_for_is_refused_before_a_network_is_trained(
    corruption: str, only: str, sentence: str, ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With options that this command has, and not those of a sweep."""
    monkeypatch.setattr(ready, "with_weights", lambda *rest: pytest.fail("trained"))
    folder = tmp_path / corruption
    folder.mkdir()
    made = own_cifar10(folder, corruption)
    asked = ("--only", only, "--datasets", made, "--archs", "resnet18", "--out", folder / "out")
    for more in ((), ("--dry-run",)):
        output = ttabench("paper", *asked, *more)
        assert output.code == 2
        assert sentence in output.err
        assert f"leave {only} out with --only" in output.err


def test_a_table_whose_dataset_is_not_here_is_told_by_the_exit_code(
    ttabench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_measure", lambda task, asked: 0)
    monkeypatch.setattr(ready, "find_weights", lambda task, *rest, **more: Weights(task.arch, None))
    own = own_cifar10(tmp_path)
    asked = ("--only", "table2,quantile-index", "--archs", "resnet18", "--out", tmp_path / "out")
    assert ttabench("paper", *asked, "--datasets", own).code == 0
    output = ttabench("paper", *asked, "--datasets", f"{own},cifar100-c")
    assert "Left out: cifar100-c is not here" in output.err
    assert output.code == 1


def test_a_folder_without_results_says_why(ttabench: Run, tmp_path: Path) -> None:
    """The recipe cross-entropy is known, and not for the embedded images."""
    asked = (
        "--only",
        "table2",
        "--datasets",
        EMBEDDED,
        "--archs",
        "resnet18,cct",
        "--recipe",
        "cross-entropy",
    )
    first = ttabench("paper", *asked, "--out", tmp_path)
    again = ttabench("paper", "--page", "--out", tmp_path)
    for output in (first, again):
        assert output.code == 2
        assert "holds no results, because nothing could be measured" in output.err
        assert "table2, cct on digits-c: unknown recipe 'cross-entropy'" in output.err
    (tmp_path / "paper.json").write_text('{"scale": 1.0}')
    assert "run the command that began it again" in ttabench("paper", "--page", "--out", tmp_path).err


def test_a_dataset_that_was_not_here_is_not_missing_once_the_folder_has_its_cells(
    ttabench: Run, tmp_path: Path
) -> None:
    """They may come from another machine, or from a sweep."""
    PageFacts(missing={name: f"{name} is not here" for name in ("cifar10-c", "cifar100-c")}).keep(tmp_path)
    folder(tmp_path / "results", {("fog", 0): np.ones(10, np.bool_)}, dataset="cifar10-c")
    assert ttabench("paper", "--page", "--out", tmp_path).code == 0
    page = (tmp_path / "paper.html").read_text()
    assert "cifar10-c is not here" not in page
    assert "cifar100-c is not here" in page


@each(
    "text",
    [
        "{", "[1]", "[" * 100_000, '{"scale": "0.005"}', '{"stands": ["digits-c"]}',
        '{"nets": {"cct": ["cct_2"]}}',
        '{"figures": {"tsne": 3}}', '{"drawn": {"tsne": {"arch": 5}}}', '{"unheard": 1}',
    ],
)  # fmt: skip
def test_facts_that_are_damaged_are_told_with_the_way_on(text: str, tmp_path: Path) -> None:
    (tmp_path / "paper.json").write_text(text)
    with pytest.raises(
        UserError, match=r"paper\.json is damaged, or of another version .*; delete it, and run"
    ):
        PageFacts.of(tmp_path)


def test_facts_are_read_as_they_were_kept(tmp_path: Path) -> None:
    of = {"arch": "cct", "settings": ["epochs=1"]}
    facts = PageFacts(
        scale=1, nets={EMBEDDED: {"cct": ["cct_2"]}}, missing={"cifar10-c": "why"}, drawn={"tsne": of}
    )
    facts.keep(tmp_path)
    assert PageFacts.of(tmp_path) == facts


def test_what_another_network_in_its_place_measured_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(task: Task, asked: object) -> int:
        if task.arch == "resnet20":
            raise UserError("no memory")
        return 0

    monkeypatch.setattr(measuring, "_measure", measure)
    monkeypatch.setattr(ready, "find_weights", lambda task, *rest, **more: Weights(task.arch, None))
    facts, asked = PageFacts(), Asked([], [], [], [], 1.0, "", "float32", tmp_path, "0", "cpu")
    measuring._one(task("resnet20"), asked, facts, [], alone=False)
    assert [*facts.left_out.values()] == ["table1, resnet20 on digits-c: no memory"]
    measuring._one(task("resnet18"), asked, facts, [], alone=False)
    assert facts.left_out == {}


@pytest.mark.slow
def test_a_rehearsal_from_the_cells_to_the_page(ttabench: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = (
        "paper",
        "--only",
        "severity,quantile-index",
        "--scale",
        "0.01",
        "--out",
        out,
        "--device",
        "cpu",
    )
    output = ttabench(*command)
    assert output.code == 0, output.err
    page = (out / "paper.html").read_text()
    assert "A rehearsal at 0.01 of the size" in page
    assert "data:image/png;base64," in page
    assert (out / "figures" / "severity-curve.png").exists()
    facts = json.loads((out / "paper.json").read_text())
    assert facts["stands"] == {"cifar10-c": EMBEDDED}
    again = ttabench(*command)
    assert "0 to run" in again.err  # it goes on where it was


def test_more_images_an_update_than_a_batch_has_are_refused(ttabench: Run, tmp_path: Path) -> None:
    output = ttabench(
        "sweep", "--methods", "quantile_paper", "--set", "quantile_paper.minibatch=1024",
        "--archs", "resnet18", "--out", tmp_path / "out", "--dry-run",
    )  # fmt: skip
    assert output.code == 2
    assert "minibatch=1024: its batches have 512 images" in output.err
