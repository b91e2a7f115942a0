"""What is said of a sweep before its cells run."""

from __future__ import annotations

from collections.abc import Iterator

from ttabench.cell import Cell
from ttabench.data.balanced_subset import Drawn, undrawn
from ttabench.data.own.domain_checks import roles_of_domains
from ttabench.data.own.domain_folders import DomainFolders
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.data.published.imagenet_subset import ImageNetSubset
from ttabench.errors import counted, first_of, printable
from ttabench.provenance.staleness import by_importance
from ttabench.registry import method
from ttabench.store import Store
from ttabench.sweep.agenda import Agenda
from ttabench.sweep.classes_left_out import labels_in_order, notes_on_few_classes, notes_on_few_of_each
from ttabench.sweep.few_batches import notes_on_few_batches
from ttabench.sweep.other_inputs import notes_on_other_inputs
from ttabench.sweep.resolve import Sweep
from ttabench.sweep.typical_costs import note_on_costs


def outlook(sweep: Sweep, agenda: Agenda, store: Store) -> Iterator[str]:
    """How many cells there are, what costly methods will cost, and what a reader should know of them."""
    yield counts(agenda)
    if costs := note_on_costs(agenda.todo):
        yield f"Costs: {costs}"
    for note in (*_notes(sweep, agenda), *notes_on_other_inputs(agenda, sweep.models, store)):
        yield f"Note: {note}"


def _notes(sweep: Sweep, agenda: Agenda) -> list[str]:
    """What a reader should know of the cells before they run."""
    datasets = {model.measured.name: model.measured for model in sweep.models}

    def images_of(cell: Cell) -> int:
        dataset = datasets[cell.dataset]
        quickly_counted = isinstance(dataset, OwnDataset | ImageNetSubset | Drawn)
        return cell.protocol.limit or (dataset.shifted_count() if quickly_counted else 0)

    return [
        *notes_on_domains(sweep),
        *notes_on_few_batches(agenda.todo, images_of, lambda name: method(name).needs.gradient),
        *notes_on_few_classes(agenda.todo, lambda name: labels_in_order(datasets[name])),
        *notes_on_few_of_each(
            agenda.todo,
            images_of,
            lambda name: datasets[name].num_classes,
            lambda name: method(name).per_class,
        ),
    ]


def notes_on_domains(sweep: Sweep) -> list[str]:
    """Which folder is the source and which are the test sets, of each dataset of domains."""
    datasets = {model.measured.name: undrawn(model.measured) for model in sweep.models}
    return [printable(roles_of_domains(d)) for d in datasets.values() if isinstance(d, DomainFolders)]


def counts(agenda: Agenda) -> str:
    parts = [f"{counted(agenda.total, 'cell')}: {len(agenda.todo)} to run", f"{len(agenda.done)} done"]
    if agenda.failed:
        parts.append(f"{len(agenda.failed)} failed")
    if agenda.not_applicable:
        rows = {(p.cell.label, p.cell.arch, p.unmet) for p in agenda.not_applicable}
        why = "; ".join(f"{label} on {arch}: {unmet}" for label, arch, unmet in sorted(rows))
        parts.append(f"{len(agenda.not_applicable)} n/a ({why})")
    text = ", ".join(parts) + "."
    for name, changes in sorted(agenda.stale.items()):
        text += f"\nStale, computed again: {name}: {first_of(by_importance(changes), 3)}."
    return text
