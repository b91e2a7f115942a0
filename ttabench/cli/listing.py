"""``ttabench list``: methods, their settings, architectures, datasets, corruptions, protocols."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from typer import Argument

WIDE = 120  # columns of a terminal that has room for one column more


def show(
    what: Annotated[
        str, Argument(metavar="WHAT", help="methods, settings, archs, datasets, corruptions or protocols.")
    ],
    name: Annotated[
        str,
        Argument(
            metavar="METHOD",
            help="methods METHOD describes one, settings METHOD lists its settings; or tent[lr=0.1].",
            show_default=False,
        ),
    ] = "",
) -> None:
    """List methods, settings, architectures, datasets, corruptions or protocols, with what they need."""
    from ttabench.errors import UserError, unknown

    listings = {"archs": _archs, "datasets": _datasets, "corruptions": _corruptions,
                "protocols": _protocols}  # fmt: skip
    of_methods = {"methods": _method, "settings": _settings}
    if what not in (*listings, *of_methods):
        raise unknown("listing", what, (*listings, *of_methods))
    if name and what not in of_methods:
        raise UserError(f"list {what} takes no name; expected: ttabench list {what}.")
    if what == "settings" and not name:
        raise UserError("settings of which method? For example: ttabench list settings tent.")
    if name:
        of_methods[what](name)
    elif what == "methods":
        _methods()
    else:
        listings[what]()


def _methods() -> None:
    from ttabench.cli._facts import methods
    from ttabench.cli._table import screen, table

    columns = {"name": "method", "paper": "paper", "mode": "native mode", "needs": "needs"}
    if wide := screen().width >= WIDE:
        columns["where"] = "n/a or changed on"
    table(list(columns.values()), [[fact[key] for key in columns] for fact in methods()])
    if not wide:
        print(f"A terminal of {WIDE} columns also shows where a method is n/a or changed.")
    print(
        "One method in full, with what is scored and restored: ttabench list methods NAME. "
        "Its settings: ttabench list settings NAME."
    )


def _method(name: str) -> None:
    """Everything about one method, one line each."""
    from ttabench.cli._facts import about, method
    from ttabench.cli._table import pairs

    fact = method(name)
    settings = ", ".join(f"{s['name']}={s['value']}" for s in fact["settings"]) or "none"
    pairs([("method", fact["name"]), ("what", fact["what"]), *about(fact), ("settings", settings)])


def _settings(name: str) -> None:
    """The settings of one method: their defaults, or what ``tent[lr=0.1]`` makes of them."""
    from ttabench.cli._facts import method
    from ttabench.cli._table import table
    from ttabench.registry import entry_points
    from ttabench.sweep.batch_rate import RATE, RATES

    fact = method(name)
    if not fact["settings"]:
        print(f"{name} has no settings.")
        return
    value = "value" if "[" in name else "default"
    keys = ("name", value, "range", "meaning")
    table(
        ["setting", value, "range", "meaning, and where it is from"],
        [[s[k] for k in keys] for s in fact["settings"]],
    )
    if fact["about_settings"]:
        print(fact["about_settings"])
    first, name = fact["settings"][0]["name"], fact["name"].partition("[")[0]  # stack, of quantile+cotta
    if name in entry_points(RATES):
        print(f"{RATE} at another --batch-size: as in official scripts, see --batch-rate of ttabench sweep.")
    print(f"To set one: --methods {name}[{first}=…], or --set {name}.{first}=….")


def _archs() -> None:
    from ttabench.cli._table import say, table
    from ttabench.models.architectures import arch_names
    from ttabench.models.checkpoints.cache import with_package
    from ttabench.models.external import official_checkpoints
    from ttabench.models.external.packages import made_for_another_torch

    members = (
        arch_names.PRESETS["digits-c"],
        arch_names.PRESETS[32],
        arch_names.PRESETS[64],
    )
    rows = [
        (name, what, *(preset.get(name, "") for preset in members)) for name, what in arch_names.ARCHS.items()
    ]
    table(["architecture", "what", "on digits-c", "at 32 px", "at 64 px"], rows)
    for dataset, archs in sorted(with_package().items()):
        say(f"With ttabench, trained on {dataset}: {', '.join(archs)}. A sweep trains the others it needs.")
    say("Also by exact name:")
    for family, members_of in _families(arch_names.MEMBERS).items():
        say(f"  {family}: {', '.join(members_of)}")
    published = (official_checkpoints.PREFIX + name for name in official_checkpoints.NAMES)
    say(f"Published weights: {', '.join(published)}.")
    say(
        "From other packages: timm/NAME, torchvision/NAME[:WEIGHTS], hf/NAME, robustbench/NAME, "
        "efficientnet_lite/lite0, clip/NAME.WEIGHTS."
    )
    if problem := made_for_another_torch():
        say(f"Not usable here: timm/, torchvision/, robustbench/, clip/. {problem}.")
    say("A network of your own: MODULE:CALLABLE, such as mynets:build for build in mynets.py.")


def _families(members: Iterable[str]) -> dict[str, list[str]]:
    """``resnet``, ``cct``, … → the architectures whose names begin so."""
    found: dict[str, list[str]] = {}
    for name in members:
        found.setdefault(re.split(r"_?\d", name, maxsplit=1)[0], []).append(name)
    return found


def _datasets() -> None:
    from ttabench.cli._table import table
    from ttabench.data import catalog

    rows = [(e.name, e.state, f"{e.size / 1e6:,.0f} MB" if e.size else "", e.note) for e in catalog.listing()]
    table(["dataset", "state", "on disk", "note"], rows)


def _protocols() -> None:
    from ttabench.cli._table import table
    from ttabench.sweep.presets import preset_file, presets

    table(["protocol", "what"], list(presets().items()))
    print("To run one: ttabench sweep --protocol NAME; other options replace those of its file.")
    print(f"The files, with sources: {preset_file('ttab').parent}")


def _corruptions() -> None:
    from ttabench.cli._table import table
    from ttabench.corruptions import corruption_names

    rows = [(name, "one of the fifteen") for name in corruption_names.CORRUPTIONS]
    rows += [(name, "extra: for choosing hyper-parameters") for name in corruption_names.EXTRA_CORRUPTIONS]
    rows += [(name, "of cifar10-c-bar, 32 pixels only") for name in corruption_names.BAR_CORRUPTIONS]
    table(["corruption", "what"], rows)
