"""Networks of torchvision: ``torchvision/NAME[:WEIGHTS]``. Only this module imports the package."""

from __future__ import annotations

from typing import Any

from torch import nn

from ttabench.classifier import Classifier
from ttabench.errors import UserError, unknown
from ttabench.models.external import packages
from ttabench.models.external.external_model import ExternalModel

__all__ = ["PREFIX", "TorchvisionModel"]

PREFIX = "torchvision/"

# For these networks, torchvision's builders choose other options with pretrained weights than without. A
# network that is made again gets those of the pretrained one.
AS_PRETRAINED: dict[str, dict[str, bool]] = {
    "googlenet": {"transform_input": True, "init_weights": False, "aux_logits": False},
    "inception_v3": {"transform_input": True, "init_weights": False},
}


class TorchvisionModel(ExternalModel):
    """``torchvision/NAME[:WEIGHTS]``: an image classifier of torchvision, e.g. ``torchvision/resnet50``.

    WEIGHTS is a name of torchvision's weights for the network, such as ``IMAGENET1K_V2``; the default is
    torchvision's. The normalisation is that of the weights' own transforms.
    """

    def build(self) -> Classifier:
        name, weights = self._parts()
        options = AS_PRETRAINED.get(name, {})
        net = self._models().get_model(name, num_classes=self.dataset.num_classes, **options)
        return self._wrapped(net, weights)

    def build_pretrained(self) -> Classifier:
        name, weights = self._parts()
        try:
            net = self._models().get_model(name, weights=weights)
        except (OSError, RuntimeError) as problem:
            first = str(problem).splitlines()[0]
            raise UserError(
                f"the weights {weights.url} of {self.name} cannot be loaded ({first}); download them by "
                f"other means and use --archs {PREFIX}{name} --checkpoint FILE."
            ) from None
        return self._wrapped(net, weights)

    def origin(self) -> dict[str, Any]:
        """torchvision's name of the weights, and of their file."""
        _, weights = self._parts()
        return {"origin": f"{self.name} ({weights.name}, {weights.url.rpartition('/')[2]})"}

    def _wrapped(self, net: nn.Module, weights: Any) -> Classifier:
        transforms = weights.transforms()
        return self.wrap(net, tuple(transforms.mean), tuple(transforms.std))

    def _parts(self) -> tuple[str, Any]:
        """torchvision's name of the network, and its weights."""
        models = self._models()
        name, _, wanted = self.name.removeprefix(PREFIX).partition(":")
        classifiers = models.list_models(module=models)
        if name not in classifiers:
            raise unknown("torchvision model", name, classifiers, "torchvision.models.list_models()")
        entries = models.get_model_weights(name)
        if not wanted:
            return name, entries.DEFAULT
        if wanted not in entries.__members__:
            raise unknown(f"weights of {PREFIX}{name}", wanted, entries.__members__)
        return name, entries[wanted]

    def _models(self) -> Any:
        return packages.imported("torchvision", self.name).models
