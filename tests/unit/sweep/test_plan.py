"""Grids as they are stored, source classifiers as planning knows them, and the cells of a sweep."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tests.cases import each
from tests.unit.data_fakes import clean_images, write_png
from tests.unit.planning import plan, source_of
from ttabench.cell import Cell
from ttabench.data.catalog import dataset as open_dataset
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.errors import UserError
from ttabench.measure.contamination import foreign_images
from ttabench.method import Architecture
from ttabench.models.model import Model
from ttabench.registry import method
from ttabench.sweep import plan as planning
from ttabench.sweep.chosen_methods import choose_methods
from ttabench.sweep.exclude_rules import exclusion
from ttabench.sweep.grid import Grid
from ttabench.sweep.pace import NOTHING_KEPT, OFFLINE
from ttabench.sweep.plan import NOT_RESET, SourceFacts, find_sources
from ttabench.sweep.resolve import Sweep, SweepPart, resolve
from ttabench.sweep.shifts import Shifts, find_shifts, shifts_of

BATCH = Architecture(norm_layers=("batch",), num_classes=10)
RESNET = SourceFacts("resnet18", "digits-c", 10, "f", BATCH, "c")
PLAIN: dict[str, Any] = {"methods": ("tent",), "archs": ("resnet18",), "corruptions": ("fog", "snow")}


def grid(**changed: Any) -> Grid:
    return Grid(**{**PLAIN, **changed})


# ---- a grid


def test_a_stored_grid_has_the_fields_that_old_folders_have() -> None:
    stored = {
        "methods": ["tent"], "archs": ["resnet18"], "datasets": ["digits-c"], "corruptions": ["fog", "snow"],
        "severities": [5], "seeds": [0], "settings": [], "mode": "native", "reset": "per_corruption",
        "batch_size": 0, "epochs": 0, "order": "iid", "contamination": "", "held_out": 0.0, "limit": 0,
        "precision": "float32", "checkpoint": "", "normalize": "",
    }  # fmt: skip
    assert grid().to_json() == stored
    later: dict[str, Any] = {
        "stream": "", "pace": 0.0, "pace_ratio": [], "include": [], "exclude": [], "per_method": {},
        "per_dataset": {}, "batch_rate": "official", "classes": "first",
    }  # fmt: skip
    assert grid().to_json(whole=True) == stored | later
    assert grid().to_json(whole=True).keys() - grid().to_options() == {"settings", "batch_rate", "classes"}
    assert grid(settings=("tent.lr=1",), classes="balanced").to_options().items() >= {
        "set": ["tent.lr=1"], "classes": "balanced",
    }.items()  # fmt: skip


def test_what_was_added_later_is_stored_where_it_is_set() -> None:
    rules: dict[str, Any] = {
        "pace": 1.0, "pace_ratio": (("tent", 3.1),), "include": ({"methods": ("sar",)},),
        "exclude": ({"seeds": (1, 2)},), "per_method": {"tent": {"settings": ("tent.lr=1",)}},
        "per_dataset": {"digits-c": {"limit": 9}},
    }  # fmt: skip
    stored = grid(**rules).to_json()
    assert {name: stored[name] for name in rules} == {
        "pace": 1.0, "pace_ratio": [["tent", 3.1]], "include": [{"methods": ["sar"]}],
        "exclude": [{"seeds": [1, 2]}], "per_method": {"tent": {"settings": ["tent.lr=1"]}},
        "per_dataset": {"digits-c": {"limit": 9}},
    }  # fmt: skip
    assert "stream" not in stored


@each(
    ("of", "kept"),
    [
        ({}, True),
        ({"stream": "gradual"}, True),
        ({"stream": "gradual", "include": ({"severities": (3,)}, {"stream": "recurring(2)"})}, True),
        ({"stream": "gradual", "include": ({"stream": "", "reset": "episodic"},)}, True),
        ({"stream": "gradual", "reset": "continual", "include": ({"stream": ""},)}, True),
        ({"stream": "gradual", "include": ({"severities": (3,)}, {"stream": ""})}, False),
        ({"stream": "gradual", "per_dataset": {"digits-c": {"stream": ""}}}, False),
        ({"include": ({"stream": ""},)}, True),
    ],
)
def test_the_kept_file_has_the_reset_unless_a_rule_without_the_stream_has_another(
    of: dict[str, Any], kept: bool
) -> None:
    assert ("reset" in grid(**of).to_options()) == kept


def test_a_long_stream_is_continual_unless_another_reset_is_asked_for() -> None:
    for asked, expected in (
        (grid(stream="gradual"), "continual"), (grid(stream="gradual", reset="episodic"), "episodic"),
        (grid(), "per_corruption"), (grid(reset="continual"), "continual"),
    ):  # fmt: skip
        assert asked.reset_in_force == asked.to_json()["reset"] == expected
        assert {p.cell.protocol.reset for p in plan(asked, [RESNET])} == {expected}
    assert grid(stream="gradual").to_json()["stream"] == "gradual"
    with pytest.raises(UserError) as problem:
        resolve(grid(stream="recurring(2)", reset="per_corruption"))
    assert str(problem.value) == (
        "stream recurring is one sequence; expected reset continual, every(N) or episodic."
    )


@each(
    ("wrong", "message"),
    [
        (
            {"checkpoint": "w.pt", "archs": ("a", "b")},
            "a checkpoint belongs to one architecture, but 2 are given; give one.",
        ),
        ({"mode": "onlin"}, "unknown mode 'onlin'; did you mean 'online'? Valid: native, offline, online."),
        ({"severities": (5, 0)}, "severity 0 does not exist; severities are 1 to 5."),
        ({"severities": (6,)}, "severity 6 does not exist; severities are 1 to 5."),
        ({"seeds": (0, -1)}, "seed -1 does not exist; seeds are 0 to 2⁶³ − 1."),
        ({"seeds": (2**63,)}, f"seed {2**63} does not exist; seeds are 0 to 2⁶³ − 1."),
        *(
            ({axis: ()}, f"no {axis} were given; name at least one.")
            for axis in ("methods", "archs", "datasets", "corruptions", "severities", "seeds")
        ),
        *(
            ({axis: (value, value)}, f"{axis} names '{value}' twice; name each once.")
            for axis, value in (
                ("methods", "a"), ("archs", "a"), ("datasets", "a"), ("corruptions", "a"), ("severities", 2),
                ("seeds", 2),
            )
        ),
        (
            {"per_method": {"tent[norms=all]": {"mode": "online"}}},
            "per_method.tent[norms=all]: rules are for a whole method; name tent.",
        ),
        ({"methods": ("a", "b", "b")}, "methods names 'b' twice; name each once."),
    ],
)  # fmt: skip
def test_a_wrong_grid_is_one_sentence(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as problem:
        grid(**wrong)
    assert str(problem.value) == message


def test_the_ends_of_every_range_belong_to_it() -> None:
    made = grid(severities=(1, 5), seeds=(0, 2**63 - 1), checkpoint="w.pt")
    assert made.severities == (1, 5)


# ---- source classifiers


class Known:
    """A model whose weights are there, or are trained later."""

    trainable = True
    load_with_warnings = Model.load_with_warnings

    def __init__(self, name: str, data: Any, ready: bool, note: dict[str, str] | None = None) -> None:
        self.name, self.ready, self.note = name, ready, note or {}
        self.dataset = self.measured = data
        self.asked: list[tuple[Any, ...]] = []

    def __str__(self) -> str:
        return f"{self.name} on {self.dataset.name}"

    def load(self, *asked: Any) -> Any:
        self.asked.append(asked)
        return SimpleNamespace(classifier=self.build("loaded"), sha256="w" * 64, note=self.note)

    def build(self, how: str = "built") -> Any:
        return SimpleNamespace(architecture=lambda: f"{self.name} {how}")


def dataset(name: str, classes: int) -> Any:
    read: list[str] = []

    def fingerprint() -> str:
        read.append(name)
        return f"data of {name}"

    return SimpleNamespace(name=name, num_classes=classes, fingerprint=fingerprint, read=read)


def test_a_source_has_the_facts_of_its_model_and_its_dataset() -> None:
    digits, letters = dataset("digits", 10), dataset("letters", 26)
    models = [Known("a", digits, True), Known("b", digits, False), Known("c", letters, False)]
    told: list[str] = []
    result = find_sources(cast("list[Model]", models), "cuda:1", cast("Any", told))
    assert result == [
        SourceFacts("a", "digits", 10, "data of digits", cast("Any", "a loaded"), "w" * 64),
        SourceFacts("b", "digits", 10, "data of digits", cast("Any", "b built"), ""),
        SourceFacts("c", "letters", 26, "data of letters", cast("Any", "c built"), ""),
    ]
    assert digits.read == ["digits"]  # a fingerprint reads all images: once is enough
    assert [model.asked for model in models] == [[("cuda:1", told)], [], []]


def test_a_doubtful_clean_accuracy_is_warned_of() -> None:
    models = cast("list[Model]", [Known("a", dataset("digits", 10), True, {"warning": "it is low"})])
    with pytest.warns(UserWarning, match="^a on digits: it is low$"):
        find_sources(models, "cpu")
    with warnings.catch_warnings(action="error"):
        find_sources(cast("list[Model]", [Known("a", dataset("digits", 10), True)]), "cpu")


def test_networks_that_cannot_adapt_and_datasets_without_training_images_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(OwnDataset):
        image_size = 32

        def __init__(self, trains: bool) -> None:
            self.trains = trains

        def has_train(self) -> bool:
            return self.trains

    Own.__abstractmethods__ = frozenset()
    asked: list[Any] = []
    monkeypatch.setattr(planning, "settled_classes", lambda data: 7)
    monkeypatch.setattr(planning, "gradient_problem", lambda *given: asked.append(given) or "no gradient")
    network: Any = SimpleNamespace(architecture=lambda: BATCH)

    def facts(data: Any, trainable: bool) -> SourceFacts:
        model: Any = SimpleNamespace(
            name="net", dataset=data, measured=SimpleNamespace(name="set"), trainable=trainable
        )
        return planning.source_of(model, network, "c", "f")

    every = [facts(Own(True), True), facts(Own(False), True), facts(SimpleNamespace(image_size=9), False)]
    assert [(of.trains, of.no_gradient) for of in every] == [(True, ""), (False, ""), (True, "no gradient")]
    assert {(of.name, of.dataset, of.num_classes) for of in every} == {("net", "set", 7)}
    assert asked == [(network, 9)]


def test_what_a_network_or_a_dataset_lacks_is_said_for_methods_that_need_it() -> None:
    def unmet(**lacks: Any) -> dict[str, str]:
        planned = plan(grid(methods=("bn_stats", "tent", "eata")), [replace(RESNET, **lacks)])
        return {item.cell.method: item.unmet for item in planned}

    assert unmet() == {"source": "", "bn_stats": "", "tent": "", "eata": ""}
    assert unmet(no_gradient="none") == {"source": "", "bn_stats": "", "tent": "none", "eata": "none"}
    lacks_both = unmet(trains=False, no_gradient="none")
    assert lacks_both == {"source": "", "bn_stats": "", "tent": "none", "eata": "no training images"}


# ---- cells


@each("stream", ["", "gradual"])
def test_cells_of_a_continual_run_share_a_sequence_and_others_have_their_own(stream: str) -> None:
    def of(reset: str) -> list[Any]:
        planned = plan(grid(reset=reset, stream=stream, methods=("tent", "bn_stats")), [RESNET])
        assert len({item.cell.cell_id for item in planned}) == len(planned)
        own = [item.cell.cell_id == planning.sequence(item.cell) for item in planned]
        assert len({*own}) == 1
        return [own[0], len({planning.sequence(item.cell) for item in planned})]

    assert of("episodic") == [True, 3 if stream else 6]
    assert of("continual") == ([True, 3] if stream else [False, 3])


def test_cells_have_the_foreign_images_and_the_files_of_their_shifts() -> None:
    shifts = Shifts(("fog",), (5,), foreign="a" * 64, image_files=True)
    model = cast("Model", SimpleNamespace())
    part = SweepPart(tuple(choose_methods(grid(contamination="noise(0.2)"))), (model,), shifts)
    planned = planning.plan(Sweep((part,), (model,)), [RESNET])
    assert {(item.cell.foreign, item.cell.image_files) for item in planned} == {("a" * 64, True)}


def test_names_that_results_could_not_be_read_with_are_refused() -> None:
    with pytest.raises(UserError, match=r"^results of .*could not be read again, as its corruption has"):
        planning.plan(sweep((grid(corruptions=("fog\x07",)), (0,), {})), [RESNET])


def sweep(*parts: tuple[Grid, tuple[int, ...], dict[str, Any]]) -> Sweep:
    """Parts of a sweep over the models that they name by number."""
    models = tuple(cast("Model", object()) for _ in range(1 + max(n for _, used, _ in parts for n in used)))
    return Sweep(
        tuple(
            SweepPart(
                tuple(choose_methods(asked)), tuple(models[n] for n in used),
                Shifts(asked.corruptions, asked.severities), **more,
            )
            for asked, used, more in parts
        ),
        models,
    )  # fmt: skip


def test_a_part_is_planned_on_its_own_models_and_a_cell_once() -> None:
    other = replace(RESNET, name="cct", checkpoint="d")
    parts = sweep((grid(), (0, 1), {}), (grid(methods=("eata", "tent")), (1,), {}))
    cells = [p.cell for p in planning.plan(parts, [RESNET, other])]
    assert [(c.method, c.arch) for c in cells if c.corruption == "fog"] == [
        ("source", "resnet18"), ("tent", "resnet18"), ("source", "cct"), ("tent", "cct"), ("eata", "cct"),
    ]  # fmt: skip
    assert len({c.cell_id for c in cells}) == len(cells)


def test_a_baseline_is_named_with_its_weights_and_others_have_none() -> None:
    """The second model is the baseline of the first part; the second part has none."""
    other = replace(RESNET, name="cct", checkpoint="d")
    both = sweep((grid(), (0, 1), {}), (grid(seeds=(1,)), (0,), {}))
    first, second = both.parts
    planned = planning.plan(
        replace(both, parts=(replace(first, baseline=both.models[1]), second)), [RESNET, other]
    )
    assert {(p.cell.seed, p.cell.baseline) for p in planned} == {(0, "cct@d"), (1, "")}


def test_epochs_of_a_sweep_with_online_methods_are_commented_on() -> None:
    given = grid(methods=("tent", "sar", "quantile"), archs=("resnet18",), datasets=("digits-c",), epochs=3)
    with pytest.warns(UserWarning, match="--epochs 3 is for offline methods; .* once: tent, sar."):
        resolve(given)
    with warnings.catch_warnings(action="error"):
        resolve(replace(given, methods=("quantile",)))
        resolve(replace(given, mode="offline", epochs=3))


def test_two_numbers_of_epochs_are_refused() -> None:
    """The row was called [epochs=2] and had made three passes. SoTTA's setting means something else."""
    given = grid(mode="offline", epochs=3)
    with pytest.raises(UserError, match=r"--epochs 3 and shot\.epochs=2 are both passes over the images"):
        resolve(replace(given, methods=("shot[epochs=2]",)))
    with pytest.raises(UserError, match=r"--epochs 3 and quantile\.epochs=4 are both"):
        resolve(replace(given, methods=("quantile",), settings=("quantile.epochs=4",)))
    resolve(replace(given, methods=("sotta[epochs=2]",)))


