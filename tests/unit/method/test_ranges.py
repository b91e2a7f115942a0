"""Every numeric setting of every method states its range, the range is enforced, and its ends work."""

from __future__ import annotations

import itertools
import math
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch

from tests.cases import each
from tests.conformance.test_all_methods import LIGHTER, others_at_night
from tests.unit.conftest import Run
from ttabench.classifier import Classifier
from ttabench.conformance.nets import SIZE, images, nets
from ttabench.conformance.watched_data import WatchedSource
from ttabench.errors import UserError
from ttabench.method import Architecture, Count, Method, Range, UnitInterval
from ttabench.method.ranges import check_ranges, ranges
from ttabench.method.settings import make_config, parse_value
from ttabench.registry import method as find_method
from ttabench.registry import method_names
from ttabench_methods.deyo import shuffle_patches

ARCHITECTURES = [
    Architecture(norm_layers=("batch",)),
    Architecture(norm_layers=("group",)),
    Architecture(norm_layers=("layer",), tags=("transformer", "class_token")),
]


method = cache(find_method)  # each search reads what is installed, and here it would do so for every setting


@cache
def numeric_settings(name: str) -> list[tuple[str, type]]:
    """(setting, int or float) of a registered method."""
    config = method(name).Config
    hints = typing.get_type_hints(config)
    return [
        (key, kind)
        for key in (field.name for field in fields(config))
        for kind in {int, float} & {hints[key], *typing.get_args(hints[key])}
    ]


def edges(allowed: Range, kind: type) -> Iterator[tuple[str, str]]:
    """For each bound, the last number inside and the first one outside, as texts."""

    def beside(bound: float, towards: float) -> float:
        return math.nextafter(bound, towards) if kind is float else bound + math.copysign(1, towards)

    result = [
        (allowed.least, beside(allowed.least, -math.inf)),
        (beside(allowed.above, math.inf), allowed.above),
        (allowed.most, beside(allowed.most, math.inf)),
        (beside(allowed.below, -math.inf), allowed.below),
    ]
    for inside, outside in result:
        if math.isfinite(inside) and math.isfinite(outside):
            yield repr(kind(inside)), repr(kind(outside))


WITH = {  # settings that exist only beside another one
    ("come", key): {"host": host}
    for host, keys in {
        "eata": ("e0_factor", "d_margin", "fisher_alpha", "fisher_images", "fisher_batch_size"),
        "sar": ("rho", "reset_constant"),
    }.items()
    for key in keys
}


@each("name", method_names())
def test_every_numeric_setting_states_its_range(name: str) -> None:
    for key, kind in numeric_settings(name):
        allowed = ranges(method(name).Config).get(key)
        assert allowed, f"{name}.{key} has no range"
        assert list(edges(allowed, kind)), f"{name}.{key} has no bound"


@each("name", method_names())
def test_values_outside_are_refused_in_one_sentence_and_the_last_ones_inside_are_taken(name: str) -> None:
    cls = method(name)
    for key, kind in numeric_settings(name):
        beside = WITH.get((name, key), {})
        number = "a whole number" if kind is int else "a number"
        for inside, outside in edges(ranges(cls.Config)[key], kind):
            assert repr(getattr(make_config(cls, {**beside, key: inside}, {}), key)) == inside
            with pytest.raises(UserError) as refused:
                make_config(cls, {**beside, key: outside}, {})
            output = rf"{name}: {key} is {re.escape(outside)}; expected (0 or )?{number} [a-z0-9 .-]+[0-9]\."
            assert re.fullmatch(output, str(refused.value)), str(refused.value)


@each("name", method_names())
def test_what_is_no_finite_number_is_refused(name: str) -> None:
    for key, kind in numeric_settings(name):
        expected = "a finite number" if kind is float else "a whole number"
        for text in ("nan", "inf", "-inf", "1e999"):
            with pytest.raises(UserError, match=rf"^{name}\.{key}={text}: expected {expected}\.$"):
                make_config(method(name), {key: text}, {})


