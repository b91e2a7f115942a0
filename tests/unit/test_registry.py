"""Methods of other packages: what is odd is left out with a sentence, and stops nobody else."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.cases import each
from tests.unit.conftest import Run
from ttabench import registry
from ttabench.errors import UnusableModel, UserError
from ttabench.method import Method, NoConfig, NonNegative


class Odd(Method[NoConfig]):
    """Sound; each test makes it odd in one way."""

    name = "odd"

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)


class Plain:
    lr = 0.1


@dataclass(frozen=True)
class Required:
    lr: float


@dataclass(frozen=True)
class WithList:
    lrs: list[float] = field(default_factory=lambda: [0.1])


@dataclass(frozen=True)
class Endless:
    lr: float = float("inf")


@dataclass(frozen=True)
class Negative:
    lr: NonNegative = -1.0


class Forgetful(Method[Negative]):
    name = "odd"

    def adapt(self, x: Tensor) -> Tensor:
        return self.predict(x)


class Point:
    """An entry point as importlib.metadata has them, for a class or what an import raises."""

    def __init__(self, name: str, content: Any) -> None:
        self.name, self.content = name, content
        self.module, self.value = f"{name}_package", f"{name}_package:Method"
        self.dist = type("Dist", (), {"name": f"{name}-package", "version": "1"})

    def load(self) -> Any:
        if isinstance(self.content, BaseException):
            raise self.content
        return self.content


def registered(monkeypatch: pytest.MonkeyPatch, **contents: Any) -> None:
    """Methods of other packages beside the built-in ones."""
    real = registry.entry_points
    points = {name: Point(name, content) for name, content in contents.items()}

    def found(group: str) -> dict[str, Any]:
        return real(group) | (points if group == registry.METHODS else {})

    monkeypatch.setattr(registry, "entry_points", found)


@dataclass(frozen=True)
class Exits:
    def __post_init__(self) -> None:
        raise SystemExit(3)


def odd(**attributes: Any) -> type[Odd]:
    return type("Odd", (Odd,), attributes)


FAULTS: dict[str, tuple[Any, str]] = {
    "a text as paper": (odd(paper="Lee, 2013"), "its `paper` is 'Lee, 2013', expected a Paper or None"),
    "no method": (Plain, "expected a subclass of ttabench.method.Method"),
    "no class": (NoConfig(), "it is NoConfig(), expected a subclass of ttabench.method.Method"),
    "another name": (odd(name="tent"), "its `name` is 'tent', expected the registered one"),
    "an import that exits": (SystemExit("needs CUDA"), "cannot be imported (SystemExit: needs CUDA)"),
    "a setting that is a list": (
        odd(Config=WithList),
        "its setting `lrs` is [0.1], expected a text, a finite",
    ),
    "a setting without end": (
        odd(Config=Endless),
        "its setting `lr` is inf, expected a text, a finite number",
    ),
    "a setting without default": (odd(Config=Required), "its setting `lr` has no default, expected one for"),
    "a setting out of range": (
        odd(Config=Negative),
        "its Config() fails (ValueError: lr is -1.0; expected a",
    ),
    "settings that exit": (
        odd(Config=Exits),
        "its Config() fails (RuntimeError: its code calls exit(3)",
    ),
    "a plain class as Config": (odd(Config=Plain), ", expected a frozen dataclass"),
    "a Config that was forgotten": (
        Forgetful,
        "it is a Method[Negative], and its Config is NoConfig; write `Config = Negative` in it",
    ),
    "a number as family": (odd(family=3), "its `family` is 3, expected a text"),
    "a text as batch size": (odd(batch_size="64"), "its `batch_size` is '64', expected a whole number"),
    "a tuple as needs": (odd(needs=("batch",)), "its `needs` is ('batch',), expected a Needs"),
    "no mode": (odd(mode="both"), "its `mode` is 'both', expected online or offline"),
    "a reset of its own": (odd(reset=lambda self: None), "it has a reset() of its own, expected that"),
}


@each(("content", "says"), FAULTS.values(), ids=FAULTS)
def test_an_odd_method_is_one_sentence_and_the_others_can_be_used(
    monkeypatch: pytest.MonkeyPatch, content: Any, says: str
) -> None:
    registered(monkeypatch, odd=content)
    with pytest.raises(UserError) as raised:
        registry.method("odd")
    assert says in (text := str(raised.value))
    assert text.startswith("method 'odd' of package odd-package cannot be ")
    assert text.endswith("; fix or uninstall that package.")
    with pytest.warns(UserWarning, match="skipped: method 'odd'"):
        usable = registry.methods()
    assert set(registry.method_names()) - set(usable) == {"odd"}


def test_a_method_that_imports_datasets_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "odd imports ttabench.data; a method may not read datasets or scores"
    registered(monkeypatch, odd=UnusableModel(reason))
    with pytest.raises(UserError) as raised:
        registry.method("odd")
    assert str(raised.value) == f"method 'odd' of package odd-package is refused: {reason}."


def test_a_sound_method_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, odd=Odd)
    assert registry.method("odd") is Odd


def test_where_no_method_was_imported_torch_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, odd=Plain)
    monkeypatch.delitem(sys.modules, "ttabench.method")
    with pytest.raises(UserError, match="expected a subclass of"):
        registry.method("odd")
    assert "ttabench.method" not in sys.modules


def test_sigterm_during_an_import_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, odd=SystemExit(143))
    with pytest.raises(SystemExit):
        registry.method("odd")


class NeedsMore(Odd):
    name = "silent"

    @classmethod
    def needs_of(cls, config: NoConfig) -> Any:
        raise AttributeError("no setting")


def test_every_listing_goes_on(monkeypatch: pytest.MonkeyPatch, ttabench: Run, tmp_path: Path) -> None:
    registered(monkeypatch, odd=odd(paper="'tent'"), plain=Plain, exits=SystemExit("needs CUDA"))
    listed = ttabench("list", "methods")
    assert (listed.code, "tent" in listed.out) == (0, True)
    doctor = ttabench("doctor")
    assert doctor.code == 1
    methods = re.findall(r"\w+", doctor.out[doctor.out.index("\nmethods ") : doctor.out.index("problem: ")])
    what = ("--methods", "all", "--archs", "resnet18", "--corruptions", "fog", "--out", tmp_path / "results")
    planned = ttabench("sweep", *what, "--dry-run")
    assert planned.code == 0
    assert "tent" in planned.out
    for name in ("odd", "plain", "exits"):
        assert f"skipped: method '{name}' of package {name}-package" in listed.err
        assert f"problem: method '{name}' of package {name}-package" in doctor.out
        assert f"skipped: method '{name}' of package {name}-package" in planned.err
        assert name not in methods
    assert "tent" in methods


def test_a_method_whose_declarations_raise_is_left_out_of_the_listing(
    monkeypatch: pytest.MonkeyPatch, ttabench: Run
) -> None:
    registered(monkeypatch, silent=NeedsMore)
    listed = ttabench("list", "methods")
    says = "method 'silent' cannot be described (AttributeError: no setting); fix or uninstall its package."
    assert (listed.code, "tent" in listed.out) == (0, True)
    assert says in listed.err
    asked = ttabench("list", "methods", "silent")
    assert (asked.code, asked.err) == (2, f"ttabench: {says}\n")
