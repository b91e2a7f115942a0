"""Each method with the settings that it has for ImageNet, which no 32-pixel dataset uses."""

from __future__ import annotations

import pytest
import torch

from tests.cases import each
from ttabench.conformance.case import Case, Run
from ttabench.conformance.nets import nets
from ttabench.method.settings import usual_settings
from ttabench.registry import method, methods

SHORTER = {"warmup_images": 128, "source_images": 64, "capacity": 32}
"""Settings that make it quicker: all passes are made, on fewer images."""


@each("name", sorted(methods()))
@pytest.mark.filterwarnings("ignore::ttabench.errors.Alarm")  # thresholds for 1,000 classes, and 5 here
def test_each_method_adapts_to_several_batches(name: str) -> None:
    cls, tried = method(name), 0
    for kind, net in nets().items():
        facts = net.architecture()
        settings = usual_settings(cls, "imagenet-c", 1000, facts)
        settings |= {key: value for key, value in SHORTER.items() if key in cls.Config.__dataclass_fields__}
        config = cls.Config(**settings)
        if not cls.needs_of(config).unmet(facts):
            case, tried = Case(cls, config, kind, net), tried + 1
            for logits in Run(case.fresh(), case.stream).logits:
                assert torch.isfinite(logits).all(), kind
    assert tried
