"""Networks of timm: ``timm/NAME``. The only door to the package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from torch import nn

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError, unknown
from ttabench.models.external.external_model import ExternalModel

__all__ = ["PREFIX", "TimmModel", "network"]

PREFIX = "timm/"
FILE = "model.safetensors"  # of a repository on the Hugging Face hub
PATIENCE = 10.0  # seconds until an address counts as out of reach


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
    except (ImportError, RuntimeError) as problem:  # RuntimeError: torchvision was built for another torch
        raise UserError(
            f"{arch} needs timm ({str(problem).splitlines()[0]}): pip install 'ttabench[timm]', with the "
            "torchvision made for the torch installed."
        ) from None
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
    """Raises UserError if weights must be downloaded and their address does not answer.

    timm itself tries for more than a minute, and names no file.
    """
    if not origin.get("hf_hub_id") or _is_cached(origin):
        return
    try:
        with urlopen(Request(_address(origin), method="HEAD"), timeout=PATIENCE):
            pass
    except HTTPError:
        return  # the server answers; timm reports any other problem
    except (OSError, ValueError) as problem:
        raise _unavailable(arch, origin, problem) from None


def _is_cached(origin: Mapping[str, Any]) -> bool:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    names = (origin.get("hf_hub_filename") or FILE, "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(origin["hf_hub_id"], name), str) for name in names)


def _address(origin: Mapping[str, Any]) -> str:
    """The address of the weights; "" if timm does not state it."""
    repository = origin.get("hf_hub_id")
    if not repository:
        return str(origin.get("url") or "")
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{hub}/{repository}/resolve/main/{origin.get('hf_hub_filename') or FILE}"


def _unavailable(arch: str, origin: Mapping[str, Any], problem: Exception) -> UserError:
    first = str(problem).partition("\n")[0]
    file = _address(origin)
    return UserError(
        f"the weights {f'{file} ' if file else ''}of {arch} cannot be loaded ({first}); download the file "
        f"elsewhere and use --archs {arch} --checkpoint FILE."
    )
