"""What differs in setting between our numbers and the paper's, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from ttabench.errors import counted
from ttabench_reports.cells.frames import USUAL, differences_in
from ttabench_reports.cells.grouped import grouped
from ttabench_reports.cells.method_facts import method_facts
from ttabench_reports.paper import theirs
from ttabench_reports.paper.ours import PROTOCOL, Found, Ours, usual_names
from ttabench_reports.paper.sheets import METHOD, SETTING, of_paper
from ttabench_reports.words import naming

OFFICIAL = "official/"
"""How the names of weights begin that the authors of a network have published."""
Place = tuple[str, str]  # dataset and network, by the names of the paper
Shown = tuple[Place, str, str]  # of it, the name and the hash of the weights in the results
OF_ITS_AUTHORS: tuple[Place, ...] = (("cifar10-c", "cct"), ("cifar100-c", "cct"))
"""The networks that the paper did not train."""
UNSTATED = ("epochs", "lr", "warmup", "regulariser", "confident")
"""Settings of the paper's method that the paper does not state."""


def sentences(ours: Ours, facts: Mapping[str, Any], timed: Ours | None = None) -> list[str]:
    """What differs, of the rows that the tables have looked up in `ours`, and in `timed` for time and memory.

    `facts` are those that ``ttabench paper`` keeps in its folder, and `other_images`: see `write`.
    """
    found = [
        one for dataset in theirs.DATASETS for arch in theirs.ARCHS
        if (one := of_paper(ours, dataset, arch, METHOD)).about
    ]  # fmt: skip
    return [
        *_images(ours, facts),
        *_networks(ours, timed, facts),
        *_method(found),
        *_protocol(ours),
        *_precision(ours.shown(), "Precision"),
        *_precision(timed.shown() if timed else (), "Precision of time and memory"),
        *_rest([*ours.shown(), *(timed.shown() if timed else ())], facts),
    ]


def _images(ours: Ours, facts: Mapping[str, Any]) -> Iterator[str]:
    stands = grouped(
        (here, naming.dataset(published))
        for published in theirs.DATASETS
        if (here := ours.dataset(published)) != published
    )
    for here, names in stands.items():
        why = "It has other images and classes, so its numbers say nothing about the paper's."
        if here not in facts.get("other_images", ()):
            why = "Its corrupted images are not the published files, which may change numbers by some points."
        yield f"Images: {naming.dataset(here)} takes the place of {_listed(names)}. {why}"
    fewer = sorted({int(n) for one in ours.shown() if (n := one.about["n_images"]) < 10_000})
    if fewer:
        counts = ", ".join(f"{n:,}" for n in fewer)
        yield f"Images per corruption: {counts}; the paper has 10,000."


def _networks(ours: Ours, timed: Ours | None, facts: Mapping[str, Any]) -> Iterator[str]:
    """Which networks the rows are of, and where their weights are from, here and in the paper."""
    shown = _shown(ours, timed)
    yield from _stand_ins(ours, shown)
    yield from _weights(ours, shown, facts)
    clean = [words for dataset in theirs.DATASETS if (words := _clean_accuracies(ours, dataset))]
    if clean:
        yield f"Accuracy (%) on clean images: {'; '.join(clean)}."


def _shown(ours: Ours, timed: Ours | None) -> list[Shown]:
    """The networks that the rows are of, each once; those that were timed may be others."""
    found = (
        (place, str(network["arch"]), str(network["checkpoint"]))
        for each in (ours, timed) if each for place in product(theirs.DATASETS, theirs.ARCHS)
        if (network := each.network(*place))
    )  # fmt: skip
    return [*dict.fromkeys(found)]


def _stand_ins(ours: Ours, shown: Sequence[Shown]) -> Iterator[str]:
    """Networks that stand for one of the paper's under another name."""
    for name in dict.fromkeys(name for (_, arch), name, _ in shown if name not in usual_names(arch)):
        places = [place for place, other, _ in shown if other == name]
        yield f"Networks: {naming.arch(name)} takes the place of {_places(ours, places)}."


