"""Networks that are not ours: ``package.module:callable`` and ``timm/NAME``."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from torch import nn

from ttabench.classifier import Classifier
from ttabench.data.base import Dataset
from ttabench.errors import UserError, unknown
from ttabench.models.catalog import build

__all__ = ["construct", "is_external"]

TIMM = "timm/"


def is_external(arch: str) -> bool:
    """Whether `arch` names a network from outside rather than one of `names.MEMBERS`."""
    return "/" in arch or ":" in arch


def construct(arch: str, dataset: Dataset, *, pretrained: bool = False) -> Classifier:
    """The classifier that `arch` names, for this dataset, in eval mode.

    ``resnet18``, ``cct_7_3x1`` …    ours, see `catalog.build`.
    ``package.module:callable``       called with those of num_classes, image_size and dataset (its name)
                                      that its signature has; returns a Classifier, or any module that
                                      takes pixels in [0, 1].
    ``timm/NAME``                     ``timm.create_model``, with timm's normalisation for it.

    pretrained   with the weights that timm keeps; they are downloaded where need be.

    Raises UserError on unknown names, missing packages, another number of classes.
    """
    if arch.startswith(TIMM):
        classifier = _timm(arch.removeprefix(TIMM), dataset, pretrained)
    elif ":" in arch:
        classifier = _python(arch, dataset)
    elif "/" in arch:
        raise UserError(f"'{arch}' is no architecture; models from outside are timm/NAME or module:callable.")
    else:
        classifier = build(
            arch, dataset=dataset.name, num_classes=dataset.num_classes,
            image_size=dataset.image_size, mean=dataset.mean, std=dataset.std,
        )  # fmt: skip
    if classifier.num_classes != dataset.num_classes:
        raise UserError(
            f"{arch} has {classifier.num_classes} classes, but {dataset.name} has {dataset.num_classes}."
        )
    return classifier.eval()


def _wrap(arch: str, net: nn.Module, dataset: Dataset, **normalisation: tuple[float, ...]) -> Classifier:
    try:
        return Classifier.wrap(net, dataset.image_size, **normalisation)
    except UserError:
        raise
    except Exception as problem:  # whatever a stranger's network does with images of this size
        raise UserError(
            f"{arch} cannot take images of {dataset.image_size} pixels ({type(problem).__name__}: {problem})."
        ) from None


# ---- module:callable


def _python(arch: str, dataset: Dataset) -> Classifier:
    make = _find(arch)
    facts: dict[str, Any] = {
        "num_classes": dataset.num_classes, "image_size": dataset.image_size, "dataset": dataset.name,
    }  # fmt: skip
    parameters = inspect.signature(make).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    net = make(**{name: value for name, value in facts.items() if takes_any or name in parameters})
    if isinstance(net, Classifier):
        return net
    if not isinstance(net, nn.Module):
        raise UserError(f"{arch} returned a {type(net).__name__}; expected an nn.Module or a Classifier.")
    return _wrap(arch, net, dataset)


def _find(arch: str) -> Callable[..., Any]:
    module_name, _, name = arch.partition(":")
    if "" not in sys.path and "." not in sys.path:
        sys.path.append("")  # the user's folder, which an installed command does not search
    try:
        module = importlib.import_module(module_name)
    except ImportError as problem:
        raise UserError(
            f"{module_name} of '{arch}' cannot be imported ({problem}); run from the folder it is in, or "
            "install it."
        ) from None
    found = getattr(module, name, None)
    if found is None:
        raise unknown(f"callable in {module_name}", name, (n for n in vars(module) if not n.startswith("_")))
    if not callable(found):
        raise UserError(
            f"{arch} is a {type(found).__name__}; expected a function or class that makes a network."
        )
    return found  # type: ignore[no-any-return]


# ---- timm


def _timm(name: str, dataset: Dataset, pretrained: bool) -> Classifier:
    try:
        import timm
    except ImportError as problem:
        raise UserError(f"timm/{name} needs timm ({problem}): pip install 'ttabench[timm]'.") from None
    if not timm.is_model(name.partition(".")[0]):
        raise unknown("timm model", name, timm.list_models())
    try:
        if pretrained:
            net = timm.create_model(name, pretrained=True)
        else:
            net = timm.create_model(name, pretrained=False, num_classes=dataset.num_classes)
    except (OSError, RuntimeError) as problem:
        first = str(problem).splitlines()[0]
        raise UserError(f"the weights of timm/{name} cannot be had ({first}).") from None
    origin = net.pretrained_cfg
    return _wrap(f"timm/{name}", net, dataset, mean=tuple(origin["mean"]), std=tuple(origin["std"]))
