from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.cases import each
from tests.unit.planning import plan
from ttabench.errors import UserError
from ttabench.method import Architecture
from ttabench.method.settings import make_config
from ttabench.method.spelling import parse_method, split_list
from ttabench.registry import method
from ttabench.sweep.chosen_methods import parse_settings
from ttabench.sweep.grid import Grid
from ttabench.sweep.option_table import DEFAULTS
from ttabench.sweep.options_to_grid import make_grid
from ttabench.sweep.plan import SourceFacts
from ttabench.sweep.resolve import resolve

RESNET = SourceFacts(
    "resnet18", "digits-c", 10, "f", Architecture(norm_layers=("batch",), num_classes=10), "c"
)
CCT = SourceFacts("cct", "digits-c", 10, "f", Architecture(norm_layers=("layer",), num_classes=10), "d")


def grid(**changed: Any) -> Grid:
    return Grid(**{"methods": ("tent",), "archs": ("resnet18",), "corruptions": ("fog", "snow"), **changed})


def labels(*targets: SourceFacts, **changed: Any) -> dict[tuple[str, str], str]:
    return {(p.cell.label, p.cell.arch): p.unmet for p in plan(grid(**changed), targets)}


def test_the_size_of_a_plan_is_the_product_of_its_axes_plus_the_baseline() -> None:
    planned = plan(grid(severities=(1, 5), seeds=(0, 1, 2)), [RESNET, CCT])
    assert len(planned) == (1 + 1) * 2 * 2 * 2 * 3  # methods+source, targets, corruptions, severities, seeds
    assert len({p.cell.cell_id for p in planned}) == len(planned)


def test_the_baseline_comes_first_and_once() -> None:
    assert plan(grid(), [RESNET])[0].cell.method == "source"
    assert sum(p.cell.method == "source" for p in plan(grid(methods=("tent", "source")), [RESNET])) == 2


def test_batch_norm_methods_are_not_applicable_where_there_is_none() -> None:
    result = labels(RESNET, CCT, methods=("bn_stats", "tent[norms=batch]"))
    assert result[("bn_stats", "cct")] == "no batch norm"
    assert result[("tent[norms=batch]", "cct")] == "no batch norm"
    assert result[("bn_stats", "resnet18")] == ""


def test_tent_adapts_all_norms_where_there_is_no_batch_norm_and_says_so() -> None:
    assert labels(RESNET, CCT) == {
        ("source", "resnet18"): "", ("tent", "resnet18"): "",
        ("source", "cct"): "", ("tent[norms=all]", "cct"): "",
    }  # fmt: skip


def test_one_configuration_under_two_names_is_one_cell() -> None:
    planned = plan(grid(methods=("tent", "tent[norms=all]")), [CCT])
    assert [p.cell.label for p in planned if p.cell.method == "tent"] == ["tent[norms=all]"] * 2


def test_settings_cross() -> None:
    result = labels(RESNET, settings=("tent.lr=0.01,0.1", "tent.steps=1,2"))
    assert {label for label, _ in result} == {
        "source", "tent[lr=0.01]", "tent[lr=0.1]", "tent[lr=0.01,steps=2]", "tent[lr=0.1,steps=2]",
    }  # fmt: skip


def test_continual_cells_know_their_history() -> None:
    planned = [p.cell for p in plan(grid(reset="continual"), [RESNET]) if p.cell.method == "tent"]
    assert [c.history for c in planned] == [(), ("fog-5",)]


def test_native_mode_is_resolved_so_that_equal_numbers_are_equal_cells() -> None:
    native = {p.cell.cell_id for p in plan(grid(mode="native"), [RESNET])}
    assert native == {p.cell.cell_id for p in plan(grid(mode="online"), [RESNET])}
    assert not native & {p.cell.cell_id for p in plan(grid(mode="offline"), [RESNET])}


@each(
    ("wrong", "message"),
    [
        ({"methods": ("tnet",)}, "did you mean 'tent'"),
        ({"settings": ("tent.ler=1",)}, "did you mean 'lr'"),
        ({"settings": ("tent.lr=fast",)}, "expected a number"),
        ({"settings": ("tent.steps=1.5",)}, "expected a whole number"),
        ({"settings": ("tent.lr",)}, r"form method\.key=value"),
        ({"settings": ("tnet.lr=1",)}, "did you mean 'tent'"),
        ({"settings": ("bn_stats.x=1",)}, "not among the methods"),
        ({"methods": ("tent[lr]",)}, "form key=value"),
        ({"methods": ("tent[lr=1",)}, "form name"),
        ({"severities": (0,)}, "severities are 1 to 5"),
        ({"severities": (6,)}, "severities are 1 to 5"),
        ({"mode": "onlin"}, "did you mean 'online'"),
        ({"classes": "frist"}, "unknown choice of classes 'frist'; did you mean 'first'"),
        ({"reset": "sometimes"}, "per_corruption"),
        ({"methods": ()}, "name at least one"),
        ({"methods": ("tent", "tent")}, "twice"),
        ({"mode": "offline", "reset": "episodic"}, "cannot be episodic"),
    ],
)
def test_mistakes_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(grid(**wrong), [RESNET])


def test_lists_split_outside_brackets() -> None:
    assert split_list("a, b[x=1,y=2] ,c") == ("a", "b[x=1,y=2]", "c")
    assert parse_method("b[x=1,y=2]") == ("b", {"x": "1", "y": "2"})
    assert parse_settings(["tent.lr=1,2"], ["tent"]) == {"tent": {"lr": ["1", "2"]}}


