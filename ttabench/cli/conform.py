"""``ttabench conform``: does a method keep the contract?"""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument


def conform(
    methods: Annotated[
        list[str], Argument(metavar="METHOD…", help="all, or names, also with settings: tent\\[norms=all].")
    ],
) -> None:
    """Try methods on tiny nets: reset, causality, batch of one, pickling, precision, memory and more.

    Exit code 1 if a check fails.
    """
    from ttabench.conformance import Check
    from ttabench.conformance import conform as run
    from ttabench.errors import UserError, printable
    from ttabench.method.spelling import parse_method, split_list
    from ttabench.registry import method
    from ttabench.registry import methods as importable

    apart = [name for text in methods for name in split_list(text)]
    if len(apart) > len(methods):
        raise UserError(f"names have spaces between them, not commas: ttabench conform {' '.join(apart)}.")
    checks: list[Check] = []
    for text in list(importable()) if methods == ["all"] else methods:
        name, settings = parse_method(text)
        for check in run(method(name), settings):
            print(printable(f"{text}: {'ok  ' if check.ok else 'FAIL'} {check.name} ({check.detail})"))
            checks.append(check)
    failed = sum(not check.ok for check in checks)
    print(f"{len(checks)} checks, {failed} failed.")
    if failed:
        raise typer.Exit(1)