def test_epochs_without_an_offline_method_are_refused() -> None:
    with pytest.raises(UserError, match="--epochs 3: no method of this sweep runs offline"):
        resolve(grid(epochs=3))


def test_a_limit_above_the_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_dataset("digits-c")
    monkeypatch.setattr(type(data), "shifted_count", lambda self: 60)
    assert find_shifts(data, grid(limit=60)).corruptions == ("fog", "snow")
    with pytest.raises(UserError, match="--limit 61: digits-c has 60 test images; name fewer"):
        find_shifts(data, grid(limit=61))


@pytest.fixture
def own(tmp_path: Path, few_images: Path, own_cache: Path) -> None:
    """Own datasets that are known by their names: few-c-local of arrays, pets-local of image files."""
    for dark, part in enumerate(("test", "fog/5")):
        for number, pixels in enumerate(clean_images(8) // (1 + dark)):
            write_png(tmp_path / "pets" / part / ("cat", "dog")[number % 2] / f"{number}.png", pixels)
    for folder in (few_images, tmp_path / "pets"):
        open_dataset(str(folder))


@each(
    ("name", "contamination", "expected"),
    [
        ("digits-c", "", False), ("few-c-local", "", False), ("few-c-local[20]", "noise(0.5)", False),
        ("pets-local", "", True), ("pets-local[4]", "", True), ("pets-local", "few-c-local(0.5)", True),
        ("few-c-local", "pets-local(0.5)", True), ("few-c-local", "pets-local[4](0.5)", True),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("own")
def test_a_cell_says_whether_own_images_are_files(name: str, contamination: str, expected: bool) -> None:
    asked = resolve(grid(datasets=(name,), corruptions=("fog",), contamination=contamination))
    cells = [item.cell for item in planning.plan(asked, [*map(source_of, asked.models)])]
    assert {cell.image_files for cell in cells} == {expected}


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (599, 599), (600, 0)])
def test_a_limit_of_all_images_gives_the_cells_of_all_images(limit: int, kept: int) -> None:
    cells = [item.cell for item in planning.plan(resolve(grid(limit=limit)), [RESNET])]
    assert {cell.protocol.limit for cell in cells} == {kept}


def test_excluded_cells_are_left_out_and_the_rest_stays() -> None:
    rule = exclusion({"corruptions": ("fog",), "methods": ("tent[lr=0.1]",)})
    parts = sweep((grid(settings=("tent.lr=0.1,0.2",)), (0,), {"exclude": (rule,)}))
    left = [(p.cell.label, p.cell.corruption) for p in planning.plan(parts, [RESNET])]
    assert left == [
        ("source", "fog"), ("source", "snow"), ("tent[lr=0.1]", "snow"), ("tent[lr=0.2]", "fog"),
        ("tent[lr=0.2]", "snow"),
    ]  # fmt: skip


def test_two_continual_runs_over_the_same_images_are_refused() -> None:
    def parts(**second: Any) -> Sweep:
        first = {"reset": "continual", "methods": ("source",)}
        return sweep(
            (grid(**first), (0,), {}), (grid(**{**first, "corruptions": ("snow", "fog"), **second}), (0,), {})
        )

    with pytest.raises(UserError) as problem:
        planning.plan(parts(), [RESNET])
    assert str(problem.value) == (
        "source · resnet18 · digits-c · snow-5 · seed 0 is in two continual runs of this sweep that differ "
        "in their corruptions; name all corruptions of a continual run in one place."
    )
    for other in ({"seeds": (1,)}, {"severities": (1,)}, {"reset": "per_corruption"}):
        assert len(planning.plan(parts(**other), [RESNET])) == 4
    alone = sweep((grid(reset="continual"), (0,), {}))
    assert len(planning.plan(alone, [RESNET])) == 4


def test_cells_that_are_reset_do_not_hide_continual_runs_that_differ() -> None:
    plain = (grid(methods=("source",), corruptions=("frost",)), (0,), {})
    first = (grid(methods=("source",), reset="continual"), (0,), {})
    second = (grid(methods=("source",), reset="continual", corruptions=("snow", "fog")), (0,), {})
    with pytest.raises(UserError, match="is in two continual runs"):
        planning.plan(sweep(plain, first, second), [RESNET])


def test_streams_are_one_cell_each_and_no_continual_runs_that_differ() -> None:
    model = cast("Model", object())
    parts = tuple(
        SweepPart(tuple(choose_methods(asked)), (model,), shifts_of(("fog", "snow"), asked))
        for asked in (grid(methods=("source",), stream=f"recurring({n})") for n in (2, 3))
    )
    cells = [p.cell for p in planning.plan(Sweep(parts, (model,)), [RESNET])]
    assert [cell.protocol.stream for cell in cells] == [str(part.shifts.stream) for part in parts]
    assert {cell.corruption for cell in cells} == {"recurring"}


def test_a_configuration_takes_the_values_of_its_dataset_and_architecture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, int]] = []

    def for_dataset(dataset: str, num_classes: int) -> dict[str, Any]:
        asked.append((dataset, num_classes))
        return {"lr": 0.25}

    monkeypatch.setattr(method("tent"), "for_dataset", for_dataset)
    cell = plan(grid(), [RESNET])[-1].cell
    assert dict(cell.config)["lr"] == 0.25
    assert cell.label == "tent"
    assert set(asked) == {("digits-c", 10)}


