"""Source classifiers by name. Only this module interprets these names."""

from __future__ import annotations

from pathlib import Path

from ttabench.data.balanced_subset import undrawn
from ttabench.data.dataset import Dataset
from ttabench.data.published.own_head import OwnHead
from ttabench.errors import UnknownName, UserError
from ttabench.models.external import (
    clip,
    efficientnet_lite,
    huggingface,
    official,
    official_checkpoints,
    robustbench,
    timm,
    torchvision,
)
from ttabench.models.external.checkpoint_model import CheckpointModel
from ttabench.models.external.external_model import ExternalModel
from ttabench.models.external.python_path import PythonModel
from ttabench.models.head_rows import HeadRows
from ttabench.models.model import Model
from ttabench.models.trained_model import TrainedModel
from ttabench.models.trained_python import TrainedPython

ORIGINS: dict[str, type[ExternalModel]] = {
    timm.PREFIX: timm.TimmModel,
    torchvision.PREFIX: torchvision.TorchvisionModel,
    huggingface.PREFIX: huggingface.HuggingFaceModel,
    robustbench.PREFIX: robustbench.RobustBenchModel,
    official_checkpoints.PREFIX: official.OfficialModel,
    efficientnet_lite.PREFIX: efficientnet_lite.EfficientNetLiteModel,
    clip.PREFIX: clip.ClipModel,
}


def resolve_model(
    name: str,
    dataset: Dataset,
    *,
    checkpoint: Path | None = None,
    normalize: str = "",
) -> Model:
    """The source classifier with this name, for `dataset`.

    ``resnet18``, ``cct_7_3x1`` …    trained here, see `architectures.arch_names`.
    ``package.module:callable``       built by a function of the user.
    ``timm/NAME``, ``torchvision/NAME[:WEIGHTS]``, ``hf/NAME``, ``robustbench/NAME``, ``official/NAME``,
    ``efficientnet_lite/lite0``, ``clip/NAME.WEIGHTS``   from elsewhere.

    checkpoint   a weights file for that network, instead of training or the published weights.
    normalize    see `clean_accuracy.NORMALISATIONS`; for models that are not trained here.

    The network of a draw of some images is that of the whole dataset. Raises UserError for an unknown name.
    """
    measured, dataset = dataset, undrawn(dataset)
    prefix, slash, _ = name.partition("/")
    kind = ORIGINS.get(f"{prefix}/")
    model: Model
    if slash and kind is not None:
        model = kind(name, dataset, normalize=normalize)
    elif ":" in name:
        model = PythonModel(name, dataset, normalize=normalize)
    elif slash:
        forms = ", ".join(f"{origin}NAME" for origin in ORIGINS)
        raise UserError(
            f"'{name}' is no architecture; models from elsewhere are {forms} or package.module:callable."
        )
    else:
        try:
            model = TrainedModel(name, dataset)
        except UnknownName as problem:
            if not (hint := _python_path(name)):
                raise
            raise UserError(f"{problem} {hint}") from None
    if checkpoint is not None:
        model = CheckpointModel(model, checkpoint, normalize=normalize)
    elif normalize and model.trainable:
        raise UserError(f"{name} is trained here with the dataset's normalisation; leave --normalize out.")
    if isinstance(dataset, OwnHead) and isinstance(model, ExternalModel):
        whole = resolve_model(name, dataset.whole, checkpoint=checkpoint, normalize=normalize)
        assert isinstance(whole, ExternalModel)
        model = HeadRows(whole, model, dataset)
    model.measured = measured
    return model


def _python_path(name: str) -> str:
    """How to name the network in a file that `name` seems to mean: mynets.py, mynets or mynets.Mine; ""."""
    dotted = name.removesuffix(".py")
    module, _, made_by = dotted.rpartition(".")
    makes = "CALLABLE, with the function or class that makes it"
    for path, function in ((dotted, makes), (module, made_by)):
        file = Path(f"{path.replace('.', '/')}.py")
        if file.is_file():
            return f"A network in the file {file} is named {path}:{function}."
    return ""


def resolve_trainable(
    name: str, dataset: Dataset, *, recipe: str = "", epochs: int = 0, seed: int = 0
) -> TrainedModel:
    """The classifier that training `name` on `dataset` makes: an architecture of ours, or a Python path.

    recipe, epochs, seed   see `TrainedModel`.

    Raises UserError for an unknown name, and for models that come with weights.
    """
    of_path = ":" in name and "/" not in name
    model = TrainedPython(name, undrawn(dataset)) if of_path else resolve_model(name, dataset)
    if not isinstance(model, TrainedModel):
        raise UserError(f"{name} comes with weights and is not trained here; sweep takes it as it is.")
    model.recipe, model.epochs, model.seed = recipe, epochs, seed
    return model
