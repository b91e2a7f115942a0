"""Image classifiers of the transformers package: ``hf/NAME``. Only this module imports the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ttabench.classifier import Classifier
from ttabench.errors import UserError
from ttabench.models.checkpoints import cache
from ttabench.models.checkpoints.cache import Loaded
from ttabench.models.clean_accuracy import NORMALISATIONS, normalisation
from ttabench.models.external import hugging_face_hub, packages
from ttabench.models.external.external_model import ExternalModel
from ttabench.models.external.hugging_face_hub import cached_revision

__all__ = ["PREFIX", "HuggingFaceModel"]

PREFIX = "hf/"

# What an image processor does besides one normalisation, by its attribute.
MORE = {
    "include_top": "normalises twice (include_top)",
    "rescale_offset": "shifts the pixels (rescale_offset)",
}

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]


class HuggingFaceModel(ExternalModel):
    """``hf/NAME``: an image classifier as ``transformers`` loads it, e.g. ``hf/google/vit-base-patch16-224``.

    NAME is a repository of the Hugging Face hub, or a folder with the same files. Only safetensors
    weights are read. The normalisation is `normalize`, or else that of the repository's image processor.
    """

    def build(self) -> Classifier:
        mean, std = self._normalisation()
        return self.wrap(self._untrained(), mean, std)

    def build_pretrained(self) -> Classifier:
        mean, std = self._normalisation()  # first, since the weights may be a long download
        net = self._fetched("AutoModelForImageClassification", use_safetensors=True)
        return self.wrap(Logits(net), mean, std)

    def origin(self) -> dict[str, Any]:
        """With the commit of a repository of the hub."""
        repository = self.name.removeprefix(PREFIX)
        revision = "" if Path(repository).exists() else cached_revision(repository, "config.json")
        return {"origin": f"{self.name} (revision {revision[:12]})" if revision else self.name}

    def recall(self, sha256: str) -> Loaded | None:
        # The cache has the normalisation. The image processor is not asked: it may have been replaced by
        # `normalize`, which the process that recalls does not know.
        described = cache.with_hash(self.dataset.name, self.aliases, sha256)
        return self.as_noted(
            None if described is None else cache.open_described(described, self._unnormalised)
        )

    def _unnormalised(self) -> Classifier:
        return self.wrap(self._untrained())

    def _untrained(self) -> nn.Module:
        config = self._fetched("AutoConfig")
        return Logits(_package(self.name).AutoModelForImageClassification.from_config(config))

    def _normalisation(self) -> Normalisation:
        """Means and standard deviations of pixels in [0, 1].

        Raises UserError if the image processor does anything else, or does not state them.
        """
        processor = self._fetched("AutoImageProcessor")
        if getattr(processor, "do_flip_channel_order", False):
            raise UserError(
                f"{self.name} takes blue before red (do_flip_channel_order of its image processor), but "
                "ttabench gives RGB; build it in a function of your own that flips the channels: "
                "package.module:callable."
            )
        if self.normalize:
            return normalisation(self.normalize)
        if problem := _no_normalisation(processor):
            raise UserError(
                f"the image processor of {self.name} {problem}; expected one mean and standard deviation per "
                f"channel: name a normalisation of the same effect with --normalize: "
                f"{', '.join(NORMALISATIONS)}."
            )
        mean, std = NORMALISATIONS["none"]
        if _normalises(processor):
            mean, std = _per_channel(processor.image_mean), _per_channel(processor.image_std)
        scale = _scale(processor)
        return tuple(value / scale for value in mean), tuple(value / scale for value in std)

    def _fetched(self, kind: str, **options: Any) -> Any:
        """What the class `kind` of transformers makes of the repository."""
        package, name = _package(self.name), self.name.removeprefix(PREFIX)
        try:
            if not Path(name).exists():
                hugging_face_hub.check_reachable(name, "config.json")
            # transformers imports a class, and what it needs, when it is first asked for.
            return getattr(package, kind).from_pretrained(name, trust_remote_code=False, **options)
        except ImportError as problem:
            says = packages.missing_or_broken(problem, "install it")
            raise UserError(f"{self.name} needs a package that is missing or broken {says}.") from None
        except (OSError, ValueError) as problem:
            first = str(problem).partition("\n")[0]
            raise UserError(
                f"{self.name} cannot be loaded ({first}); download the repository by other means and give "
                f"its folder: {PREFIX}FOLDER."
            ) from None


def _no_normalisation(processor: Any) -> str:
    """Why what the image processor does is not one known normalisation; "" if it is."""
    for attribute, does in MORE.items():
        if getattr(processor, attribute, False):
            return does
    stated = (getattr(processor, name, None) for name in ("image_mean", "image_std"))
    return "states no image_mean and image_std" if _normalises(processor) and None in stated else ""


def _normalises(processor: Any) -> bool:
    return bool(getattr(processor, "do_normalize", True))


def _scale(processor: Any) -> float:
    """What pixels in [0, 1] are multiplied by before the normalisation; transformers starts from 0 to 255."""
    if not getattr(processor, "do_rescale", True):
        return 255.0
    factor = getattr(processor, "rescale_factor", None)
    return 1.0 if factor is None else 255.0 * float(factor)


def _per_channel(value: Any) -> tuple[float, ...]:
    """transformers takes one number for all channels, too."""
    return (float(value),) * 3 if isinstance(value, int | float) else tuple(value)


class Logits(nn.Module):
    """Makes a classifier of transformers return its logits instead of an output object."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(pixel_values=x).logits
        return logits


def _package(name: str) -> Any:
    return packages.imported("transformers", name, get="pip install 'ttabench[hf]'")