def test_a_value_for_an_architecture_wins_over_that_for_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method("tent"), "for_dataset", lambda *_: {"lr": 0.25, "steps": 2})
    monkeypatch.setattr(method("tent"), "for_architecture", lambda _: {"lr": 0.5})
    config = dict(plan(grid(), [RESNET])[-1].cell.config)
    assert (config["lr"], config["steps"]) == (0.5, 2)


# ---- pace


def test_a_ratio_is_asked_for_where_a_method_runs() -> None:
    asked: list[Cell] = []

    def ratio_of(cell: Cell) -> float:
        asked.append(cell)
        return 2.71828

    transformer = replace(
        RESNET, name="cct", architecture=Architecture(norm_layers=("layer",), num_classes=10)
    )
    planned = plan(
        grid(methods=("bn_stats", "quantile"), pace=1.0, seeds=(0, 1)), [RESNET, transformer], ratio_of
    )
    ratios = {(p.cell.method, p.cell.arch): p.cell.protocol.pace_ratio for p in planned}
    assert ratios == {
        ("source", "resnet18"): 1.0, ("bn_stats", "resnet18"): 2.71828, ("quantile", "resnet18"): 1.0,
        ("source", "cct"): 1.0, ("bn_stats", "cct"): 1.0, ("quantile", "cct"): 1.0,
    }  # fmt: skip
    assert [(cell.method, cell.arch) for cell in asked] == [("bn_stats", "resnet18")]
    assert {p.cell.protocol.pace_ratio for p in plan(grid(), [RESNET], ratio_of)} == {1.0}
    assert {p.cell.protocol.pace_ratio for p in plan(grid(methods=("tent",), pace=1.0), [RESNET])} == {1.0}


