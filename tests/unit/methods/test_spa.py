"""SPA: masked frequencies, squares of noise, and a step, against the formulas written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.unit.methods.kept_for_gradients import most_kept
from ttabench.classifier import Architecture, Classifier
from ttabench.conformance.nets import images, nets
from ttabench_methods.spa import SPA, SPAConfig, noisy, symmetric_mask, without_low_frequencies


@pytest.fixture(scope="module")
def net() -> Classifier:
    net = nets()["GN CNN"].double()
    with torch.no_grad():
        net.linear.weight.mul_(0.02)  # so that it is not certain of every image
        net.linear.bias.mul_(0.02)
    return net


def prepared(net: Classifier) -> SPA:
    made = SPA(net, SPAConfig(lr=0.05, predictor_lr=0.1, mask=0.3, noise=0.2, grid=4))
    made.prepare()
    return made


@pytest.mark.parametrize("side", [15, 16, 32])
def test_only_low_frequencies_are_lost_and_opposite_ones_together(side: int) -> None:
    x = torch.rand(40, 3, side, side, dtype=torch.float64)
    mask = symmetric_mask(x, 0.3)
    frequency = torch.fft.fftfreq(side, 1 / side).abs()
    low = (frequency[:, None] <= side * 0.1) & (frequency[None] <= side * 0.1)
    lost = mask == 0
    assert not (lost & ~low).any()
    index = -torch.arange(side) % side
    assert torch.equal(mask, mask[:, :, index][..., index])
    assert float(lost[..., 0, 0].double().mean()) == pytest.approx(0.3, abs=0.15)
    assert float(lost[..., 1, 0].double().mean()) == pytest.approx(0.3, abs=0.15)
    wave = torch.fft.ifft2(torch.fft.fft2(x) * mask)
    assert wave.imag.abs().max() < 1e-12


def test_the_square_of_low_frequencies_is_a_fifth_of_224_pixels_wide() -> None:
    """Frequencies −22 … 21 of rows, with their opposites, as the official code has them."""
    lost = symmetric_mask(torch.rand(1, 3, 224, 224), 1.0)[0, 0] == 0
    frequency = torch.fft.fftfreq(224, 1 / 224)
    rows = frequency[lost.any(1)]
    assert (int(rows.min()), int(rows.max())) == (-22, 22)
    assert int(lost.sum()) == 22 * 44 * 2 + 43


def test_nothing_lost_leaves_images_as_they_are() -> None:
    x = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(without_low_frequencies(x, 0.0), x)
    left = without_low_frequencies(x, 1.0)
    torch.testing.assert_close(left.mean((2, 3)), torch.zeros(2, 3, dtype=torch.float64))


def test_each_square_is_mixed_with_noise_by_its_amount() -> None:
    x, amounts = torch.rand(2, 3, 16, 16) - 0.5, torch.rand(4, 4)
    torch.manual_seed(3)
    out = noisy(x, amounts)
    torch.manual_seed(3)
    noise = torch.randn(1, 3, 16, 16)
    for i in range(4):
        for j in range(4):
            square = (..., slice(4 * i, 4 * i + 4), slice(4 * j, 4 * j + 4))
            share = amounts[i, j] ** 2
            expected = ((1 - share) * x[square] + share * noise[square]).clamp(-1, 1)
            torch.testing.assert_close(out[square], expected)


def test_a_batch_is_a_step_down_for_the_network_and_up_for_the_noise(net: Classifier) -> None:
    method, twin = prepared(net), prepared(net)
    norms = torch.optim.SGD(twin.parameters.values(), 0.05, 0.9)
    others = torch.optim.SGD([twin.predictor], 0.1, 0.9)
    amounts = torch.full((4, 4), 0.2**0.5, dtype=torch.float64, requires_grad=True)
    velocity = torch.zeros(4, 4, dtype=torch.float64)
    for seed in (2, 3):
        x = images(10, seed=seed).double()
        torch.manual_seed(seed)
        masked = without_low_frequencies(2 * x - 1, 0.3)
        deteriorated = [masked, noisy(2 * x - 1, amounts)]
        logits = twin.model(x).detach()
        target = logits.softmax(1)
        loss = sum(divergence(twin, pixels, target) for pixels in deteriorated)
        for optimizer in (norms, others):
            optimizer.zero_grad()
        torch.autograd.backward(loss)
        norms.step()
        others.step()
        assert amounts.grad is not None
        velocity = 0.9 * velocity - amounts.grad
        raised = amounts.detach() - velocity
        raised = raised / (raised.square().mean() / 0.2).sqrt()
        amounts = raised.clamp(-1, 1).requires_grad_(True)
        torch.manual_seed(seed)
        torch.testing.assert_close(method.adapt(x), logits)
        torch.testing.assert_close(method.amounts.detach(), amounts.detach())
        torch.testing.assert_close(method.predictor, twin.predictor)
        for name, p in method.parameters.items():
            torch.testing.assert_close(p, twin.parameters[name])


def test_one_deteriorated_image_is_kept_for_the_gradient_at_a_time(net: Classifier) -> None:
    method = prepared(net)
    x = images(10, seed=2).double()
    logits = method.model(x).detach()
    alone = most_kept(lambda: method.consistency(noisy(2 * x - 1, method.amounts), logits))
    assert most_kept(lambda: method.adapt(x)) < 1.1 * alone


def divergence(method: SPA, pixels: Tensor, target: Tensor) -> Tensor:
    """KL(target ‖ prediction through g), over the images of which the target is surer."""
    q = method.model.head(method.model.features((pixels + 1) / 2) @ method.predictor.T).softmax(1)
    surer = target.max(1).values > q.max(1).values
    assert surer.any()
    return (target * (target / q).log()).sum(1)[surer].mean()


def test_settings_are_those_of_vit_b_or_of_resnet_50() -> None:
    assert SPA.for_architecture(Architecture(norm_layers=("layer",))) == {}
    assert SPA.for_architecture(Architecture(norm_layers=("group",)))["noise"] == 0.1
