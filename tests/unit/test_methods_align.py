"""Mathematical properties of the methods that bring target features or activations to the source's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ttabench.classifier import Classifier
from ttabench.conformance import Source, Target
from ttabench.conformance.nets import images, nets
from ttabench_methods.actmad import ActMAD, ActMADConfig, distance
from ttabench_methods.actmad_vit import ActMADViT
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


# ---- ActMAD

SOURCE = images(128, seed=3)  # what conformance's source serves


@pytest.mark.parametrize("name", ["BN CNN", "GN CNN", "LN ViT"])
def test_actmad_loss_is_zero_on_the_source_and_positive_elsewhere(
    tiny: dict[str, Classifier], name: str
) -> None:
    method = ActMAD(tiny[name])
    method.prepare(Source(ActMAD.needs))
    with torch.no_grad():
        assert method.loss(SOURCE) < 1e-5
        assert method.loss(TARGET) > 0.1


@pytest.mark.parametrize("name", ["BN CNN", "GN CNN", "LN ViT"])
def test_actmad_lowers_its_loss_and_leaves_head_and_stored_statistics(
    tiny: dict[str, Classifier], name: str
) -> None:
    method = ActMAD(tiny[name], ActMADConfig(lr=1e-4))
    method.prepare(Source(ActMAD.needs))
    before = method.loss(TARGET).item()
    for _ in range(10):
        scored = method.adapt(TARGET)
    assert method.loss(TARGET) < before
    assert torch.equal(scored, method.predict(TARGET))  # the pass after the update
    kept = dict(tiny[name].named_buffers()) | {"weight": tiny[name].linear.weight}
    now = dict(method.model.named_buffers()) | {"weight": method.model.linear.weight}
    assert all(torch.equal(now[key], kept[key]) for key in kept)


def test_actmad_distance_is_half_blind_to_one_image() -> None:
    out, mean, variance = torch.randn(1, 3, 2, 2), torch.zeros(3, 2, 2), torch.ones(3, 2, 2)
    assert torch.equal(distance(out, mean, variance), out.abs().mean())


def test_actmad_official_rates() -> None:
    rates = {
        name: ActMAD.for_dataset(name, classes).get("lr", ActMADConfig().lr)
        for name, classes in (("cifar10-c", 10), ("cifar100-c", 100), ("imagenet-c", 1000))
    }
    assert rates == {"cifar10-c": 1e-2, "cifar100-c": 1e-3, "imagenet-c": 2.5e-4}


def test_actmad_vit_watches_what_each_block_puts_out(tiny: dict[str, Classifier]) -> None:
    method = ActMADViT(tiny["LN ViT"])
    method.prepare(Source(ActMADViT.needs))
    assert method.names == ["net.blocks.1.norm1", "net.norm"]
    net: Any = method.model.net
    caught: list[Tensor] = []
    hooks = [block.register_forward_hook(lambda _m, _i, out: caught.append(out)) for block in net.blocks]
    with torch.no_grad():
        tokens, _ = method.tokens(TARGET)
        torch.testing.assert_close(
            tokens, torch.cat([net.blocks[1].norm1(caught[0]), net.norm(caught[1])], dim=2)[:, 0]
        )
        assert method.distance(method.tokens(SOURCE)[0]) < 1e-10
        assert method.distance(tokens) > 1e-5
    for hook in hooks:
        hook.remove()


# ---- what they are served


@pytest.mark.parametrize("cls", [NEO, ActMAD, ActMADViT])
def test_they_belong_together_and_say_what_they_were_served(cls: type, tiny: dict[str, Classifier]) -> None:
    assert cls.family == "alignment"
    method = cls(tiny["LN ViT" if cls.needs.tags else "BN CNN"])
    method.prepare(Source(cls.needs))
    assert bool(method.served) == bool(cls.needs.source_data)