def test_methods_that_see_source_data_are_not_run_without_training_images() -> None:
    methods = ("tent", "eata", "aqr", "coral", "medbn")
    for source, reason in ((replace(RESNET, trains=False), "no training images"), (RESNET, "")):
        unmet = {p.cell.method: p.unmet for p in plan(grid(methods=methods), [source])}
        assert {name for name in unmet if unmet[name] == reason} >= {"eata", "aqr", "coral"}
        assert {unmet[name] for name in ("source", "tent", "medbn")} == {""}
    of_layers = {p.cell.method: p.unmet for p in plan(
        grid(methods=("aqr",)), [replace(RESNET, trains=False, architecture=Architecture(num_classes=10))]
    )}  # fmt: skip
    assert of_layers["aqr"].startswith("no batch norm")  # what no image would mend comes first


def test_a_method_that_keeps_nothing_cannot_skip_batches() -> None:
    """Its `predict` does all the work of `adapt`, so a batch that is only predicted would not be cheaper."""
    ratios = {"tent": 3.0, "memo": 159.0, "aqr": 1.9, "bn_stats": 1.08}
    cells = plan(grid(methods=tuple(ratios), pace=1.0), [RESNET], lambda cell: ratios[cell.method])
    assert {(p.cell.method, p.unmet) for p in cells} == {
        ("source", ""), ("tent", ""), ("bn_stats", ""), ("aqr", NOTHING_KEPT), ("memo", NOTHING_KEPT)
    }  # fmt: skip
    slow = plan(grid(methods=("aqr",), pace=0.5), [RESNET], lambda cell: ratios[cell.method])
    assert {p.unmet for p in slow} == {""}  # a stream at half the speed leaves it the time


