"""Networks of timm: ``timm/NAME``. The only door to the package."""

from __future__ import annotations

from torch import nn

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError, unknown
from ttabench.models.external.external_model import ExternalModel

__all__ = ["PREFIX", "TimmModel", "network"]

PREFIX = "timm/"


class TimmModel(ExternalModel):
    """``timm/NAME``: ``timm.create_model``, with timm's normalisation for it and the weights timm keeps."""

    def build(self) -> Classifier:
        net, mean, std = network(self.name, self.dataset, pretrained=False)
        return self.wrap(net, mean, std)

    def build_pretrained(self) -> Classifier:
        net, mean, std = network(self.name, self.dataset, pretrained=True)
        return self.wrap(net, mean, std)


def network(
    arch: str, dataset: Dataset, *, pretrained: bool
) -> tuple[nn.Module, tuple[float, ...], tuple[float, ...]]:
    """The network that `arch` names, and the means and standard deviations timm normalises with for it.

    pretrained   with the weights that timm keeps, and so their number of classes; downloaded where need be.

    Raises UserError where timm is missing, does not know the name, or cannot get the weights.
    """
    try:
        import timm
    except (ImportError, RuntimeError) as problem:  # the latter with a torchvision made for another torch
        raise UserError(
            f"{arch} needs timm ({str(problem).splitlines()[0]}): pip install 'ttabench[timm]', with the "
            "torchvision made for the torch installed."
        ) from None
    name = arch.removeprefix(PREFIX)
    if not timm.is_model(name.partition(".")[0]):
        raise unknown("timm model", name, timm.list_models(), "timm.list_models()")
    try:
        if pretrained:
            net = timm.create_model(name, pretrained=True)
        else:
            net = timm.create_model(name, pretrained=False, num_classes=dataset.num_classes)
    except (OSError, RuntimeError) as problem:
        first = str(problem).splitlines()[0]
        raise UserError(f"the weights of {arch} cannot be had ({first}).") from None
    origin = net.pretrained_cfg
    return net, tuple(origin["mean"]), tuple(origin["std"])
