"""Zero-shot classifiers of CLIP: ``clip/NAME.WEIGHTS``. The only door to open_clip, but for names of classes.

The network is the image encoder, an L2 norm, and a linear head whose rows are the text features of the
classes times CLIP's scale. The head is made once, from stored sentences, and frozen: its values are buffers,
so no method can learn them. They are part of the weights, and so of the identity of every result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from ttabench.classifier import Classifier
from ttabench.data.dataset import Dataset
from ttabench.errors import UserError, unknown
from ttabench.models.external import packages
from ttabench.models.external.clip_prompts import TEMPLATES, class_names, prompts, prompts_sha256
from ttabench.models.external.external_model import ExternalModel

__all__ = ["PREFIX", "ClipModel", "FrozenLinear", "ZeroShot"]

PREFIX = "clip/"


class FrozenLinear(nn.Linear):
    """A linear layer whose weight and bias are buffers: without gradient, and not found by optimisers."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        weight = self.weight.detach().clone()
        del self.weight, self.bias
        self.register_buffer("weight", weight)
        self.register_buffer("bias", torch.zeros(out_features))


class ZeroShot(nn.Module):
    """Logits (B, C) of normalised images (B, 3, H, W): head(z / ‖z‖), with z the encoder's features.

    size  the side of the images that the encoder takes; others are resized, bicubically.
    """

    def __init__(self, encoder: nn.Module, width: int, classes: int, size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = FrozenLinear(width, classes)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.size:
            x = interpolate(x, size=(self.size, self.size), mode="bicubic", align_corners=False)
        logits: Tensor = self.head(normalize(self.encoder(x), dim=1))
        return logits


class ClipModel(ExternalModel):
    """``clip/NAME.WEIGHTS``: an image encoder of open_clip with a frozen head made of text."""

    def build(self) -> Classifier:
        return self._classifier(_made(self.name, pretrained=False))

    def build_pretrained(self) -> Classifier:
        model = _made(self.name, pretrained=True)
        classifier = self._classifier(model)
        head = text_head(model, _tokenizer(self.name), prompts(class_names(self.dataset)))
        with torch.no_grad():
            classifier.linear.weight.copy_(head)
        return classifier

    def origin(self) -> dict[str, Any]:
        sentences = prompts(class_names(self.dataset))
        return {
            "origin": f"{self.name} (open_clip)",
            "prompts": list(TEMPLATES),
            "classes": list(class_names(self.dataset)),
            "prompts_sha256": prompts_sha256(sentences),
        }

    def _classifier(self, model: Any) -> Classifier:
        _check_names(self.dataset)
        encoder = model.visual
        size = _side(encoder.image_size)
        with torch.no_grad():
            width = encoder.float().eval()(torch.zeros(1, 3, size, size)).shape[-1]
        net = ZeroShot(encoder, width, self.dataset.num_classes, size)
        facts = _facts(self.name)
        mean, std = facts.get("mean") or encoder.image_mean, facts.get("std") or encoder.image_std
        return self.wrap(net, tuple(mean), tuple(std))


@torch.no_grad()
def text_head(model: Any, tokenizer: Any, sentences: list[list[str]]) -> Tensor:
    """The rows (C, k) of the head: exp(CLIP's scale) · the unit mean of the unit text features of a class."""
    model = model.float().eval()
    rows = []
    for each in sentences:
        features = normalize(model.encode_text(tokenizer(each)), dim=1)
        rows.append(normalize(features.mean(dim=0), dim=0))
    head: Tensor = torch.stack(rows) * model.logit_scale.exp()
    return head


def _made(arch: str, *, pretrained: bool) -> Any:
    """The CLIP model, with its weights or with random ones. Raises UserError."""
    open_clip = _imported(arch)
    name, _, tag = arch.removeprefix(PREFIX).partition(".")
    if name not in open_clip.list_models():
        raise unknown("CLIP model", name, open_clip.list_models(), "open_clip.list_models()")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        raise UserError(
            f"{arch} names no weights; expected {PREFIX}{name}.WEIGHTS with one of "
            f"{', '.join(tags) or 'none'}."
        )
    quick = bool(_facts(arch).get("quick_gelu"))
    if not quick and (open_clip.get_model_config(name) or {}).get("quick_gelu"):
        raise UserError(
            f"{arch}: {name} has QuickGELU, and these weights were trained without it; name the network "
            "without -quickgelu."
        )
    try:
        # Without it, weights that were trained with QuickGELU would be run with another activation.
        return open_clip.create_model(
            name, pretrained=tag if pretrained else None, force_quick_gelu=quick, pretrained_text=False
        )
    except Exception as problem:  # downloads and files may fail in any way
        first = str(problem).partition("\n")[0]
        raise UserError(f"{arch} cannot be loaded ({type(problem).__name__}: {first}).") from None


def _facts(arch: str) -> Mapping[str, Any]:
    """What open_clip knows of the weights: activation, and mean and standard deviation of the pixels."""
    name, _, tag = arch.removeprefix(PREFIX).partition(".")
    return _imported(arch).get_pretrained_cfg(name, tag) or {}


def _tokenizer(arch: str) -> Any:
    return _imported(arch).get_tokenizer(arch.removeprefix(PREFIX).partition(".")[0])


def _imported(arch: str) -> Any:
    return packages.imported("open_clip", arch, get="pip install 'ttabench[clip]'")


def _check_names(dataset: Dataset) -> None:
    """Raise UserError where the classes of a dataset have no names, or not as many as it has classes."""
    names = class_names(dataset)
    if len(names) != dataset.num_classes:
        raise UserError(
            f"{dataset.name} has {dataset.num_classes} classes and {len(names)} names of classes, which a "
            "CLIP head is made of; take a dataset with all classes."
        )


def _side(size: Any) -> int:
    return int(size[0] if isinstance(size, tuple | list) else size)