def test_a_compute_ratio_that_was_given_is_not_rounded() -> None:
    """⌈3.004⌉ = 4."""
    (cell,) = (p.cell for p in plan(grid(methods=("tent",), pace=1.0), [RESNET], lambda cell: 3.004)
               if p.cell.method == "tent" and p.cell.corruption == "fog")  # fmt: skip
    assert cell.protocol.adapts_every == 4


def test_a_pace_does_not_begin_anew_with_each_corruption() -> None:
    with pytest.raises(UserError, match=r"--pace with --reset continual: .* use --stream 'recurring\(1\)'"):
        resolve(grid(pace=1.0, reset="continual"))
    assert resolve(grid(pace=1.0, stream="recurring(1)"))


@each(
    ("share", "images", "part"),
    [
        (0.02, 20, "to score"),
        (0.99, 20, "to adapt to"),
        (0.5, 1, "to score"),
        (0.5, 20, ""),
        (0.001, 600, ""),
    ],
)
def test_both_parts_of_a_held_out_protocol_have_images(share: float, images: int, part: str) -> None:
    asked = grid(methods=("tent",), held_out=share, limit=images)
    if not part:
        assert resolve(asked)
        assert resolve(replace(asked, limit=0))  # all 600
        return
    with pytest.raises(UserError, match=f"{share:g} of {images} images? of digits-c leaves none {part}"):
        resolve(asked)


