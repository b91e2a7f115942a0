"""Mathematical properties of the methods that bring target features or activations to the source's."""

from __future__ import annotations

import pytest
import torch

from ttabench.classifier import Classifier
from ttabench.conformance import Source, Target
from ttabench.conformance.nets import images, nets
from ttabench_methods.neo import NEO, NEOConfig

TARGET = images(96, seed=2, shift=0.4)


@pytest.fixture(scope="module")
def tiny() -> dict[str, Classifier]:
    return nets()


# ---- NEO


def test_neo_cumulative_mean_is_that_of_all_images_so_far(tiny: dict[str, Classifier]) -> None:
    method = NEO(tiny["LN ViT"])
    method.prepare()
    for x in TARGET.split([40, 7, 49]):
        logits = method.adapt(x)
    with torch.no_grad():
        z = tiny["LN ViT"].features(TARGET)
        torch.testing.assert_close(method.mean, z.mean(0))
        torch.testing.assert_close(logits, tiny["LN ViT"].head(z[47:] - z.mean(0)))
    offline = NEO(tiny["LN ViT"])
    offline.prepare()
    offline.fit(Target(TARGET.split(10)), 3)
    torch.testing.assert_close(offline.mean, z.mean(0))  # each pass sees the same images


def test_neo_undoes_a_shift_of_all_features_where_the_source_is_centred(tiny: dict[str, Classifier]) -> None:
    """Whatever constant is added to the features, logits are those of centred features."""
    net, shift = tiny["GN CNN"], 5.0
    with torch.no_grad():
        z = net.features(TARGET)
        method = NEO(net)
        method.prepare()
        method.mean = (z + shift).mean(0)
        torch.testing.assert_close(method.centred(z + shift), net.head(z - z.mean(0)), atol=1e-4, rtol=1e-4)


def test_neo_continual_forgets_at_its_rate(tiny: dict[str, Classifier]) -> None:
    method = NEO(tiny["BN CNN"], NEOConfig(form="continual", alpha=0.25))
    method.prepare()
    for _ in range(3):
        method.adapt(TARGET)
    with torch.no_grad():
        m = tiny["BN CNN"].features(TARGET).mean(0)
    torch.testing.assert_close(method.mean, m * (1 - 0.75**3))


# ---- what they are served


@pytest.mark.parametrize("cls", [NEO])
def test_they_belong_together_and_say_what_they_were_served(cls: type, tiny: dict[str, Classifier]) -> None:
    assert cls.family == "alignment"
    method = cls(tiny["BN CNN"])
    method.prepare(Source(cls.needs))
    assert bool(method.served) == bool(cls.needs.source_data)
