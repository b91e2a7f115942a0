"""A source classifier that ttabench trains."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.data.own.own_dataset_base import OwnDataset
from ttabench.errors import UserError
from ttabench.models.architectures.arch_names import resolve, usual_name
from ttabench.models.architectures.build import build
from ttabench.models.checkpoints import cache
from ttabench.models.checkpoints.cache import Loaded
from ttabench.models.model import Model
from ttabench.models.training.weights_identity import TrainingPlan
from ttabench.system.progress import OnProgress, silent


class TrainedModel(Model):
    """One of our architectures, trained on the dataset by a recipe.

    recipe  its name; "" = the dataset's default.
    epochs  number of epochs; 0 = the recipe's.
    """

    trainable = True
    recipe: str = ""
    epochs: int = 0
    seed: int = 0

    def __init__(self, name: str, dataset: Dataset) -> None:
        self.member = resolve(
            name, dataset=dataset.name, image_size=dataset.image_size, num_classes=dataset.num_classes
        )
        super().__init__(
            usual_name(self.member, dataset=dataset.name, image_size=dataset.image_size), dataset
        )
        self.asked = name
        self.aliases = (self.name, self.asked, self.member.name)

    @cached_property
    def plan(self) -> TrainingPlan:
        """Everything that determines its training. Raises UserError for an unknown recipe."""
        return TrainingPlan.of(
            self.member, self.dataset, recipe=self.recipe, epochs=self.epochs, seed=self.seed,
            build=self.build,
        )  # fmt: skip

    def build(self) -> Classifier:
        return build(
            self.member.name, dataset=self.dataset.name, num_classes=self.dataset.num_classes,
            image_size=self.dataset.image_size, mean=self.dataset.mean, std=self.dataset.std,
        )  # fmt: skip

    def weights(self, progress: OnProgress = silent) -> Path | None:
        described = cache.read(self.plan.path)
        return None if described is None else described.weights

    @property
    def ready(self) -> bool:
        return self.weights() is not None

    def load(self, device: str = "cpu", progress: OnProgress = silent) -> Loaded:
        return cache.open_described(self._described(), self.build)

    def plot_learning_curve(self) -> Path:
        """Write the learning curve as a PNG file beside the weights. UserError if it is not trained."""
        return cache.plot_curve(self._described())

    def _described(self) -> cache.Described:
        if (described := cache.read(self.plan.path)) is None:
            raise UserError(
                f"{self.member.name} has not been trained on {self.dataset.name}; run ttabench train "
                f"--archs {self.member.name} --datasets {self.dataset.name}."
            )
        return described


def note_on_mirrors(models: Iterable[Model]) -> str:
    """A sentence on datasets of the user whose images these trainings mirror; "" if there are none.

    The recipes are those of published photographs. In text or traffic signs, left and right have a meaning.
    """
    own = [m for m in models if isinstance(m, TrainedModel) and isinstance(m.dataset, OwnDataset)]
    mirrored = dict.fromkeys(model.dataset.name for model in own if model.plan.recipe.flip)
    if not mirrored:
        return ""
    return (
        f"Note: images of {', '.join(mirrored)} are mirrored left to right at random in training. Where this "
        "changes what an image shows, as with text or traffic signs, use ttabench train --no-mirror."
    )
