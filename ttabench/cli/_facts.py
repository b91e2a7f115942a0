"""What the listings show of methods, architectures and figures: plain data. Methods import torch."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ttabench import registry
from ttabench.cli._setting_facts import settings_of
from ttabench.errors import UserError, counted, exit_is_an_error
from ttabench.method.spelling import parse_method

if TYPE_CHECKING:
    from ttabench.method import Architecture, Method, Needs

Fact = dict[str, Any]
Tried = tuple[list[Any], list[str]]  # what could be described, and why the rest could not
Used = Sequence[tuple[str, Mapping[str, Any]]]  # names, with settings


def methods() -> list[Fact]:
    """Every method that can be used; a warning names the others."""
    return _listed(_all_methods())


def figures() -> list[Fact]:
    """Every figure that can be used; a warning names the others."""
    return _listed(_tried("figure", [(name, {}) for name in registry.figure_names()], _figure))


def tried_methods() -> tuple[list[str], list[str]]:
    """The names of the methods that can be used, and why the others cannot, one sentence each."""
    listed, broken = _all_methods()
    return [fact["name"] for fact in listed], broken


def method(text: str) -> Fact:
    """One method, ``come`` or with settings, ``come[host=eata]``.

    Raises UserError where there is no such method or setting, or the method cannot be used.
    """
    listed, broken = _tried("method", [parse_method(text)], _with_settings)
    if broken:
        raise UserError(broken[0])
    fact: Fact = listed[0]
    return fact


def about(fact: Fact) -> list[tuple[str, str]]:
    """What a method is, as lines of a heading and a text; without its settings. One line per paper."""
    images = counted(fact["batch_size"], "image")
    if fact["online_batch_size"]:
        images += f", {fact['online_batch_size']} in the online mode"
    if fact["imagenet_batch_size"]:
        images += f", {fact['imagenet_batch_size']} with a thousand classes and more"
    return [
        ("paper", "\n".join(fact["papers"]) or "none"),
        ("read it at", fact["url"]),
        ("family", fact["family"]),
        ("native mode", fact["mode"]),
        ("batch", images),
        ("needs", fact["needs"]),
        ("source data", fact["source_data"]),
        ("n/a or changed on", fact["where"] or "nothing"),
        ("scored", fact["scores"]),
        ("scored offline", fact["scores_frozen"]),
        ("restores", fact["restores"]),
        *([("estimated for each class", fact["per_class"])] if fact["per_class"] else []),
        ("deviations", fact["deviations"]),
    ]


def papers(named: Used, stored: Used = ()) -> list[tuple[str, list[str]]]:
    """For each method and its settings: its name and BibTeX entries.

    named   with settings as text. Raises UserError.
    stored  with the settings of results; those that a method no longer has are left out where they are not
            text. A method that cannot be used gives a warning.
    """
    entries = [(name, _papers(name, settings)) for name, settings in named]
    tried = _tried("method", stored, lambda name, settings: (name, _papers(name, settings)))
    return [*entries, *_listed(tried)]


def _papers(name: str, settings: Mapping[str, Any]) -> list[str]:
    from ttabench.method.settings import make_config

    cls = registry.method(name)
    if all(isinstance(value, str) for value in settings.values()):
        config = make_config(cls, settings, {})
    else:
        known = {field.name for field in fields(cls.Config)}  # an older version may have had others
        config = cls.Config(**{key: value for key, value in settings.items() if key in known})
    return [paper.bibtex() for paper in cls.papers_of(config)]


def _listed(tried: Tried) -> list[Any]:
    listed, broken = tried
    for text in broken:
        warnings.warn(f"skipped: {text}", stacklevel=3)
    return listed


def _tried(kind: str, used: Used, make: Callable[[str, Mapping[str, Any]], Any]) -> Tried:
    """What is made of plugins, and why the others are left out."""
    listed, broken = [], []
    for name, settings in used:
        try:
            with exit_is_an_error():
                listed.append(make(name, settings))
        except UserError as problem:
            broken.append(str(problem))
        except Exception as problem:  # of the plugin's code
            what = f"{kind} '{name}' cannot be described ({type(problem).__name__}: {problem})"
            broken.append(f"{what}; fix or uninstall its package.")
    return listed, broken


# ---- methods


def _all_methods() -> Tried:
    archs = _architectures()
    names: Used = [(name, {}) for name in registry.method_names()]
    return _tried("method", names, lambda name, given: _method(registry.method(name), archs, given))


def _with_settings(name: str, texts: Mapping[str, str]) -> Fact:
    from ttabench.method.settings import label, parse_values

    cls = registry.method(name)
    given = parse_values(cls, texts)
    fact = _method(cls, _architectures(), given)
    return {**fact, "name": label(name, cls.Config(**given), cls.Config())}


def _method(cls: type[Method[Any]], archs: Mapping[str, Architecture], given: Mapping[str, Any]) -> Fact:
    """What the listings show of a method with the settings `given`."""
    from ttabench.method.facts_for_reports import settings_from
    from ttabench.method.settings import configured

    config = configured(cls, given, {})
    needs = cls.needs_of(config)
    wants = [
        "gradients" if needs.gradient else "",
        f"source {needs.source_data}" if needs.source_data else "",
        " or ".join(needs.norm_layers) + " norm" if needs.norm_layers else "",
        *(tag.replace("_", " ") for tag in needs.tags),
    ]
    about = inspect.getdoc(inspect.getmodule(cls)) or inspect.getdoc(cls) or ""
    return {
        "name": cls.name,
        "what": about.partition("\n")[0],
        "papers": [f"{paper.short}: {paper.title}" for paper in cls.papers_of(config)],
        "paper": cls.paper.short if cls.paper else "",
        "url": cls.paper.url if cls.paper else "",
        "mode": cls.mode,
        "batch_size": cls.batch_size,
        "imagenet_batch_size": cls.imagenet_batch_size,
        "online_batch_size": cls.online_batch_size,
        "family": cls.family,
        "needs": ", ".join(filter(None, wants)) or "nothing",
        "source_data": _source_data(needs),
        "where": _where(cls, archs, given),
        "scores": cls.scores,
        "scores_frozen": cls.scores_frozen,
        "restores": cls.restores,
        "per_class": cls.per_class,
        "deviations": cls.deviations,
        "about_settings": settings_from(cls.Config),
        "settings": settings_of(config),
    }


def _source_data(needs: Needs) -> str:
    """``statistics: entropies of predictions``; ``nothing``"""
    from ttabench.measure.declared_source import STATISTICS

    statistics = [STATISTICS.get(name, name) for name in needs.source_statistics]
    if needs.source_data == "statistics" and statistics:
        return f"statistics: {'; '.join(statistics)}"
    return "; ".join([needs.source_data or "nothing", *statistics])


def _architectures() -> dict[str, Architecture]:
    """The facts about the general architectures that methods may require."""
    from ttabench.models.architectures import arch_names
    from ttabench.models.architectures import build as catalog

    size = {"num_classes": 10, "image_size": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return {n: catalog.build(n, dataset="digits-c", **size).architecture() for n in arch_names.ARCHS}  # type: ignore[arg-type]


def _where(cls: type[Method[Any]], archs: Mapping[str, Architecture], given: Mapping[str, Any]) -> str:
    """On which of them a method is n/a or runs with other settings, e.g. ``cct, cvt: no batch norm``."""
    archs_of: dict[str, list[str]] = {}
    for name, arch in archs.items():
        changed = {key: value for key, value in cls.for_architecture(arch).items() if key not in given}
        config = cls.Config(**{**changed, **given})
        text = cls.needs_of(config).unmet(arch) or ", ".join(f"{k}={v}" for k, v in changed.items())
        if text:
            archs_of.setdefault(text, []).append(name)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in archs_of.items())


# ---- figures


def _figure(name: str, _settings: Mapping[str, Any]) -> Fact:
    from ttabench.cli._bench import BENCH
    from ttabench.figure import options, takes_bench

    make = registry.figure(name)
    of_network = [" ".join(f"--{flag}" for flag in BENCH), "--set METHOD.SETTING=VALUE"]
    flags = of_network if takes_bench(make) else []
    settings = [f"--set {key}={value}" for key, value in options(make).items()]
    shows = (make.__doc__ or "").partition("\n")[0]
    return {"name": name, "shows": shows, "options": [*flags, *settings]}
