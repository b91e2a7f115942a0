"""Image classifiers of the transformers package: ``hf/NAME``. Only this module imports the package."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.models.external import hugging_face_hub
from ttabench.models.external.external_model import ExternalModel

__all__ = ["PREFIX", "HuggingFaceModel"]

PREFIX = "hf/"


class HuggingFaceModel(ExternalModel):
    """``hf/NAME``: an image classifier as ``transformers`` loads it, e.g. ``hf/google/vit-base-patch16-224``.

    NAME is a repository of the Hugging Face hub, or a folder with the same files. Only safetensors
    weights are read. The normalisation is that of the repository's image processor.
    """

    def build(self) -> Classifier:
        package = _package(self.name)
        config = self._fetched(package.AutoConfig.from_pretrained)
        return self._wrapped(package.AutoModelForImageClassification.from_config(config))

    def build_pretrained(self) -> Classifier:
        auto = _package(self.name).AutoModelForImageClassification
        return self._wrapped(self._fetched(auto.from_pretrained, use_safetensors=True))

    def _wrapped(self, net: nn.Module) -> Classifier:
        processor = self._fetched(_package(self.name).AutoImageProcessor.from_pretrained)
        return self.wrap(Logits(net), tuple(processor.image_mean), tuple(processor.image_std))

    def _fetched(self, fetch: Any, **options: Any) -> Any:
        name = self.name.removeprefix(PREFIX)
        try:
            if not Path(name).exists():
                hugging_face_hub.check_reachable(name, "config.json")
            return fetch(name, trust_remote_code=False, **options)
        except (OSError, ValueError) as problem:
            first = str(problem).partition("\n")[0]
            raise UserError(
                f"{self.name} cannot be loaded ({first}); download the repository by other means and give "
                f"its folder: {PREFIX}FOLDER."
            ) from None


class Logits(nn.Module):
    """Makes a classifier of transformers return its logits instead of an output object."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(pixel_values=x).logits
        return logits


def _package(name: str) -> ModuleType:
    try:
        import transformers
    except ImportError:
        raise UserError(f"{name} needs transformers: pip install 'ttabench[hf]'.") from None
    return transformers  # type: ignore[no-any-return]