@each("name", method_names())
def test_defaults_for_every_dataset_and_architecture_are_inside(name: str) -> None:
    cls = method(name)
    for num_classes, arch in itertools.product((2, 10, 100, 200, 1000), ARCHITECTURES):
        for dataset in ("digits-c", "cifar10-c", "any"):
            check_ranges(
                cls.Config(**{**cls.for_dataset(dataset, num_classes), **cls.for_architecture(arch)})
            )


# ---- the ends work

SHORT: dict[str, dict[str, str]] = {  # beside LIGHTER: for so few images, so that memories fill
    **{name: {"epochs": "1"} for name in method_names() if name.startswith("quantile")},
    "adacontrast": {"queue": "64"},
    "rmt": {"warmup_images": "64"},
    "rotta": {"capacity": "8", "update_every": "8"},
    "shot": {"epochs": "1"},
    "sotta": {"threshold": "0", "update_every": "8"},
}


def ends(name: str) -> list[tuple[str, float]]:
    """(setting, value) at the ends of the ranges of a method."""
    return [
        (key, kind(value))
        for key, kind in numeric_settings(name)
        for allowed in [ranges(method(name).Config)[key]]
        for value in (allowed.least, allowed.most, allowed.also)
        if value is not None and math.isfinite(value)
    ]


@cache
def net(name: str) -> Classifier:
    return nets()[name]


