"""The training plan of a source classifier: all that determines its weights. Imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ttabench.cell import canonical
from ttabench.data.dataset import Dataset, Labelled
from ttabench.errors import UserError
from ttabench.models.architectures.arch_names import Member
from ttabench.models.checkpoints.cache import file_name, folder
from ttabench.models.training.recipes import Recipe, fitted, recipe_for

if TYPE_CHECKING:
    from ttabench.classifier import Classifier

TRAINING_VERSION = 1  # increase it when a change of the code changes the weights of a recipe


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Everything that determines the weights of a source classifier, except the machine.

    data   hash of the training images, see :func:`data_hash`.
    build  makes the classifier with fresh weights, from torch's global generator.
    """

    member: Member
    recipe: Recipe
    dataset: str
    data: str
    num_classes: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seed: int
    build: Callable[[], Classifier] = field(repr=False, compare=False)

    @classmethod
    def of(
        cls, member: Member, dataset: Dataset, *, build: Callable[[], Classifier], recipe: str = "",
        epochs: int = 0, seed: int = 0,
    ) -> TrainingPlan:  # fmt: skip
        """What training `member` on `dataset` means; epochs of 0 are the recipe's, fitted to the data.

        Raises UserError on an unknown recipe, and on epochs or seeds below 0.
        """
        chosen = recipe_for(member, dataset.name, recipe)
        for what, number in (("epochs", epochs), ("seed", seed)):
            if not 0 <= number < 2**63:
                raise UserError(f"{what} is {number}; expected a whole number from 0 to 2⁶³ − 1.")
        train = dataset.train()
        chosen = fitted(chosen, len(train))
        if epochs:
            chosen = replace(chosen, epochs=epochs, least_steps=0)
        return cls(
            member=member, recipe=chosen, dataset=dataset.name, data=data_hash(train), build=build,
            num_classes=dataset.num_classes, image_size=dataset.image_size,
            mean=tuple(dataset.mean), std=tuple(dataset.std), seed=seed,
        )  # fmt: skip

    @cached_property
    def digest(self) -> str:
        named = {each.name: getattr(self, each.name) for each in fields(self) if each.compare}
        named |= {"member": asdict(self.member), "recipe": self.recipe.identity()}
        identity = {**named, "version": TRAINING_VERSION}
        return hashlib.sha256(canonical(identity).encode()).hexdigest()

    @property
    def path(self) -> Path:
        """The JSON file that describes the checkpoint, there or not."""
        name = file_name(self.member.name)
        return folder(self.dataset) / f"{name}-{self.recipe.name}-{self.digest[:12]}.json"


def data_hash(train: Labelled) -> str:
    """SHA-256 of the number of images, all labels and up to 1,000 evenly spaced images.

    This detects another split, order or image size, and is fast on a memory-mapped file.
    """
    digest = hashlib.sha256(str(train.images.shape).encode())
    digest.update(train.labels.astype("<i8").tobytes())
    digest.update(train.images[:: max(1, len(train) // 1000)].tobytes())
    return digest.hexdigest()
