"""Which weights a task uses: published ones, or trained here with a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from ttabench.data.catalog import dataset
from ttabench.errors import UserError, unknown
from ttabench.models.resolve import resolve_model, resolve_trainable
from ttabench.models.trained_model import TrainedModel
from ttabench.models.training.recipes import CROSS_ENTROPY, FAST, NO_MIRROR, PAPER, PORTABLE
from ttabench.paper.experiments import OFFICIAL, Task, trained_here
from ttabench.system.progress import OnProgress, silent

RECIPE = CROSS_ENTROPY
"""As the paper trains its networks: no label smoothing."""


def check_recipe(name: str) -> None:
    """Raises UserError for a recipe that no network has on any dataset; "" is the default."""
    known = (FAST, PAPER, CROSS_ENTROPY)
    if name and name.removesuffix(NO_MIRROR).removesuffix(PORTABLE) not in known:
        raise unknown("recipe", name, [*known, *(f"{each}{PORTABLE}" for each in known)])


@dataclass(frozen=True)
class Weights:
    """The network of a task: one to train (or trained already), or one with weights of its own.

    arch   the name to run it under.
    model  None where nothing is trained.
    note   what is other than asked, for a reader of the tables; or "".
    """

    arch: str
    model: TrainedModel | None
    note: str = ""

    @property
    def checkpoint(self) -> str:
        """The file for a sweep; "" where a sweep finds the weights by itself. The model is trained."""
        model = self.model
        if model is None or resolve_trainable(model.name, model.dataset).plan == model.plan:
            return ""
        return str(model.load().path)


def weights_of(task: Task, recipe: str = "", *, fetch: bool = True, progress: OnProgress = silent) -> Weights:
    """The network of a task.

    recipe  "" = as the paper's; a network or dataset without such a recipe is trained by `fast` then.
    fetch   download published weights; where they cannot be had, the network is trained here, and the note
            says so.

    Raises UserError for unknown names, and for a recipe that was named and that there is not.
    """
    data, arch, note = dataset(task.dataset), task.arch, ""
    if arch.startswith(OFFICIAL):
        model = resolve_model(arch, data)
        if not fetch:
            return Weights(arch, None)
        try:
            model.weights(progress)
            return Weights(arch, None)
        except UserError as problem:
            arch = trained_here(arch)
            note = f"{task.arch} on {data.name} is trained here: its weights cannot be had ({problem})"
    if not resolve_model(arch, data).trainable:
        return Weights(arch, None)
    return trained(arch, task.dataset, recipe, note=note)


def trained(arch: str, name: str, recipe: str = "", epochs: int = 0, note: str = "") -> Weights:
    """A network that is trained here, as :func:`weights_of` has it."""
    data = dataset(name)
    model = resolve_trainable(arch, data, recipe=recipe or RECIPE, epochs=epochs)
    try:
        known = bool(model.plan)  # looks the recipe up
    except UserError:
        if recipe:
            raise
        known = False
    return Weights(arch, model if known else resolve_trainable(arch, data, recipe=FAST, epochs=epochs), note)
