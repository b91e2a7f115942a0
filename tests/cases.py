"""Many quick cases of one property, in one test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | tuple[str, ...], values: Iterable[Any], ids: Any = None) -> Callable[[Test], Test]:
    """Like ``pytest.mark.parametrize``, in one test: all cases run, and a failure names its case.

    Each case has its own ``tmp_path``, and what it patches is undone after it. Other fixtures are shared.
    Two of these decorators run the product. `ids` as in pytest: a text per case, or a function of a value.
    """
    keys = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)
    several = not isinstance(names, str) or "," in names
    titles = list(ids) if isinstance(ids, Iterable) else []
    cases: list[tuple[str, dict[str, Any]]] = []
    for number, value in enumerate(values):
        marked = hasattr(value, "marks")  # pytest.param
        given = value.values if marked else tuple(value) if several else (value,)
        shown = ids if callable(ids) else _shown
        title = (marked and value.id) or (titles or {number: ", ".join(map(str, map(shown, given)))})[number]
        cases.append((str(title), dict(zip(keys, given, strict=True))))
    if not cases:
        raise ValueError(f"no case of {names}: such a test would check nothing")

    def fold(test: Test) -> Test:
        inner, others = getattr(test, "folded", (test, ()))
        asked = inspect.signature(test).parameters
        folded = (cases, *others)

        @wraps(test)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for number, chosen in enumerate(product(*folded)):
                case = {key: value for _, given in chosen for key, value in given.items()}
                title = " · ".join([str(number), *(title for title, _ in chosen)])
                with subtests.test(title), pytest.MonkeyPatch.context() as patch:
                    inner(**_own(fixtures, number, patch), **case)

        run.folded = inner, folded  # type: ignore[attr-defined]
        kept = [parameter for name, parameter in asked.items() if name not in (*keys, "subtests")]
        kept.append(inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return run

    return fold


def _shown(value: Any) -> str:
    """A value in the title of its case, in valid UTF-8; the traceback of a failure shows it whole."""
    if value is None or isinstance(value, str | int | float):
        return str(value)[:80].encode(errors="backslashreplace").decode()
    return str(getattr(value, "__name__", type(value).__name__))


def _own(fixtures: dict[str, Any], number: int, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The fixtures of one case."""
    own = dict(fixtures)
    if "monkeypatch" in own:
        own["monkeypatch"] = patch
    if "tmp_path" in own:
        folder: Path = own["tmp_path"] / f"case{number}"
        folder.mkdir()
        own["tmp_path"] = folder
    return own
