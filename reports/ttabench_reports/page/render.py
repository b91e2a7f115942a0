"""Templates, style and scripts: every value is escaped, and the page may run no script but its own."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ttabench_reports.sheets import words
from ttabench_reports.words import naming


def template(name: str, *, data: Any, **values: Any) -> str:
    """A template of the page or of the leaderboard with these values, and the scripts of both.

    The page's security policy names their hash, so that nothing else runs, whatever the results hold.

    data  embedded as JSON, packed; see :func:`packed`.
    """
    code, style = "\n".join(map(_text, ("tables.js", "details.js"))), "style.css"
    return filled(
        name,
        style,
        data=packed(json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)),
        script=Markup(code),
        policy=f"default-src 'none'; img-src data:; style-src {_hash(_text(style))}; "
        f"script-src {_hash(code)}; base-uri 'none'; form-action 'none'",
        **values,
    )


def filled(name: str, style: str, **values: Any) -> str:
    """A template with these values, and with the style in a file beside it."""
    return _environment().get_template(name).render(style=Markup(_text(style)), **values)


@cache
def _environment() -> Environment:
    packages = [PackageLoader(f"ttabench_reports.{name}") for name in ("page", "leaderboard", "paper")]
    environment = Environment(
        loader=ChoiceLoader(packages), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        "number": words.number, "signed": words.signed, "p": words.p_value, "exact": exact,
        "count": "{:,}".format, "arch": naming.arch, "full": full, "seconds": seconds,
    }  # fmt: skip
    environment.globals |= {"nan": math.nan, "no_number": words.NO_NUMBER}
    return environment


@cache
def _text(name: str) -> str:
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def packed(text: str) -> str:
    """`text` compressed by gzip, in base64: the page's script unpacks it. The same text, the same letters."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def exact(value: float) -> str:
    """A number to four decimals as in the CSV tables, for sorting; "" where there is none."""
    return "" if math.isnan(value) else f"{round(value, 4):.10g}"


def full(value: float) -> str:
    """A p-value for sorting; "" where there is none."""
    return "" if math.isnan(value) else f"{value:.6g}"


def seconds(value: float) -> str:
    """``0.31``, ``12``: three digits at most."""
    return "" if math.isnan(value) else f"{value:.2f}" if value < 10 else f"{value:,.0f}"