@each(
    ("contamination", "images", "enough"),
    [
        ("noise(0.005)", 64, False),
        ("noise(0.005)", 600, True),
        ("noise(0.2)", 2, False),
        ("noise(0.2)", 3, True),
    ],
)
def test_a_contaminated_stream_has_a_foreign_image(contamination: str, images: int, enough: bool) -> None:
    drawn = foreign_images(contamination, np.zeros((images, 1, 1, 3), np.uint8), 0)
    assert bool(len(drawn)) == enough  # what is refused is what the measuring code would draw none of
    for limit in {images, images % 600}:  # digits-c has 600 images
        asked = grid(methods=("tent",), contamination=contamination, limit=limit)
        if enough:
            assert resolve(asked)
            continue
        with pytest.raises(UserError, match=f"adds no image to a stream of {images} images"):
            resolve(asked)


def test_a_plan_says_which_weights_and_ratios_were_given() -> None:
    """Two sweeps with other given weights are two sets of cells, of which none replaces the other."""
    asked = {"methods": ("tent",), "pace": 1.0}
    fixed = [
        {p.fixed for p in plan(grid(**asked, **given), [RESNET])}
        for given in ({}, {"checkpoint": "net.pt"}, {"pace_ratio": (("tent", 3.0),)})
    ]
    assert fixed == [{()}, {("checkpoint c",)}, {(), ("pace ratio 3.0",)}]