def test_two_methods_joined_by_a_plus_are_the_stack_of_them() -> None:
    parsed = ("stack", {"first": "quantile", "second": "tent"})
    assert parse_method("quantile+tent") == parsed
    assert make_grid({**DEFAULTS, "methods": "quantile + tent"}).methods == (
        "stack[first=quantile,second=tent]",
    )
    planned = plan(grid(methods=("quantile+cotta", "stack")), [RESNET])
    assert len({p.cell.cell_id for p in planned if p.cell.method == "stack"}) == 2  # fog and snow
    with pytest.raises(UserError, match=r"stack\.second 'nobody'"):
        plan(grid(methods=("quantile+nobody",)), [RESNET])
    for wrong in ("quantile+cotta[lr=1]", "quantile[epochs=2]+cotta"):
        with pytest.raises(UserError, match=r"have their default settings; write quantile\+cotta"):
            make_grid({**DEFAULTS, "methods": wrong})
    assert parse_method("odd[text=1+2]") == ("odd", {"text": "1+2"})


def test_a_network_and_a_number_have_one_spelling() -> None:
    """Each gives one id, and so one result."""
    made = make_grid({**DEFAULTS, "archs": "ResNet18,CCT-2,ViT_Lite_7,timm/ResNet,Mine:Net"})
    assert made.archs == ("resnet18", "cct_2", "vit_7", "timm/ResNet", "Mine:Net")
    with pytest.raises(UserError, match="archs names 'resnet18' twice"):
        make_grid({**DEFAULTS, "archs": "resnet18,ResNet18"})
    zeros = plan(grid(methods=("sar[reset_constant=0]", "sar[reset_constant=-0.0]")), [RESNET])
    assert len({p.cell.cell_id for p in zeros if p.cell.method == "sar"}) == 2  # fog and snow


def test_two_names_of_one_network_are_refused() -> None:
    """As `resnet18_w8` is the `resnet18` of digits-c, and another network than that of CIFAR-10."""
    with pytest.raises(UserError, match="resnet18 and resnet18_w8 are the same network on digits-c"):
        resolve(make_grid({**DEFAULTS, "archs": "resnet18,resnet18_w8"}))
    resolve(make_grid({**DEFAULTS, "archs": "resnet18,resnet18_w64"}))


def test_values_take_the_declared_type() -> None:
    @dataclass(frozen=True)
    class Config:
        lr: float = 1.0
        steps: int = 1
        on: bool = False
        kind: str = "a"
        most: int | None = None
        fixed: ClassVar[str] = "constant"

    Base = method("source")

    class Toy(Base):  # type: ignore[misc,valid-type]
        name = "toy"

    Toy.Config = Config
    config = make_config(Toy, {"lr": "1e-3", "steps": "2", "on": "true", "kind": "b", "most": "none"}, {})
    assert config == Config(1e-3, 2, True, "b", None)
    with pytest.raises(UserError, match="true or false"):
        make_config(Toy, {"on": "yes"}, {})
    with pytest.raises(UserError, match="unknown setting of toy 'fixed'"):
        make_config(Toy, {"fixed": "otherwise"}, {})


def test_epochs_are_given_to_offline_methods_alone() -> None:
    planned = plan(grid(methods=("tent", "quantile"), epochs=3), [RESNET])
    epochs = {p.cell.method: p.cell.protocol.epochs for p in planned}
    assert epochs == {"source": 0, "tent": 0, "quantile": 3}
    offline = plan(grid(methods=("tent",), epochs=3, mode="offline"), [RESNET])
    assert {p.cell.protocol.epochs for p in offline} == {3}


def test_a_setting_stands_in_one_place() -> None:
    with pytest.raises(UserError, match=r"tent\.lr is set twice: tent\[lr=1\] and --set tent\.lr"):
        plan(grid(methods=("tent[lr=1]",), settings=("tent.lr=2",)), [RESNET])
    with pytest.raises(UserError, match=r"--set tent\.lr is given twice; put all values into one"):
        plan(grid(settings=("tent.lr=1", "tent.lr=2")), [RESNET])


def test_a_comma_in_a_decimal_is_no_list_of_two_values() -> None:
    says = r"--set tent\.lr=0,001: a comma separates values, .* a decimal has a point, as in 0\.001\."
    with pytest.raises(UserError, match=says):
        parse_settings(["tent.lr=0,001"], ["tent"])
    assert parse_settings(["tent.lr=0,0.001, 10"], ["tent"]) == {"tent": {"lr": ["0", "0.001", "10"]}}


def test_settings_of_a_name_and_of_an_option_are_joined() -> None:
    result = labels(RESNET, methods=("tent[steps=2]",), settings=("tent.lr=0.01,0.1",))
    assert {label for label, _ in result} == {"source", "tent[lr=0.01,steps=2]", "tent[lr=0.1,steps=2]"}


def test_settings_are_of_the_method_they_name() -> None:
    result = labels(RESNET, methods=("tent", "eata"), settings=("eata.lr=0.1",))
    assert {label for label, _ in result} == {"source", "tent", "eata[lr=0.1]"}


def test_a_foreign_dataset_may_have_a_dot_in_its_name() -> None:
    assert make_grid({**DEFAULTS, "contamination": "cifar10.1(0.20)"}).contamination == "cifar10.1(0.2)"


@pytest.mark.parametrize("option", ["order", "contamination"])
def test_two_spellings_of_a_number_are_the_same_sweep(option: str) -> None:
    name = {"order": "dirichlet", "contamination": "noise"}[option]
    spellings = [f"{name}({number})" for number in ("0.1", "0.10", "1e-1", "00.1")]
    assert {getattr(make_grid({**DEFAULTS, option: text}), option) for text in spellings} == {spellings[0]}
    rules = [{"per_dataset": {"digits-c": {option: text}}} for text in spellings]
    assert len({str(make_grid({**DEFAULTS, **rule}).per_dataset) for rule in rules}) == 1
