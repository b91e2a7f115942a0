"""Settings have the types that they are declared with, whoever gives them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from tests.cases import each
from ttabench.cell import canonical
from ttabench.method import Count, Method, NonNegative, Range
from ttabench.method.settings import label, make_config
from ttabench.method.spelling import parse_method


@dataclass(frozen=True, kw_only=True)
class Config:
    lr: NonNegative = 1
    weight: Annotated[float, Range(above=0)] | None = 2
    steps: Count = 3
    kind: Literal[1, 2] = 1
    on: bool = True
    either: int | float = 4
    rest: float | None = None


class Odd(Method[Config]):
    name = "odd"
    Config = Config

    @classmethod
    def for_dataset(cls, dataset: str, num_classes: int) -> dict[str, Any]:
        return {"rest": 5}


def test_a_whole_number_in_place_of_a_float_is_no_other_identity() -> None:
    plain = make_config(Odd, {}, Odd.for_dataset("", 2))
    spelled = {"lr": "1", "weight": "2.0", "steps": "3", "kind": "1", "on": "true", "rest": "5"}
    same = make_config(Odd, spelled, {})
    assert canonical(asdict(plain)) == canonical(asdict(same))
    assert asdict(plain) == {
        "lr": 1.0, "weight": 2.0, "steps": 3, "kind": 1, "on": True, "either": 4, "rest": 5.0
    }  # fmt: skip
    assert [type(value) for value in asdict(plain).values()] == [float, float, int, int, bool, int, float]
    assert label("odd", same, plain) == "odd"
    assert make_config(Odd, {}, {}).rest is None


@each("rate", [0.5, 1e-3, 1e-05, 0.000316228, 10**-3.5, 1.0000001, 1234567.0, 1e6, 1 / 3])
def test_a_label_gives_the_settings_that_it_names(rate: float) -> None:
    config = make_config(Odd, {"lr": repr(rate), "on": "false"}, {"rest": None})
    named = label("odd", config, Odd.Config(rest=5.0))
    assert make_config(Odd, parse_method(named)[1], {"rest": 5}) == config, named
