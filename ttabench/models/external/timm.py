"""Networks of timm: ``timm/NAME``. The only door to the package."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError, unknown
from ttabench.models.external import hugging_face_hub, packages
from ttabench.models.external.external_model import ExternalModel
from ttabench.models.external.hugging_face_hub import cached_revision

__all__ = ["PREFIX", "TimmModel", "network"]

PREFIX = "timm/"
FILE = "model.safetensors"  # of a repository on the Hugging Face hub
OLDER_FILE = "pytorch_model.bin"


class TimmModel(ExternalModel):
    """``timm/NAME``: ``timm.create_model``, with timm's normalisation for it and the weights timm keeps."""

    facts: Mapping[str, Any] = MappingProxyType({})
    """What timm says of the weights that it keeps, once they are loaded."""

    def build(self) -> Classifier:
        net, mean, std = network(self.name, self.dataset, pretrained=False)
        return self.wrap(net, mean, std)

    def build_pretrained(self) -> Classifier:
        net, mean, std = network(self.name, self.dataset, pretrained=True)
        self.facts = dict(net.pretrained_cfg)  # type: ignore[arg-type]
        return self.wrap(net, mean, std)

    def origin(self) -> dict[str, Any]:
        """The repository with timm's tag, and its commit, of weights from the hub; else their address."""
        repository = str(self.facts.get("hf_hub_id") or "")
        where = repository or _address(self.facts)
        if repository and (revision := cached_revision(repository, _hub_file(self.facts), OLDER_FILE)):
            where += f", revision {revision[:12]}"
        return {"origin": f"{self.name} ({where})" if where else self.name}

    def prepared_otherwise(self) -> str:
        """A sentence if timm prepares images for its weights in another way than they are here, else ""."""
        size, mode = (self.facts.get("input_size") or (0,))[-1], self.facts.get("crop_mode") or "center"
        if size and size != self.dataset.image_size:
            return (
                f"its weights are for images of {size} pixels, and those of {self.dataset.name} have "
                f"{self.dataset.image_size}: the accuracy is not that of timm."
            )
        if mode != "center":
            return f"timm prepares images for it by crop_mode {mode}, and not by a crop of the centre."
        return ""


def network(
    arch: str, dataset: Dataset, *, pretrained: bool
) -> tuple[nn.Module, tuple[float, ...], tuple[float, ...]]:
    """The network that `arch` names, and the means and standard deviations timm normalises with for it.

    pretrained   with the weights that timm keeps, and so their number of classes; downloaded where need be.

    Raises UserError where timm cannot be imported, does not know the name, or cannot get the weights.
    """
    timm = packages.imported("timm", arch)
    name = arch.removeprefix(PREFIX)
    if not timm.is_model(name.partition(".")[0]):
        raise unknown("timm model", name, timm.list_models(), "timm.list_models()")
    net: Any
    net, size = _made(timm, arch, dataset)
    if pretrained:
        _check_reachable(arch, net.pretrained_cfg)
        try:
            net = timm.create_model(name, pretrained=True, **size)
        except (OSError, RuntimeError) as problem:
            raise _unavailable(arch, net.pretrained_cfg, problem) from None
    origin = net.pretrained_cfg
    return net, tuple(origin["mean"]), tuple(origin["std"])


def _made(timm: Any, arch: str, dataset: Dataset) -> tuple[Any, dict[str, int]]:
    """The network with random weights, and the image size that it was built for, if timm needs one.

    Transformers are built for one image size. They are built for that of the dataset; timm interpolates the
    positions of pretrained weights.
    """
    name = arch.removeprefix(PREFIX)
    size: dict[str, int] = {}
    try:
        net = timm.create_model(name, pretrained=False, num_classes=dataset.num_classes)
        origin = net.pretrained_cfg
        usual = (origin.get("input_size") or (0,))[-1]
        if origin.get("fixed_input_size") and usual != dataset.image_size:
            size = {"img_size": dataset.image_size}
            net = timm.create_model(name, pretrained=False, num_classes=dataset.num_classes, **size)
    except Exception as problem:  # a constructor may raise anything for a size that it does not support
        first = str(problem).partition("\n")[0]
        raise UserError(
            f"{arch} cannot be made for images of {dataset.image_size} pixels "
            f"({type(problem).__name__}: {first})."
        ) from None
    return net, size


def _check_reachable(arch: str, origin: Mapping[str, Any]) -> None:
    """Raises UserError if weights must be downloaded from the hub and it does not answer."""
    if not origin.get("hf_hub_id"):
        return
    try:
        hugging_face_hub.check_reachable(origin["hf_hub_id"], _hub_file(origin), OLDER_FILE)
    except (OSError, ValueError) as problem:
        raise _unavailable(arch, origin, problem) from None


def _hub_file(origin: Mapping[str, Any]) -> str:
    return str(origin.get("hf_hub_filename") or FILE)


def _address(origin: Mapping[str, Any]) -> str:
    """The address of the weights; "" if timm does not state it."""
    if repository := origin.get("hf_hub_id"):
        return hugging_face_hub.address(repository, _hub_file(origin))
    return str(origin.get("url") or "")


def _unavailable(arch: str, origin: Mapping[str, Any], problem: Exception) -> UserError:
    first = str(problem).partition("\n")[0]
    file = _address(origin)
    return UserError(
        f"the weights {f'{file} ' if file else ''}of {arch} cannot be loaded ({first}); download the file "
        f"elsewhere and use --archs {arch} --checkpoint FILE."
    )