@pytest.mark.parametrize("changed", [{"pace": 1.0}, {"stream": "gradual"}])
def test_an_offline_method_has_neither_a_pace_nor_a_stream(changed: dict[str, Any]) -> None:
    unmet = {p.cell.method: p.unmet for p in plan(grid(methods=("quantile", "tent"), **changed), [RESNET])}
    assert unmet == {"source": "", "tent": "", "quantile": OFFLINE}
    plain = {p.cell.method: p.unmet for p in plan(grid(methods=("quantile", "tent")), [RESNET])}
    assert set(plain.values()) == {""}


@each(
    ("reset", "mode", "expected"),
    [
        ("episodic", "native", ("online", NOT_RESET)), ("every(3)", "native", ("online", NOT_RESET)),
        ("per_corruption", "native", ("offline", "")), ("continual", "native", ("offline", "")),
        ("episodic", "online", ("online", "")),
    ],
)  # fmt: skip
def test_a_method_that_is_offline_in_its_paper_is_not_reset_between_batches(
    reset: str, mode: str, expected: tuple[str, str]
) -> None:
    planned = plan(grid(methods=("quantile",), reset=reset, mode=mode), [RESNET])
    result = {p.cell.method: (p.cell.protocol.mode, p.unmet) for p in planned}
    assert result == {"source": ("online", ""), "quantile": expected}