def _weights(ours: Ours, shown: Sequence[Shown], facts: Mapping[str, Any]) -> Iterator[str]:
    """Where the weights of the shown networks are from, here and in the paper."""
    recipes, notes = facts.get("recipes", {}), facts.get("notes", {})
    published, own, trained = list[Place](), list[Place](), dict[str, list[Place]]()
    for place, name, checkpoint in shown:
        if name.startswith(OFFICIAL):
            published.append(place)
        elif {"/", ":"} & {*name} and checkpoint not in recipes:
            own.append(place)
        else:
            trained.setdefault(recipes.get(checkpoint, ""), []).append(place)
    if published:
        where = _places(ours, published)
        yield f"Networks: {where}: the published weights of its authors, as in the paper on CIFAR."
    if own:
        yield f"Networks: {_places(ours, own)}: weights that others trained, which are not the paper's."
    for recipe, places in trained.items():
        by = f" with the recipe {recipe}" if recipe else ""
        yield f"Networks: {_places(ours, places)}: trained here{by}."
    if trained:
        here = {place for places in trained.values() for place in places}
        other = ", and took CCT on CIFAR from its authors" if {*OF_ITS_AUTHORS} & here else ""
        yield (
            f"Networks: the paper trained its own{other}. Training differs, and with it the features that "
            "are matched."
        )
    said = dict.fromkeys(notes.get(checkpoint, "") for _, _, checkpoint in shown)
    yield from (f"{note.rstrip('.')}." for note in said if note)


def _places(ours: Ours, places: Sequence[Place]) -> str:
    """``ResNet18 and CCT on CIFAR10-C; CCT on CIFAR100-C``."""
    pairs = ((naming.dataset(ours.dataset(dataset)), naming.arch(arch)) for dataset, arch in places)
    named = dict.fromkeys(pairs)
    datasets = grouped((_listed(archs), dataset) for dataset, archs in grouped(named).items())
    return "; ".join(f"{names} on {_listed(where)}" for names, where in datasets.items())


def _listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _clean_accuracies(ours: Ours, dataset: str) -> str:
    """``CIFAR10-C: ResNet18 93.7 (paper: 92.0), CCT 90.2 (paper: 96.2)``; "" where none is measured."""
    known = []
    for arch in theirs.ARCHS:
        source = ours.find(dataset, arch, "source")
        if source.about:
            paper = _clean(dataset, arch)
            beside = f" (paper: {paper})" if paper else ""
            known.append(f"{naming.arch(arch)} {source.clean:.1f}{beside}")
    return f"{naming.dataset(dataset)}: {', '.join(known)}" if known else ""


def _clean(dataset: str, arch: str) -> str:
    """What the paper prints as the clean accuracy of its network."""
    name = f"quantile-{arch}"
    return next(
        (r["clean"] for r in theirs.drops() if (r["approach"], f"{r['clean_dataset']}-c") == (name, dataset)),
        "",
    )


def _method(found: Sequence[Found]) -> Iterator[str]:
    held = [one.about["_settings"] for one in found]
    used = {name: sorted({each[name] for each in held if name in each}, key=str) for name in UNSTATED}
    stated = ", ".join(f"{name} {', '.join(map(str, values))}" for name, values in used.items() if values)
    if found:
        yield f"The paper's method: {SETTING['minibatch']} images per update, as in its tables."
        yield f"The paper's method: what the paper does not state is chosen here: {stated}."
    known = {method_facts(str(one.about.get("about_method", ""))).deviations for one in found}
    yield from (f"{naming.method(METHOD)}: {deviations}." for deviations in sorted(known - {""}))


def _protocol(ours: Ours) -> Iterator[str]:
    """What is not usual in the protocol, by the networks of which there is nothing usual."""
    every = [(place, ours.network(*place)) for place in product(theirs.DATASETS, theirs.ARCHS)]
    unusual = grouped(
        (differences_in(USUAL, {name: network[name] for name in PROTOCOL}), place)
        for place, network in every
        if network
    )
    for words, places in unusual.items():
        if words:
            yield (
                f"Protocol: {_places(ours, places)}: {words}; the paper has images in random order, and each "
                "corruption by itself."
            )


def _precision(shown: Sequence[Found], of: str) -> Iterator[str]:
    """Which networks were measured in another precision than float32."""
    used = {(str(one.about["precision"]), naming.arch(str(one.about["arch"]))) for one in shown}
    for precision in sorted({precision for precision, _ in used} - {"float32"}):
        archs = ", ".join(sorted(arch for each, arch in used if each == precision))
        yield f"{of}: {archs} in {precision}; the paper does not state its own."


def _rest(shown: Sequence[Found], facts: Mapping[str, Any]) -> Iterator[str]:
    seeds = sorted({one.seeds for one in shown})
    if seeds:
        yield f"Seeds: {' or '.join(map(str, seeds))} per cell here; the paper does not state them."
    if stale := frozenset[str]().union(*(one.stale for one in shown)):  # rows of two tables share cells
        yield f"Measured with other code than is installed: {counted(len(stale), 'cell')} of the tables."
    if facts.get("scale", 1) < 1:
        yield f"This is a rehearsal at {facts['scale']:g} of the size: its numbers mean nothing."
