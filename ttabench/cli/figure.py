"""``ttabench figure``: the figures of a paper, computed and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def register(app: typer.Typer) -> None:
    app.command()(figure)


def figure(
    name: Annotated[str, Argument(metavar="NAME", help="See --list.")] = "",
    to: Annotated[Path, Option(help="The folder to write to.")] = Path("figures"),
    arch: Annotated[str | None, Option(help="The classifier, trained if need be. [resnet18]")] = None,
    dataset: Annotated[str | None, Option(help="What it classifies. [digits-c]")] = None,
    corruption: Annotated[
        str | None, Option(help="What is corrected. [gaussian_noise; fog on digits-c]")
    ] = None,
    device: Annotated[str | None, Option(help="auto, cpu, cuda … [auto]")] = None,
    seed: Annotated[int | None, Option(help="Of whatever is random. [0]", min=0)] = None,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="OPTION=VALUE", help="See --list. Repeatable.")
    ] = None,
    list_: Annotated[bool, Option("--list", help="The figures there are, and their options.")] = False,
) -> None:
    """Compute a figure and write NAME.png and NAME.pdf, the same bytes each time.

    --arch, --dataset, --corruption and --device are for figures that show a classifier.
    """
    from ttabench.cli import _figure

    if list_:
        _figure.show_list()
        return
    flags = {"arch": arch, "dataset": dataset, "corruption": corruption, "device": device, "seed": seed}
    given = {flag: value for flag, value in flags.items() if value is not None}
    for path in _figure.make(name, to, given, set_ or []):
        print(path)