@pytest.mark.parametrize("reset", ["episodic", "every(3)"])
def test_a_stream_is_named_before_its_reset(reset: str) -> None:
    planned = plan(grid(methods=("quantile",), reset=reset, stream="gradual"), [RESNET])
    assert [p.unmet for p in planned if p.cell.method == "quantile"] == [OFFLINE]


def test_what_an_offline_method_lacks_otherwise_is_told_first() -> None:
    layers = replace(RESNET, architecture=Architecture(norm_layers=(), num_classes=10))
    asked = grid(methods=("bn_stats",), mode="offline", pace=1.0)
    (reason,) = {p.unmet for p in plan(asked, [layers]) if p.cell.method == "bn_stats"}
    assert reason == "no batch norm"


# ---- the protocol


def test_every_option_of_the_grid_reaches_the_protocol() -> None:
    asked = grid(
        mode="online", batch_size=7, order="dirichlet(0.5)", reset="every(3)", contamination="noise(0.2)",
        limit=9, precision="bfloat16", pace=2.0,
    )  # fmt: skip
    protocol = plan(asked, [RESNET])[0].cell.protocol
    for name in ("mode", "batch_size", "order", "reset", "contamination", "limit", "precision", "pace"):
        assert getattr(protocol, name) == getattr(asked, name), name
    assert protocol.stream == ""
    assert plan(grid(held_out=0.25), [RESNET])[0].cell.protocol.held_out == 0.25
    offline = plan(grid(mode="offline", epochs=4), [RESNET])[0].cell.protocol
    assert (offline.mode, offline.epochs) == ("offline", 4)


def test_without_a_batch_size_a_method_has_its_own() -> None:
    for mode in ("online", "offline"):
        asked = {
            p.cell.method: p.cell.protocol for p in plan(grid(methods=("quantile",), mode=mode), [RESNET])
        }
        assert asked["quantile"].batch_size == method("quantile").native_batch_size(10, mode)
    large = replace(RESNET, num_classes=1000)
    sizes = {p.cell.method: p.cell.protocol.batch_size for p in plan(grid(methods=("tent",)), [large])}
    assert sizes["tent"] == method("tent").native_batch_size(1000, "online")


def test_a_protocol_that_a_method_does_not_have_names_the_method() -> None:
    with pytest.raises(UserError) as problem:
        plan(grid(mode="offline", reset="episodic"), [RESNET])
    assert str(problem.value) == (
        "source: offline mode sees all images at once, so it cannot be episodic; choose another reset."
    )


@pytest.mark.parametrize("hook", ["needs_of", "for_dataset", "for_architecture"])
@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KeyError("fog"), "KeyError: 'fog'"),
        (
            SystemExit(0),
            "RuntimeError: its code calls exit(0), which would end the whole process; raise an exception "
            "instead",
        ),
    ],
)
def test_a_method_whose_own_code_fails_while_a_sweep_is_planned_is_named(
    monkeypatch: pytest.MonkeyPatch, hook: str, raised: BaseException, said: str
) -> None:
    def fails(*_arguments: Any) -> None:
        raise raised

    monkeypatch.setattr(method("tent"), hook, fails)
    with pytest.raises(UserError) as problem:
        plan(grid(), [RESNET])
    assert str(problem.value) == (
        f"method 'tent' cannot be planned for resnet18 on digits-c ({said}); "
        "fix its package, or name other methods."
    )
