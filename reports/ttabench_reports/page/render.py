"""Templates, style and scripts: every value is escaped, and the page may run no script but its own."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ttabench_reports.sheets import words
from ttabench_reports.words import naming


def template(name: str, *, data: Any, scripts: Sequence[str], **values: Any) -> str:
    """A template of the page or of the leaderboard with these values.

    data     embedded as JSON, packed; see :func:`packed`.
    scripts  files beside the template; the page's security policy names their hashes, so that nothing
             else runs, whatever the results hold.
    """
    environment = _environment()
    code = "\n".join(_text(script) for script in scripts)
    style = _text("style.css")
    return environment.get_template(name).render(
        data=packed(json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)),
        script=Markup(code),
        style=Markup(style),
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(code)}; "
        "base-uri 'none'; form-action 'none'",
        **values,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(f"ttabench_reports.{name}") for name in ("page", "leaderboard")]),
        autoescape=True, undefined=StrictUndefined,
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
    source, _, _ = PackageLoader("ttabench_reports.page").get_source(Environment(autoescape=True), name)
    return source


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