# One method of each kind. The other ones take four fifths of the time of all, and change seldom.
EACH_KIND = (
    "bn_stats", "tent", "eata", "sar", "deyo", "come", "roid", "cotta", "shot", "t3a", "lame", "neo",
    "actmad", "ttac", "tca", "quantile",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds that are wrong for tiny nets
@pytest.mark.parametrize("name", others_at_night(EACH_KIND))
def test_at_the_ends_of_its_range_a_setting_gives_finite_logits(name: str) -> None:
    cls = method(name)
    light = make_config(cls, LIGHTER.get(name, {}) | SHORT.get(name, {}), {})
    for key, value in ends(name):
        config = replace(light, **{**WITH.get((name, key), {}), key: value})
        torch.manual_seed(0)
        made: Method[Any] = cls(net("LN ViT" if "transformer" in cls.needs.tags else "BN CNN"), config)
        made.prepare(WatchedSource(cls.needs_of(config)))
        for x in images(24, seed=2, shift=0.4).view(3, 8, 3, SIZE, SIZE):
            assert torch.isfinite(made.adapt(x)).all(), f"{name}.{key}={value}"


# ---- what more than one number decides


def test_more_patches_than_pixels_are_refused() -> None:
    x = images(2, seed=0)
    side = x.shape[-1]
    assert shuffle_patches(x, side).shape == x.shape
    with pytest.raises(
        UserError, match=rf"^patches is {side + 1}; expected at most {side}, the images' side\.$"
    ):
        shuffle_patches(x, side + 1)


def test_settings_of_quantile_matching_that_do_not_go_together() -> None:
    with pytest.raises(UserError, match=r"^quantile: bank is 'optimal', .* use step or epoch\.$"):
        make_config(method("quantile"), {"bank": "optimal"}, {})


# ---- the mechanism


@each(
    ("allowed", "inside", "outside", "sentence"),
    [
        (Range(least=1), (1, 2, 1e300), (0.999, -1, math.inf, math.nan), "a number of at least 1"),
        (Range(above=0), (5e-324, 7), (0, -1), "a number above 0"),
        (Range(most=-2), (-2, -1e300), (-1.5, -math.inf), "a number of at most -2"),
        (Range(below=3), (2.9, -5), (3, math.nan), "a number below 3"),
        (Range(least=0, most=1), (0, 0.5, 1), (-1e-9, 1.0001), "a number from 0 to 1"),
        (Range(least=0, below=1), (0, 0.999), (1, -0.1), "a number from 0 to below 1"),
        (Range(above=0, most=0.5), (0.1, 0.5), (0, 0.51), "a number from above 0 to 0.5"),
        (Range(above=0, below=1), (0.1, 0.99), (0, 1), "a number from above 0 to below 1"),
        (Range(least=2, also=0), (0, 2), (1, -1, 1.9), "0 or a number of at least 2"),
    ],
    ids=str,
)
def test_a_range_is_what_its_sentence_says(
    allowed: Range, inside: tuple[float, ...], outside: tuple[float, ...], sentence: str
) -> None:
    assert all(value in allowed for value in inside)
    assert not any(value in allowed for value in outside)
    assert allowed.describe() == sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangersConfig:
    """As somebody else may write it."""

    share: UnitInterval = 0.5
    most: Count | None = None
    least: Annotated[int | None, Range(least=3)] = None
    free: float = 0.0
    word: str = ""


class Strangers(Method[StrangersConfig]):
    name = "strangers"
    Config = StrangersConfig

    def adapt(self, x: torch.Tensor) -> torch.Tensor:
        return self.predict(x)


def test_a_strangers_method_gets_the_checks_by_its_annotations_alone() -> None:
    given = make_config(Strangers, {"share": "1", "most": "none", "least": "3", "free": "-7"}, {})
    assert given == StrangersConfig(share=1.0, least=3, free=-7.0)
    for key, text, sentence in (
        ("share", "1.5", "strangers: share is 1.5; expected a number from 0 to 1."),
        ("most", "0", "strangers: most is 0; expected a whole number of at least 1."),
        ("least", "2", "strangers: least is 2; expected a whole number of at least 3."),
        ("free", "nan", "strangers.free=nan: expected a finite number."),
    ):
        with pytest.raises(UserError) as refused:
            make_config(Strangers, {key: text}, {})
        assert str(refused.value) == sentence


def test_a_method_made_in_python_refuses_them_too() -> None:
    for wrong in (StrangersConfig(share=math.nan), StrangersConfig(most=0)):
        with pytest.raises(ValueError, match="; expected a"):
            Strangers(net("BN CNN"), wrong)


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity"])
def test_values_of_figures_are_finite_as_well(text: str) -> None:
    with pytest.raises(UserError, match=rf"^two-moons\.lr={text}: expected a finite number\.$"):
        parse_value("two-moons", "lr", text, float)


def test_a_choice_has_its_type_also_beside_none() -> None:
    for kind in (Literal["a", "b"] | None, Literal["a", "b"]):
        assert parse_value("m", "k", "a", kind) == "a"
        with pytest.raises(UserError, match=r"unknown value of m\.k 'typo'"):
            parse_value("m", "k", "typo", kind)
    assert parse_value("m", "k", "None", Literal["a"] | None) is None
    assert parse_value("m", "k", "2", Literal[1, 2]) == 2


# ---- the command line


@each("dry", [("--dry-run",), ()], ids=["dry", "run"])
@each(
    ("what", "sentence"),
    [
        (("--methods", "tent[lr=nan]"), "tent.lr=nan: expected a finite number."),
        (("--methods", "tent[momentum=2]"), "tent: momentum is 2.0; expected a number from 0 to below 1."),
        (
            ("--methods", "tent", "--set", "tent.lr=0.1,-1"),
            "tent: lr is -1.0; expected a number of at least 0.",
        ),
        (
            ("--methods", "come[statistics=medain]"),
            "unknown value of come.statistics 'medain'; did you mean 'median'? Valid: batch, median.",
        ),
        (("--methods", "memo[views=0]"), "memo: views is 0; expected a whole number of at least 1."),
        (
            ("--methods", "foa[population=1]", "--archs", "cct"),
            "foa: population is 1; expected 0 or a whole number of at least 2.",
        ),
        (("--methods", "tent", "--seeds=-1"), "seed -1 does not exist; seeds are 0 to 2⁶³ − 1."),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_the_command_line_refuses_before_anything_is_written(
    ttabench: Run,
    tmp_path: Path,
    what: tuple[str, ...],
    sentence: str,
    dry: tuple[str, ...],
) -> None:
    out = tmp_path / "results"
    archs = () if "--archs" in what else ("--archs", "resnet18")
    output = ttabench("sweep", *what, *archs, "--corruptions", "fog", "--workers", "0", "--out", out, *dry)
    assert output.code == 2
    assert " ".join(output.err.split()).endswith(sentence)
    assert "Traceback" not in output.err
    assert not out.exists()
