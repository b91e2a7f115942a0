"""``ttabench list``: methods, architectures, datasets, corruptions."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument


def register(app: typer.Typer) -> None:
    app.command("list")(show)


def show(what: Annotated[str, Argument(help="methods, archs, datasets or corruptions")]) -> None:
    """What there is, what it needs, and where it comes from."""
    from ttabench.errors import unknown

    listings = {"methods": _methods, "archs": _archs, "datasets": _datasets, "corruptions": _corruptions}
    if what not in listings:
        raise unknown("listing", what, listings)
    listings[what]()


def _methods() -> None:
    from ttabench.cli._table import table
    from ttabench.registry import methods

    rows = []
    for name, cls in methods().items():
        needs = cls.needs_of(cls.Config())
        wants = [
            "gradients" if needs.gradient else "",
            f"source {needs.source_data}" if needs.source_data else "",
            " or ".join(needs.norm_layers) + " norm" if needs.norm_layers else "",
            *(tag.replace("_", " ") for tag in needs.tags),
        ]
        absent = " or ".join(needs.norm_layers) + " norm" if needs.norm_layers else ""
        rows.append(
            (
                name,
                cls.paper.short if cls.paper else "",
                cls.mode,
                ", ".join(filter(None, wants)) or "nothing",
                f"models without {absent}" if absent else "",
                cls.scores,
            )
        )
    table(["method", "paper", "native mode", "needs", "n/a on", "scored"], rows)


def _archs() -> None:
    from ttabench.cli._table import table
    from ttabench.models import names

    members = names.PRESETS["digits-c"], names.PRESETS[32], names.PRESETS[64]
    rows = [(name, what, *(preset.get(name, "") for preset in members)) for name, what in names.ARCHS.items()]
    table(["architecture", "what", "on digits-c", "at 32 px", "at 64 px"], rows)
    print(f"Members by name: {', '.join(names.MEMBERS)}.")


def _datasets() -> None:
    from ttabench.cli._table import table
    from ttabench.data import catalog

    rows = [(e.name, e.state, f"{e.size / 1e6:,.0f} MB" if e.size else "", e.note) for e in catalog.listing()]
    table(["dataset", "state", "on disk", "note"], rows)


def _corruptions() -> None:
    from ttabench.cli._table import table
    from ttabench.data.corruptions import names

    rows = [(name, "one of the fifteen") for name in names.CORRUPTIONS]
    rows += [(name, "extra: for choosing hyper-parameters") for name in names.EXTRA_CORRUPTIONS]
    table(["corruption", "what"], rows)
