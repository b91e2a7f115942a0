"""``ttabench list``: methods, architectures, datasets, corruptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

if TYPE_CHECKING:
    from ttabench.method import Architecture, Method


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

    archs = _architectures()
    rows = []
    for name, cls in methods().items():
        needs = cls.needs_of(cls.Config())
        wants = [
            "gradients" if needs.gradient else "",
            f"source {needs.source_data}" if needs.source_data else "",
            " or ".join(needs.norm_layers) + " norm" if needs.norm_layers else "",
            *(tag.replace("_", " ") for tag in needs.tags),
        ]
        paper = cls.paper.short if cls.paper else ""
        rows.append(
            (
                name,
                paper,
                cls.mode,
                ", ".join(filter(None, wants)) or "nothing",
                _where(cls, archs),
                cls.scores,
                cls.scores_frozen,
                cls.restores,
            )
        )
    scored = ("scored", "scored offline or on held-out images")
    table(["method", "paper", "native mode", "needs", "n/a or changed on", *scored, "restores"], rows)
    print("note (Gong et al., NeurIPS 2022) is left out: it needs a source trained with its own norm layers.")


def _architectures() -> dict[str, Architecture]:
    """What methods may ask of the general architectures."""
    from ttabench.models.architectures import build as catalog
    from ttabench.models.architectures import names

    size = {"num_classes": 10, "image_size": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return {n: catalog.build(n, dataset="digits-c", **size).architecture() for n in names.ARCHS}  # type: ignore[arg-type]


def _where(cls: type[Method[Any]], archs: Mapping[str, Architecture]) -> str:
    """On which of them a method is n/a or runs with other settings, e.g. ``cct, cvt: no batch norm``."""
    found: dict[str, list[str]] = {}
    for name, arch in archs.items():
        changed = cls.for_architecture(arch)
        config = cls.Config(**changed)
        text = cls.needs_of(config).unmet(arch) or ", ".join(f"{k}={v}" for k, v in changed.items())
        if text:
            found.setdefault(text, []).append(name)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in found.items())


def _archs() -> None:
    from ttabench.cli._table import table
    from ttabench.models.architectures import names
    from ttabench.models.external import official

    members = names.PRESETS["digits-c"], names.PRESETS[32], names.PRESETS[64]
    rows = [(name, what, *(preset.get(name, "") for preset in members)) for name, what in names.ARCHS.items()]
    table(["architecture", "what", "on digits-c", "at 32 px", "at 64 px"], rows)
    print(f"Members by name: {', '.join(names.MEMBERS)}.")
    print(f"Published weights: {', '.join(official.PREFIX + name for name in official.NAMES)}.")
    print("From other packages: robustbench/NAME, timm/NAME, package.module:callable.")


def _datasets() -> None:
    from ttabench.cli._table import table
    from ttabench.data import catalog

    rows = [(e.name, e.state, f"{e.size / 1e6:,.0f} MB" if e.size else "", e.note) for e in catalog.listing()]
    table(["dataset", "state", "on disk", "note"], rows)


def _corruptions() -> None:
    from ttabench.cli._table import table
    from ttabench.corruptions import names

    rows = [(name, "one of the fifteen") for name in names.CORRUPTIONS]
    rows += [(name, "extra: for choosing hyper-parameters") for name in names.EXTRA_CORRUPTIONS]
    table(["corruption", "what"], rows)
