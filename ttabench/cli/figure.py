"""``ttabench figure``: the figures of a paper, computed and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from ttabench.cli._bench import BENCH
from ttabench.cli._given import is_given
from ttabench.errors import printable
from ttabench.sweep.option_table import OPTIONS


def figure(
    context: typer.Context,
    name: Annotated[str, Argument(metavar="NAME", help="See --list.", show_default=False)] = "",
    out: Annotated[Path, Option(metavar="DIR", help="The folder to write to.")] = Path("figures"),
    arch: Annotated[
        str, Option(metavar="NAME", help="The classifier. It is trained if it has no weights.")
    ] = BENCH["arch"],
    dataset: Annotated[str, Option(metavar="NAME", help="The dataset of the classifier.")] = BENCH["dataset"],
    corruption: Annotated[
        str,
        Option(
            metavar="NAME",
            help="The corruption of the images.",
            show_default="gaussian_noise; fog on digits-c",
        ),
    ] = BENCH["corruption"],
    checkpoint: Annotated[str, Option(metavar="FILE", help=OPTIONS["checkpoint"].help)] = BENCH["checkpoint"],
    normalize: Annotated[str, Option(metavar="NAME", help=OPTIONS["normalize"].help)] = BENCH["normalize"],
    device: Annotated[str, Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1 …")] = BENCH["device"],
    seed: Annotated[int, Option(metavar="NUMBER", help="The seed of all random numbers.", min=0)] = BENCH[
        "seed"
    ],
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="OPTION=VALUE", help="An option of the figure, see --list. Repeatable."),
    ] = None,
    list_: Annotated[
        bool, Option("--list", help="List the figures and their options, or those of NAME.")
    ] = False,
) -> None:
    """Draw a figure as NAME.png and NAME.pdf. The same command writes the same files.

    --arch, --dataset, --corruption, --checkpoint, --normalize and --device are for figures that show a
    classifier.
    """
    if list_:
        from ttabench.cli._facts import figures
        from ttabench.cli._table import table
        from ttabench.errors import unknown

        listed = figures()
        if name and name not in (names := [f["name"] for f in listed]):
            raise unknown("figure", name, names)
        rows = [(f["name"], f["shows"], "\n".join(f["options"])) for f in listed if name in ("", f["name"])]
        table(["figure", "what it shows", "options"], rows)
        return
    from ttabench.cli import _figure

    flags = {"arch": arch, "dataset": dataset, "corruption": corruption, "seed": seed}
    flags |= {"checkpoint": checkpoint, "normalize": normalize, "device": device}
    given = {flag: value for flag, value in flags.items() if is_given(context, flag)}
    for path in _figure.make(name, out, given, {**BENCH, **flags}, set_ or []):
        print(printable(str(path)))
