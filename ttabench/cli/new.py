"""``ttabench new``: the package of a method of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option


def new(
    name: Annotated[str, Argument(metavar="METHOD", help="The name of the method, as tables show it.")],
    out: Annotated[Path, Option(metavar="DIR", help="The folder in which METHOD is made.")] = Path("."),
) -> None:
    """Write a package with a method that works: the class, a test and the entry point.

    Install it, and the method is found by its name; then make it yours.
    """
    import shlex

    from ttabench.cli._new import write_package
    from ttabench.errors import printable

    folder = write_package(name, out)
    print(printable(f"{folder / name / 'method.py'} is the method. What to do next:"))
    print(printable(f"  pip install -e {shlex.quote(str(folder))}"))
    print(f"  ttabench conform {name}")
    print(f"  ttabench sweep --methods {name},tent --archs resnet18 --corruptions fog")
